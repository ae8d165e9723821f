package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// guarded is a desk with the guards that small models need, and tools.
func guarded(tools []sdk.Tool, services ...sdk.ServiceTool) sdk.Agent {
	a := desk(services...)
	a.Tools, a.Spec.Guards = tools, of(sdk.SmallModelGuards)
	return a
}

// breaking is an inline tool that fails unless its number is 0.
func breaking(name string) sdk.Tool {
	return internal(name, func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
		if string(call.Args) == `{"n":0}` {
			return call.Args, nil
		}
		return nil, errors.New("it broke")
	})
}

// looking is a tool that changes nothing, and counts how often it runs.
func looking(name string, ran *atomic.Int32) sdk.Tool {
	t := internal(name, func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
		ran.Add(1)
		return json.Marshal(map[string]json.RawMessage{"found": call.Args})
	})
	t.Labels.ReadOnly = true
	return t
}

// tooled asks for a call with a number, n times over.
func tooled(times int, calls ...sdk.ToolRequest) []sdk.ModelReply {
	var all []sdk.ModelReply
	for range times {
		all = append(all, sdktest.Ask(calls...))
	}
	return all
}

// hits are the guards that watchers were told of.
func hits(t *testing.T, events []wire.Live) []string {
	t.Helper()
	var guards []string
	for _, e := range events {
		if e.Type == wire.MilestoneGuarded {
			var hit struct{ Guard, Tool string }
			if err := json.Unmarshal(e.Data, &hit); err != nil {
				t.Fatal(err)
			}
			guards = append(guards, strings.TrimSpace(hit.Guard+" "+hit.Tool))
		}
	}
	return guards
}

const allFailed = "Every call of the last 2 rounds failed."

// allErrorHint is row L46: after two rounds in a row in which every call failed the model is told, once, what to do about that. What
// people and guards keep from being made has not failed; and a call that succeeds begins the count anew.
func allErrorHint(t *testing.T) {
	a := guarded([]sdk.Tool{breaking("break"), echo("note")})
	a.Spec.Guards.Failures = 0
	fail, mixed := sdktest.Ask(sdktest.Tool("break", n(1)), sdktest.Tool("nothing", n(1))), sdktest.Ask(sdktest.Tool("break", n(2)), sdktest.Tool("note", n(1)))
	model := sdktest.Script(fail, mixed, fail, fail, fail, fail, sdktest.Say("done"))
	h := start(t, model, a)
	r, events := watchedRun(t, h, nil)
	var told []int
	for i, request := range asked(t, model, 7) {
		if strings.HasPrefix(lastSaid(request), allFailed) {
			told = append(told, i)
		}
	}
	equal(t, "requests in which the model is told", told, []int{4, 6})
	equal(t, "hits", hits(t, events), []string{"errors", "errors"})
	for _, m := range h.Messages(r) {
		if strings.Contains(m.PlainText(), allFailed) {
			t.Errorf("the hint is kept: %+v", m)
		}
	}
	denied := guarded([]sdk.Tool{echo("note")})
	denied.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Verdict: sdk.PermissionDeny}}}
	_, events = watchedRun(t, start(t, sdktest.Script(append(tooled(4, sdktest.Tool("note", n(1))), sdktest.Say("done"))...), denied), nil)
	equal(t, "hits of a denied tool", len(hits(t, events)), 0)
}

