package seeds_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// decisionPolicy is row T50: a call that is allowed is made at once, or when every request of its round is decided. What needs
// no permission is made at once in both, and a restart in between changes nothing.
func decisionPolicy(t *testing.T) {
	for _, policy := range []sdk.DecisionPolicy{"", sdk.DecisionsImmediate} {
		h, r, ran := threeHeld(t, policy)
		asked := requests(t, h, 3)
		decide(asked["1"], allow)
		h.Call("shop.find").Answer("shop.find.done", value("found"))
		decide(asked["2"], allow)
		<-ran
		decide(asked["3"], sdk.PermissionDecision{Decision: sdk.DecisionDeny})
		succeeds(t, h, r, `{"response": "done"}`)
	}
	h, r, ran := threeHeld(t, sdk.DecisionsBatch)
	asked := requests(t, h, 3)
	decide(asked["1"], allow)
	decide(asked["2"], allow)
	h.Until(r, "two are decided", func(s core.State) bool { return s.Status == core.StatusWaiting && decidedOf(s) == 2 })
	h.Restart()
	h.NoCall("shop.find")
	equal(t, "tools that ran before all was decided", len(ran), 0)
	decide(asked["3"], sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	<-ran
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "tools that ran again", len(ran), 0)
}

// threeHeld is a run whose round has a service call (1), an inline call (2) and a service call (3) that are held, and one
// that is not, which has its answer. The channel has a value for each time that the inline tool ran.
func threeHeld(t *testing.T, policy sdk.DecisionPolicy) (*harness.Harness, harness.Run, <-chan struct{}) {
	a := gated(asks(sdk.PermissionHold, "shop_find", "note"), service("shop.find"), service("shop.buy"))
	a.Spec.Decisions = policy
	ran := make(chan struct{}, 2)
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		ran <- struct{}{}
		return []byte(`{}`), nil
	})}
	h := start(t, sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("note", n(2)), sdktest.Tool("shop_find", n(3)), sdktest.Tool("shop_buy", n(4))),
		sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	return h, r, ran
}

// requests are the next permission requests, by the argument "n" of their calls.
func requests(t *testing.T, h *harness.Harness, count int) map[string]*harness.Call {
	all := map[string]*harness.Call{}
	for range count {
		c := request(t, h)
		args, _ := json.Marshal(c.Data()["args"])
		var of struct {
			N json.Number `json:"n"`
		}
		if err := json.Unmarshal(args, &of); err != nil {
			t.Fatalf("arguments %s: %v", args, err)
		}
		all[of.N.String()] = c
	}
	return all
}

// decidedOf counts the closed permission requests of a run's open round.
func decidedOf(s core.State) int {
	n := 0
	for _, c := range s.Calls {
		if c.Kind == core.CallPermission && c.Closed() {
			n++
		}
	}
	return n
}

