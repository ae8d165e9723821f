package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"agentd/internal/broker/buckets"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// runTimesOut is row T52's time: a run whose time is over ends, whether a service, a tool or the model is at work.
func runTimesOut(t *testing.T) {
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, reply := range map[string]func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error){
		"service": func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) { return find(1), nil },
		"tool": func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
			return sdktest.Ask(sdktest.Tool("note", n(1))), nil
		},
		"model": func(ctx context.Context, _ sdk.ModelRequest) (sdk.ModelReply, error) {
			return sdk.ModelReply{}, forever(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := desk(service("shop.find"))
			a.Tools = []sdk.Tool{internal("note", func(ctx context.Context, _ sdk.ToolCall) ([]byte, error) { return nil, forever(ctx) })}
			a.Spec.Limits.DeadlineMillis = 400
			h := start(t, sdktest.ModelFunc(reply), a)
			r := h.Run("desk", message("hello"))
			equal(t, "code", string(fails(t, h, r, deskType).Code), "deadline_exceeded")
			equal(t, "reason", reason(h, r), "deadline:run")
			entries := h.Parts(r)
			equal(t, "deadline", entries[0].Head.Deadline-entries[0].At, int64(400))
			if lasted := entries[len(entries)-1].At - entries[0].At; lasted < 400 || lasted > 60_000 {
				t.Errorf("a run of 400 ms lasted %d", lasted)
			}
		})
	}
}

// allReasons is row T43.
func allReasons(t *testing.T) {
	t.Run("conditions", func(t *testing.T) { show(t, stopConditions) })
	t.Run("ways", func(t *testing.T) { show(t, runEndOnEveryPath) })
	t.Run("time", func(t *testing.T) { show(t, runTimesOut) })
}

// allStopConditions is row T52: rounds, time, tokens, errors, tool, text and loops each end the run with a reason of their own.
func allStopConditions(t *testing.T) {
	t.Run("conditions", func(t *testing.T) { show(t, stopConditions) })
	t.Run("time", func(t *testing.T) { show(t, runTimesOut) })
	t.Run("tool", func(t *testing.T) {
		a := desk()
		a.Tools, a.Spec.StopOn = []sdk.Tool{echo("note"), echo("finish")}, []string{"finish"}
		a.Hooks.Output = func(_ context.Context, in sdk.OutputInput) (json.RawMessage, error) {
			return json.Marshal(map[string]string{"response": in.Text})
		}
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("finish", n(2))))
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		equal(t, "reason", reason(h, r), "stopped:tool")
		asked(t, model, 2)
	})
}

// mostInteractions is row F24: an agent that does not come to an end is stopped with an error event, after as many model calls as
// it is configured for, and after 20 if it is not.
func mostInteractions(t *testing.T) {
	for configured, most := range map[int]int{0: 20, 3: 3} {
		t.Run(fmt.Sprint(configured), func(t *testing.T) {
			var replies []sdk.ModelReply
			for i := range 30 {
				replies = append(replies, sdktest.Ask(sdktest.Tool("note", n(i))))
			}
			a := desk()
			a.Tools, a.Spec.Limits.Interactions = []sdk.Tool{echo("note")}, configured
			model := sdktest.Script(replies...)
			h := start(t, model, a)
			r, l := heardRun(t, h)
			p := fails(t, h, r, deskType)
			equal(t, "code and message", []string{string(p.Code), p.ErrorMessage},
				[]string{"quota_exhausted", fmt.Sprintf("no answer within %d interactions with the model", most)})
			asked(t, model, most)
			results(t, h.Messages(r), most) // the calls of the last reply were made
			l.await(t, "run.finished", 1)
			equal(t, "told", l.heard("run.exhausted"),
				[]string{fmt.Sprintf(`run.exhausted {"interactions":%d,"limit":"interactions","used":%d}`, most, 2*most)})
		})
	}
}

// autoApproval is row F40: what the rules allow is made without asking, a shell's command only if it is exactly one of the list;
// everything else is denied.
func autoApproval(t *testing.T) {
	ran := map[string]int{}
	command := func(name string) sdk.Tool {
		return sdk.Tool{
			Definition: sdk.ToolDefinition{Name: name, Parameters: []byte(`{"type": "object", "properties": {"command": {"type": "string"}}}`)},
			Run: func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
				ran[name+" "+string(c.Args)]++
				return json.RawMessage(`{}`), nil
			},
		}
	}
	a := desk()
	a.Spec.Order = sdk.CallsSequential
	a.Tools = []sdk.Tool{command("read"), command("shell"), command("wipe")}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"read"}, Verdict: "allow"},
		{Tools: []string{"shell"}, When: `args.command in ["ls", "git status"]`, Verdict: "allow"},
		{Verdict: "deny", Reason: "not on the list"},
	}}
	shell := func(command string) sdk.ToolRequest { return sdktest.Tool("shell", map[string]any{"command": command}) }
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("read", map[string]any{}), shell("ls"), shell("git status"), shell("git status; rm -r /"), shell("rm -r /"),
		sdktest.Tool("shell", map[string]any{}), sdktest.Tool("wipe", map[string]any{})), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "what was made", ran, map[string]int{
		"read {}": 1, `shell {"command":"ls"}`: 1, `shell {"command":"git status"}`: 1,
	})
	for _, denied := range results(t, h.Messages(r), 7)[3:] {
		p := problem(t, denied)
		equal(t, "code and message", []string{string(p.Code), p.ErrorMessage},
			[]string{"permission_denied", denied.Tool + " is not allowed: not on the list"})
	}
	h.NoCall("agentd.permission.request")
}