// failingTool is row L47: a tool, or service, that fails three times in a row is withdrawn for the rest of the run, with the reason: the
// model is not offered it any more, a call of it is refused, and another worker knows that too.
func failingTool(t *testing.T) {
	var ran atomic.Int32
	tool := breaking("break")
	run := tool.Run
	tool.Run = func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
		ran.Add(1)
		return run(ctx, call)
	}
	a := guarded([]sdk.Tool{tool}, service("shop.find"))
	a.Spec.Guards.Errors = 0
	once := func(number int) sdk.ModelReply { return sdktest.Ask(sdktest.Tool("break", n(number))) }
	model := sdktest.Script(
		once(1), once(2), once(0), // a success begins the count anew
		// Two failures at once count as one.
		once(3), sdktest.Ask(sdktest.Tool("break", n(4)), sdktest.Tool("break", n(4))), once(5),
		find(1), once(0), sdktest.Say("done"))
	h := start(t, model, a)
	l := listen(t, h, t.Name())
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	l.await(t, "run.finished", 1)
	requests := asked(t, model, 9)
	for i, request := range requests {
		offered := slices.ContainsFunc(request.Tools, func(d sdk.ToolDefinition) bool { return d.Name == "break" })
		equal(t, "whether the tool is offered", offered, i < 6)
	}
	const reason = "it failed 3 times in a row, at last with tool_failed: it broke"
	equal(t, "what the model is told", lastSaid(requests[6]),
		"break is withdrawn for the rest of this run: "+reason+". Go on without it, or say what could not be done.")
	refused := results(t, requests[8].Messages, 9)[8]
	equal(t, "the call that is refused", refused.Text,
		`{"error":{"code":"unavailable","message":"break cannot be called any more in this run: `+reason+`"}}`)
	equal(t, "how often it ran", ran.Load(), int32(7))
	equal(t, "hits", hits(t, l.all()), []string{"failures break"})
	equal(t, "what the run keeps when it is done", len(h.State(r).Guarded.Failing), 0)
}

// duplicateCall is row L48, on either store: a call that changes nothing, with the arguments of an earlier one, is not made again while
// nothing has changed: it has the earlier result, and the model is told so. All others are made.
func duplicateCall(t *testing.T) {
	for name, open := range map[string]func(*broker.Conn) runner.Store{
		"jetstream": nil, "redis": openRedis(t),
	} {
		t.Run(name, func(t *testing.T) {
			var looked, polled, acted atomic.Int32
			act := internal("act", func(context.Context, sdk.ToolCall) ([]byte, error) { acted.Add(1); return []byte(`{}`), nil })
			shop := service("shop.find")
			shop.Contract.Labels.ReadOnly = true
			a := guarded([]sdk.Tool{looking("look", &looked), looking("poll", &polled), act}, shop)
			a.Spec.Guards.Changing = []string{"poll"}
			look := sdktest.Tool("look", n(1))
			model := sdktest.Script(
				sdktest.Ask(look, sdktest.Tool("poll", n(1))),
				sdktest.Ask(look, sdktest.Tool("poll", n(1)), sdktest.Tool("look", n(2))), // look(1) is a duplicate
				sdktest.Ask(sdktest.Tool("act", n(1)), look),                              // and here
				sdktest.Ask(look, sdktest.Tool("act", n(1))),                              // act has changed something
				find(1),
				sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), // shop_find(1) is a duplicate
				sdktest.Say("done"))
			h := harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, Model: model, OpenStore: open})
			l := listen(t, h, t.Name())
			r := h.Run("desk", message("hello"))
			h.Suspended(r, 1)
			h.Call("shop.find").Answer("shop.find.done", value("one"))
			h.Suspended(r, 1)
			h.Call("shop.find").Answer("shop.find.done", value("two"))
			succeeds(t, h, r, `{"response": "done"}`)
			l.await(t, "run.finished", 1)
			equal(t, "how often each ran", []int32{looked.Load(), polled.Load(), acted.Load()}, []int32{3, 2, 2})
			equal(t, "hits", hits(t, l.all()), []string{"duplicates look", "duplicates look", "duplicates shop_find"})
			requests := asked(t, model, 7)
			shown := results(t, requests[6].Messages, 12)
			var found []string
			for _, i := range []int{0, 2, 6, 9, 10, 11} {
				found = append(found, shown[i].Text)
			}
			equal(t, "results", found, []string{
				`{"found":{"n":1}}`, `{"found":{"n":1}}`, `{"found":{"n":1}}`, `{"value":"one"}`, `{"value":"one"}`, `{"value":"two"}`,
			})
			equal(t, "pairs", ids(shown), ids(uses(t, requests[6].Messages, 12)))
			const note = "You have called look with the same arguments before, and nothing has changed since, so it was not called again: the " +
				"result above is the one from before. Go on from it. Make another call, or give your answer."
			equal(t, "what the model is told", []bool{lastSaid(requests[1]) == note, lastSaid(requests[2]) == note, lastSaid(requests[4]) == note},
				[]bool{false, true, false})
			repeated := 0
			for _, e := range h.Parts(r) {
				for _, result := range e.Results {
					if result.Of != "" {
						repeated++
						equal(t, "kind", string(result.Kind), "repeated")
					}
				}
			}
			equal(t, "repeated results", repeated, 3)
		})
	}
	duplicatesAndPeople(t)
}