// oneResume is row T30: a decision does the same to its call wherever it comes: while the run is with its model and has not asked yet,
// while a tool of the round works, and while the run waits and no worker is there.
func oneResume(t *testing.T) {
	begin := func() (h *harness.Harness, r harness.Run, reply, release chan struct{}, paid func() []string) {
		var p phases
		reply, release = make(chan struct{}), make(chan struct{})
		a := gated(asks(sdk.PermissionHold, "pay"))
		a.Tools = []sdk.Tool{
			internal("pay", func(_ context.Context, c sdk.ToolCall) ([]byte, error) {
				p.note("%s", c.Args)
				return []byte(`{}`), nil
			}),
			internal("slow", func(context.Context, sdk.ToolCall) ([]byte, error) {
				<-release
				return []byte(`{}`), nil
			}),
		}
		script := sdktest.Script(sdktest.Ask(sdktest.Tool("pay", n(1)), sdktest.Tool("slow", n(2))), sdktest.Say("done"))
		h = harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, EarlyDecisions: time.Hour, Model: sdktest.ModelFunc(
			func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
				<-reply
				return script.Generate(ctx, req, nil)
			})})
		return h, h.Run("desk", message("hello")), reply, release, p.all
	}
	ends := func(h *harness.Harness, r harness.Run, paid func() []string, entries ...string) {
		t.Helper()
		succeeds(t, h, r, `{"response": "done"}`)
		equal(t, "payments", paid(), []string{`{"n":1}`})
		equal(t, "entries", kinds(h.Parts(r)), entries)
		h.NoDeadLetter()
	}
	decided := func(s core.State) bool { return len(s.Calls) == 3 && s.Calls[2].Closed() }

	h, r, reply, release, paid := begin()
	close(reply)
	close(release)
	asked := request(t, h)
	h.Until(r, "waiting", func(s core.State) bool { return s.Status == core.StatusWaiting })
	h.StopWorkers()
	decide(asked, allow)
	h.Restart()
	ends(h, r, paid, "started", "replied", "returned", "answered", "returned", "replied")

	h, r, reply, release, paid = begin()
	close(reply)
	decide(request(t, h), allow)
	h.Until(r, "decided", decided)
	close(release)
	ends(h, r, paid, "started", "replied", "answered", "returned", "returned", "replied")

	h, r, reply, release, paid = begin()
	h.Until(r, "with its model", func(s core.State) bool { return s.Status == core.StatusRunning })
	good := allow
	good.ArgsHash, _ = asked.Data()["args_sha256"].(string)
	h.PublishAgain(asked, asked.Response(sdk.TypePermissionDecided, good))
	givenBack(t, h)
	close(reply)
	h.Until(r, "decided", decided)
	close(release)
	ends(h, r, paid, "started", "replied", "answered", "returned", "returned", "replied")
}

// unmatchedDecisions is row T49: a decision that matches nothing is kept for as long as workers are told to and counts when its request
// comes; else it is a dead letter then, and at once by default. It is never fatal.
func unmatchedDecisions(t *testing.T) {
	const kept = 700 * time.Millisecond
	asks := gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find"))
	early := func(keep time.Duration) (h *harness.Harness, r harness.Run, reply func()) {
		replies := make(chan struct{})
		script := sdktest.Script(find(1), sdktest.Say("done"))
		h = harness.Start(t, harness.Options{Agents: []sdk.Agent{asks}, EarlyDecisions: keep, Model: sdktest.ModelFunc(
			func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
				<-replies
				return script.Generate(ctx, req, nil)
			})})
		r = h.Run("desk", message("hello"))
		h.Until(r, "with its model", func(s core.State) bool { return s.Status == core.StatusRunning })
		return h, r, sync.OnceFunc(func() { close(replies) })
	}

	// What the run asks is known from the same run on another server.
	known, r, reply := early(0)
	reply()
	asked := request(t, known)
	decide(asked, allow)
	known.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, known, r, `{"response": "done"}`)
	good := allow
	good.ArgsHash, _ = asked.Data()["args_sha256"].(string)
	decision := asked.Response(sdk.TypePermissionDecided, good)

	h, r, reply := early(time.Hour)
	t.Cleanup(reply)
	h.PublishAgain(asked, decision)
	givenBack(t, h)
	reply()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoDeadLetter()

	for keep, least := range map[time.Duration]time.Duration{kept: kept, 0: 0} {
		h, r, reply = early(keep)
		sent := time.Now()
		h.PublishAgain(asked, decision)
		equal(t, "reason", h.DeadLetter().Reason, "unknown_run")
		equal(t, "kept", time.Since(sent) >= least, true)
		reply()
		request(t, h)
		again := decision
		again.ID = "again"
		h.PublishAgain(asked, again)
		h.Call("shop.find").Answer("shop.find.done", value("it"))
		succeeds(t, h, r, `{"response": "done"}`)
	}
}

// givenBack waits until a message for the desk was delivered again.
func givenBack(t *testing.T, h *harness.Harness) {
	t.Helper()
	await(t, "a message is delivered again", func() bool {
		c, err := h.Conn().JetStream().Consumer(t.Context(), "AGENTD_IN", "agent_desk")
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Delivered.Consumer > c.CachedInfo().Delivered.Stream
	})
}

