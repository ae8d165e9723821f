package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// heardRun is a run of desk that is listened to from before its start.
func heardRun(t *testing.T, h *harness.Harness) (harness.Run, *listener) {
	t.Helper()
	init := h.Init("desk", message("hello"))
	l := listen(t, h, init.Subject)
	return h.Send("desk", init), l
}

// slow is an inline tool that says which call it has, and returns when it is let go.
func slow(name string) (tool sdk.Tool, began chan string, release chan struct{}) {
	began, release = make(chan string, 8), make(chan struct{})
	return internal(name, func(ctx context.Context, c sdk.ToolCall) ([]byte, error) {
		began <- c.ID
		select {
		case <-release:
			return c.Args, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}), began, release
}

// callEvent is row F16: before a tool is run or a service called, it is told which call, of which tool, with which arguments.
func callEvent(t *testing.T) {
	tool, began, release := slow("note")
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{tool}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), find(2), sdktest.Say("done")), a)
	r, l := heardRun(t, h)
	note := <-began
	l.await(t, "call.opened", 1)
	l.await(t, "tool.started", 1)
	equal(t, "told before the tool has returned", l.heard("call.opened", "tool.started", "call.result"), []string{
		`call.opened {"args":{"n":1},"call":"` + note + `","tool":"note"}`,
		`tool.started {"call":"` + note + `","tool":"note"}`,
	})
	close(release)
	call := h.Call("shop.find")
	l.await(t, "call.opened", 2)
	equal(t, "told before the service has answered", l.heard("call.opened")[1:],
		[]string{`call.opened {"args":{"n":2},"call":"` + call.Event.ID + `","tool":"shop_find"}`})
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// resultEvent is row F17: what a tool or a service returned is told when it is there, and not before.
func resultEvent(t *testing.T) {
	tool, began, release := slow("note")
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{tool}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), find(2), sdktest.Say("done")), a)
	r, l := heardRun(t, h)
	note := <-began
	l.await(t, "tool.started", 1)
	equal(t, "told before the tool has returned", len(l.heard("call.result")), 0)
	close(release)
	call := h.Call("shop.find")
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	l.await(t, "run.finished", 1)
	equal(t, "results", l.heard("call.result"), []string{
		`call.result {"call":"` + note + `","data":{"n":1},"error":false,"kind":"inline","tool":"note"}`,
		`call.result {"call":"` + call.Event.ID + `","data":{"value":"it"},"error":false,"event":"answer-` + call.Event.ID + `","kind":"answer","tool":"shop_find"}`,
	})
}

// failureEvent is row F18: a failure is told as one, with what went wrong, and the model goes on.
func failureEvent(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{failing("broken")}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("broken", n(1))), find(2), sdktest.Say("done"))
	h := start(t, model, a)
	r, l := heardRun(t, h)
	call := h.Call("shop.find")
	call.Fail(wire.Problem{ErrorName: "no", ErrorMessage: "not today", Code: "tool_failed"})
	succeeds(t, h, r, `{"response": "done"}`)
	l.await(t, "run.finished", 1)
	broken := uses(t, h.Messages(r), 2)[0].CallID
	equal(t, "results", l.heard("call.result"), []string{
		`call.result {"call":"` + broken + `","data":{"error":{"code":"tool_failed","message":"it does not work"}},"error":true,"kind":"inline","tool":"broken"}`,
		`call.result {"call":"` + call.Event.ID + `","data":{"error":{"code":"tool_failed","message":"not today"}},"error":true,"event":"answer-` + call.Event.ID + `","kind":"answer","tool":"shop_find"}`,
	})
	asked(t, model, 3)
}

// noToolCallEvent is row F25: a reply without a call is told, whether it is prose or a call that cannot be read.
func noToolCallEvent(t *testing.T) {
	a := desk()
	a.Spec.Builtin = []string{"task_completion"}
	a.Spec.NoToolCall = &sdk.NoToolCall{Policy: sdk.NoToolCallRemind, Reminders: 3, Text: "Use a tool."}
	model := sdktest.Script(
		sdktest.Say("Let me think."), sdktest.Say("<thinking>Well.</thinking>"), sdktest.Say("<tool>{oops}</tool>"),
		writing("local", "task_completion", `{"result":"done"}`))
	h := start(t, inText(t, model), a)
	r, l := heardRun(t, h)
	succeeds(t, h, r, `{"response": "done"}`)
	l.await(t, "run.finished", 1)
	equal(t, "told", l.heard("model.no_tool_call"), []string{
		`model.no_tool_call {"reminders":1}`, `model.no_tool_call {"reminders":2}`,
		`model.no_tool_call {"class":"parse_error","reminders":3}`,
	})
}

// userCancels is row F27: a run that is cancelled stops its tools, tells services that nobody waits, has a result for every call, which
// says so where nobody knows what a tool has done, and says why it ended; the model is not asked again.
func userCancels(t *testing.T) {
	stopped := make(chan error, 1)
	tool, began, _ := slow("note")
	works := tool.Run
	tool.Run = func(ctx context.Context, c sdk.ToolCall) (json.RawMessage, error) {
		data, err := works(ctx, c)
		stopped <- err
		return data, err
	}
	pay, paying, _ := slow("pay")
	pay.AtMostOnce = true
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{tool, pay}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("pay", n(3))), sdktest.Say("never"))
	h := start(t, model, a)
	r, l := heardRun(t, h)
	h.Call("shop.find")
	<-began
	<-paying
	h.Cancel(r, "enough")
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("the tool was let finish: %v", err)
	}
	p := fails(t, h, r, deskType)
	equal(t, "end", []any{string(p.Code), p.ErrorMessage}, []any{"cancelled", "the run was cancelled: enough"})
	h.Void("shop.find")
	for i, code := range []string{"cancelled", "cancelled", "outcome_unknown"} {
		c := results(t, h.Messages(r), 3)[i]
		equal(t, "code of "+c.Tool, string(problem(t, c).Code), code)
	}
	l.await(t, "run.finished", 1)
	ordered(t, l.heard("run.finished")[0], `"code":"asked"`, `"reason":"cancelled"`, `"type":"sys.test.desk.error"`)
	all := l.kept()
	equal(t, "the last that is told", all[len(all)-1], "run.finished")
	asked(t, model, 1)
}