// openRedis opens stores on a server of the test.
func openRedis(t *testing.T) func(*broker.Conn) runner.Store {
	t.Helper()
	server := redistest.StartServer(t)
	return func(*broker.Conn) runner.Store {
		store := redisstore.New(redis.NewClient(&redis.Options{Addr: server.Addr()}), redisstore.Options{})
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return store
	}
}

func ids(contents []sdk.Content) []string {
	var all []string
	for _, c := range contents {
		all = append(all, c.CallID)
	}
	return all
}

// duplicatesAndPeople is row L48 for calls that people must allow, and for what people say: a duplicate is asked for like any other call,
// and is made then; and what was known before a person spoke is looked up again.
func duplicatesAndPeople(t *testing.T) {
	var looked atomic.Int32
	look := sdktest.Ask(sdktest.Tool("look", n(1)))
	a := guarded([]sdk.Tool{looking("look", &looked)})
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Verdict: sdk.PermissionAsk}}}
	h := start(t, sdktest.Script(look, look, sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	for range 2 {
		h.Suspended(r, 2)
		decide(request(t, h), allow)
	}
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "how often it ran after permissions", looked.Load(), int32(2))

	// Who may not make a call any more is not given the result of an earlier one either.
	looked.Store(0)
	a = guarded([]sdk.Tool{looking("look", &looked)})
	a.Hooks.Permissions = &oneCall{manager: asks(sdk.PermissionHold)}
	model := sdktest.Script(look, look, sdktest.Say("done"))
	h = start(t, model, a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	shown := results(t, last(t, model).Messages, 2)
	equal(t, "what the second call comes to", []any{shown[0].Text, problem(t, shown[1]).Code, looked.Load()},
		[]any{`{"found":{"n":1}}`, sdk.CodePermissionDenied, int32(1)})

	looked.Store(0)
	a = guarded([]sdk.Tool{looking("look", &looked)})
	a.Spec.Text = sdk.TextConverse
	h = start(t, sdktest.Script(look, sdktest.Say("found"), look, look, sdktest.Say("found")), a)
	r = h.Run("desk", message("hello"))
	h.Call(sdk.TypeConversationTurn).Answer("agentd.conversation.answered", map[string]any{"message": "look again", "end": false})
	h.Call(sdk.TypeConversationTurn).Answer("agentd.conversation.answered", map[string]any{"message": "thanks", "end": true})
	h.Done(r)
	equal(t, "how often it ran after words", looked.Load(), int32(2))
}

// oneCall is a manager that allows one call.
type oneCall struct {
	*manager
	calls atomic.Int32
}

func (o *oneCall) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	if o.calls.Add(1) > 1 {
		return sdk.PermissionRuling{Verdict: sdk.PermissionDeny}, nil
	}
	return o.manager.Check(ctx, c)
}

// duplicateStop is row L49: after two rounds in a row of nothing but duplicates the model is asked for its final answer, without tools. One
// such round between others is passed over.
func duplicateStop(t *testing.T) {
	var looked atomic.Int32
	one, two := sdktest.Tool("look", n(1)), sdktest.Tool("look", n(2))
	last := sdktest.Ask(one)
	last.Text = "found"
	model := sdktest.Script(
		sdktest.Ask(one), sdktest.Ask(one), // a duplicate
		sdktest.Ask(one, two),          // one of them is new
		sdktest.Ask(two, one), find(1), // duplicates, and a call in between
		sdktest.Ask(one), sdktest.Ask(one), sdktest.Ask(one), last)
	h := start(t, model, guarded([]sdk.Tool{looking("look", &looked)}, service("shop.find")))
	l := listen(t, h, t.Name())
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "found"}`)
	l.await(t, "run.finished", 1)
	requests := asked(t, model, 9)
	for i, request := range requests {
		equal(t, "tools", len(request.Tools), []int{2, 2, 2, 2, 2, 2, 2, 2, 0}[i])
	}
	if text := lastSaid(requests[8]); !strings.HasPrefix(text, "You make the same calls again and again. Give your final answer now") {
		t.Errorf("the model is told %s", text)
	}
	equal(t, "how often it ran", looked.Load(), int32(3))
	told := hits(t, l.all())
	equal(t, "hits", told[len(told)-3:], []string{"duplicates look", "duplicates look", "conclude"})
}