// drained is row T22: those decisions that match nothing yet are kept.
func drained(t *testing.T) {
	t.Run("matched", func(t *testing.T) { show(t, decisionsDrained) })
	t.Run("kept", func(t *testing.T) { show(t, unmatchedDecisions) })
}

// decisionsDrained is rows T22 and T48: a decision counts for the request whose subject and hash it has, once; others
// are recorded or dead-lettered, and end nothing.
func decisionsDrained(t *testing.T) {
	m := asks(sdk.PermissionHold, "shop_find")
	m.terms.Scopes = []sdk.GrantScope{sdk.ScopeCall}
	h := start(t, sdktest.Script(find(1), find(2), sdktest.Say("done")), gated(m, service("shop.find")))
	r := h.Run("desk", message("hello"))
	asked := request(t, h)
	good := allow
	good.ArgsHash, _ = asked.Data()["args_sha256"].(string)
	for i, stray := range []sdk.PermissionDecision{
		{Decision: sdk.DecisionAllow, ArgsHash: sdk.ArgsHash([]byte(`{"n":9}`))},
		{Decision: sdk.DecisionAllow, ArgsHash: good.ArgsHash, Scope: sdk.ScopeTool}, // which was not offered
	} {
		h.PublishAgain(asked, asked.Response(sdk.TypePermissionDecided, stray))
		h.Until(r, "the decision is recorded", func(s core.State) bool { return len(s.Calls) == 2 && s.Calls[1].Permission.Refusals == i+1 })
	}
	h.NoCall("shop.find")
	h.PublishAgain(asked, asked.Response(sdk.TypePermissionDecided, good))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	next := request(t, h)
	late := asked.Response(sdk.TypePermissionDecided, good)
	late.ID = "again"
	h.PublishAgain(asked, late)
	equal(t, "dead letter", h.DeadLetter().Reason, string(sdk.CodeDecisionRefused))
	h.NoCall("shop.find") // the second suspension is not resumed by the first one's decision
	decide(next, allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	var counted []bool
	for _, e := range h.Parts(r) {
		for _, d := range e.Decisions {
			counted = append(counted, d.Refused == "")
		}
	}
	equal(t, "decisions in the journal that count", counted, []bool{false, false, true, true})
}

// durableDecision is rows T23 and T25: the decision is in the journal before the held call is made, with the arguments that it gives, and
// survives a restart.
func durableDecision(t *testing.T) {
	var mu sync.Mutex
	var paid []string
	a := gated(asks(sdk.PermissionHold, "pay"))
	a.Tools = []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "pay"}, AtMostOnce: true,
		Run: func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			paid = append(paid, string(c.Args))
			return json.RawMessage(`{}`), nil
		},
	}}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("pay", n(1))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	asked := request(t, h)
	h.StopWorkers()
	decide(asked, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(`{"n":4}`)})
	h.Restart()
	succeeds(t, h, r, `{"response": "done"}`)
	mu.Lock()
	defer mu.Unlock()
	equal(t, "runs of the tool", paid, []string{`{"n":4}`})
	decided := 0
	for _, e := range h.Parts(r) {
		decided += len(e.Decisions)
		if len(e.Results) > 0 && e.Kind == "returned" {
			equal(t, "decisions before the tool returned", decided, 1)
		}
	}
}

// cancelAction is row T24: a denial closes the call with the person's reason.
func cancelAction(t *testing.T) {
	model := sdktest.Script(find(1), sdktest.Say("done"))
	h := start(t, model, gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find")))
	r := h.Run("desk", message("hello"))
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "not today"})
	succeeds(t, h, r, `{"response": "done"}`)
	denied := problem(t, results(t, last(t, model).Messages, 1)[0])
	equal(t, "code", denied.Code, sdk.CodePermissionDenied)
	equal(t, "reason", strings.Contains(denied.ErrorMessage, "not today"), true)
	h.NoCall("shop.find")
}