// permissionStore is row L69: what is allowed for a run is forgotten with it; what is allowed for whoever started it is kept over
// runs and restarts, until it is revoked.
func permissionStore(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{{Tools: []string{"shop_find"}, Verdict: "ask"}},
		Terms: sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{"call", "run+tool", "principal+agent+tool"}},
	}
	model := sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if made := len(req.Messages) / 2; made < 2 { // two calls a run
			return find(made), nil
		}
		return sdktest.Say("done"), nil
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, Model: model, Identity: true})
	begin := func(subject, who string) harness.Run {
		return h.SendAs(who, "desk", other(h, "desk", subject, message("hello")))
	}
	answerAs := func(d sdk.PermissionDecision) {
		t.Helper()
		c := request(t, h)
		d.ArgsHash = fmt.Sprint(c.Data()["args_sha256"])
		h.PublishAs("boss", c, c.Response("agentd.permission.decided", d))
	}
	serve := func(r harness.Run, calls int) {
		t.Helper()
		for range calls {
			h.Call("shop.find").Answer("shop.find.done", value("it"))
		}
		succeeds(t, h, r, `{"response": "done"}`)
		h.NoCall("agentd.permission.request")
	}
	first := begin("first", "anna")
	answerAs(sdk.PermissionDecision{Decision: "allow", Scope: "run+tool"})
	serve(first, 2)

	second := begin("second", "anna")
	answerAs(sdk.PermissionDecision{Decision: "allow", Scope: "principal+agent+tool"})
	serve(second, 2)

	h.Restart()
	serve(begin("third", "anna"), 2)

	somebody := begin("of another", "zoe")
	for range 2 {
		answerAs(sdk.PermissionDecision{Decision: "deny"})
	}
	serve(somebody, 0)

	grants, err := buckets.GrantsOf(h.Conn()).List(t.Context())
	if err != nil || len(grants) != 1 {
		t.Fatalf("%d grants are kept: %v", len(grants), err)
	}
	equal(t, "grant", []any{grants[0].Principal, grants[0].Agent, grants[0].Tool, grants[0].By, grants[0].Run},
		[]any{"anna", "desk", "shop_find", []string{"boss"}, "second"})
	if found, err := buckets.GrantsOf(h.Conn()).Revoke(t.Context(), "anna", "desk", "shop_find", grants[0].ID); err != nil || !found {
		t.Fatalf("revoked: %t, %v", found, err)
	}
	fourth := begin("fourth", "anna")
	for range 2 {
		answerAs(sdk.PermissionDecision{Decision: "deny"})
	}
	serve(fourth, 0)
}

// mcpReleased is row A3: a client of a server that is a program is connected when its tools are used, and released when its worker
// ends, however its runs do: the program is gone.
func mcpReleased(t *testing.T) {
	none := map[string]any{}
	for name, path := range map[string]struct {
		then func(*harness.Harness, harness.Run)
		next sdk.ModelReply
	}{
		"completed": {next: sdktest.Say("done"), then: func(h *harness.Harness, r harness.Run) { succeeds(t, h, r, `{"response": "done"}`) }},
		"cancelled": {next: find(1), then: func(h *harness.Harness, r harness.Run) {
			h.Suspended(r, 1)
			h.Cancel(r, "enough")
			h.Done(r)
		}},
		"died":      {next: sdktest.Ask(sdktest.Tool("program_die", none)), then: func(h *harness.Harness, r harness.Run) { h.Done(r) }},
		"suspended": {next: find(1), then: func(h *harness.Harness, r harness.Run) { h.Suspended(r, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := desk(service("shop.find"))
			set := program(t)
			a.Toolsets = []sdk.Toolset{set}
			h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("program_pid", none)), path.next), a)
			r := h.Run("desk", message("hello"))
			path.then(h, r)
			pid := pidOf(t, toolResults(h.Messages(r)[2])[0])
			h.StopWorkers()
			await(t, "the program is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
		})
	}
}

// pidOf is the process id that the tool pid has told.
func pidOf(t *testing.T, c sdk.Content) (pid int) {
	t.Helper()
	if _, err := fmt.Sscanf(strings.Trim(c.Text, `{}`), `"text":"%d"`, &pid); err != nil || pid == 0 {
		t.Fatalf("%s is not a process id: %v", c.Text, err)
	}
	return pid
}