// criticalErrors is row F28: what nobody can mend ends the run at once with an error event, whether the provider refused the
// request or agentd broke down over it.
func criticalErrors(t *testing.T) {
	for name, way := range map[string]struct {
		code   string
		failed error
		output func(context.Context, sdk.OutputInput) (json.RawMessage, error)
	}{
		"provider": {code: "model_failed", failed: sdk.Errorf("model_failed", "no such model")},
		"internal": {code: "internal", output: func(context.Context, sdk.OutputInput) (json.RawMessage, error) { panic("lost its mind") }},
	} {
		t.Run(name, func(t *testing.T) {
			times := 0
			model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
				times++
				return sdktest.Say("done"), way.failed
			})
			a := desk()
			a.Hooks.Output = way.output
			a.Spec.Limits.DeadlineMillis = 20_000 // for a run that is not ended by its error
			h := start(t, model, a)
			r, l := heardRun(t, h)
			equal(t, "code", string(fails(t, h, r, deskType).Code), way.code)
			equal(t, "reason", reason(h, r), "error:"+way.code)
			equal(t, "model calls", times, 1)
			l.await(t, "run.finished", 1)
			ordered(t, l.heard("run.finished")[0], `"code":"`+way.code+`"`, `"reason":"error"`)
		})
	}
}

// snapshotOfDecision is row T28: a decision that changes the run is told; what changes nothing is not.
func snapshotOfDecision(t *testing.T) {
	h := start(t, sdktest.Script(find(1), sdktest.Say("done")), gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find")))
	r, l := heardRun(t, h)
	c := request(t, h)
	l.await(t, "run.suspended", 1)
	before := []string{
		"run.started", "checkpoint", "call.opened", "permission.requested", "run.usage", "checkpoint", "run.suspended",
	}
	equal(t, "told until people are asked", l.kept(), before)

	stray := c.Response("agentd.permission.decided", allow)
	stray.ID, stray.ParentID = "stray", "c9-9-somethingelse"
	h.PublishAs("bob", c, stray)
	h.DeadLetter()
	good := c.Response("agentd.permission.decided", sdk.PermissionDecision{
		Decision: "allow", ArgsHash: fmt.Sprint(c.Data()["args_sha256"]), Reason: "go on",
	})
	h.PublishAs("ann", c, good)
	call := h.Call("shop.find")
	again := good
	again.ID = "again" // the request is decided by now
	h.PublishAs("bob", c, again)
	h.DeadLetter()
	l.await(t, "run.suspended", 2)
	equal(t, "told of three decisions, of which one counts", l.kept(), slices.Concat(before, []string{"permission.decided", "checkpoint", "run.suspended"}))
	ordered(t, l.heard("permission.decided")[0], `"decision":"allow"`, `"reason":"go on"`, `"who":"ann"`)
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// approvalEvents is row F39: who is asked sees exactly what would be done, for five minutes if so configured; and each of the four
// things that can become of it is told.
func approvalEvents(t *testing.T) {
	m := asks(sdk.PermissionHold, "shop_find")
	m.terms.Stages = []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: 300_000}}
	h := start(t, sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done")),
		gated(m, service("shop.find")))
	r, l := heardRun(t, h)
	asked := requests(t, h, 2)
	for number, c := range asked {
		equalJSON(t, "preview", mustJSON(t, c.Data()["args"]), `{"n": `+number+`}`)
		expires, err := time.Parse(time.RFC3339, fmt.Sprint(c.Event.Extensions["expirytime"]))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "time to decide", expires.Sub(c.Event.Time), 5*time.Minute)
	}
	decide(asked["1"], allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	decide(asked["2"], sdk.PermissionDecision{Decision: "deny", Reason: "too dear"})
	succeeds(t, h, r, `{"response": "done"}`)
	l.await(t, "run.finished", 1)
	equal(t, "requests that are told", len(l.heard("permission.requested")), 2)
	ordered(t, strings.Join(l.heard("permission.requested"), "\n"), `"args":{"n":1}`, `"args":{"n":2}`)
	ordered(t, strings.Join(l.heard("permission.decided"), "\n"), `"decision":"allow"`, `"decision":"deny"`, `"reason":"too dear"`)

	m = asks(sdk.PermissionHold, "shop_find")
	m.terms.Stages = []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: 50}}
	h = start(t, sdktest.Script(find(1), sdktest.Say("done")), gated(m, service("shop.find")))
	r, l = heardRun(t, h)
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.find")
	l.await(t, "run.finished", 1)
	ordered(t, strings.Join(l.heard("permission.requested", "permission.decided"), "\n"),
		"permission.requested", `"args":{"n":1}`, "permission.decided", `"decision":"deny"`, `"reason":"nobody decided in time"`)
}
