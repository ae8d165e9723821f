package seeds_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// delegatedSystem is the system prompt of agents that others call.
const delegatedSystem = `{{with .DelegatedBy}}called by {{.Agent}} in {{.Run}} with {{.Call}}{{else}}called by nobody{{end}}`

// callable is an agent that others call as a tool.
func callable(name string, services ...sdk.ServiceTool) sdk.Agent {
	a := agent(name, contract("test."+name, delegatedInput, textAnswer), services...)
	a.Spec.System = delegatedSystem
	return a
}

// calling makes an agent a tool of another.
func calling(a sdk.Agent) sdk.ServiceTool {
	return sdk.ServiceTool{Contract: a.Spec.Contract, Version: version}
}

// contextRecord is row B7.
func contextRecord(t *testing.T) {
	child := callable("child", service("shop.find"))
	parent := desk(calling(child))
	parent.Spec.System = delegatedSystem
	scripts := map[string]*sdktest.Model{
		"desk": sdktest.Script(sdktest.Ask(sdktest.Tool("test_child", message("look"))), sdktest.Say("told")),
		"child": sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Ask(sdktest.Tool("shop_find", n(2))),
			sdktest.Say("found")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	by := &sdk.Delegation{Agent: "desk", Run: r.Subject, Call: h.Suspended(r, 1).Calls[0].ID}
	sub := harness.Run{Subject: r.Subject + "/" + by.Call, Key: wire.NewRunKey(r.Subject + "/" + by.Call)}

	history := 1 // the first message
	for hop := range 2 {
		h.Suspended(sub, 1)
		h.Restart()
		state := h.Suspended(sub, 1)
		history++ // the call
		equal(t, "subject and delegation", []any{state.Run, state.Init.DelegatedBy}, []any{sub.Subject, by})
		equal(t, "interactions and messages", []int{state.Turns, len(state.History)}, []int{hop + 1, history})
		call := h.Call("shop.find")
		equal(t, "subject of the call", call.Event.Subject, sub.Subject)
		call.Answer("shop.find.done", value("it"))
		await(t, "the child's model is asked again", func() bool { return len(scripts["child"].Requests()) == hop+2 })
		history++ // the result
	}
	succeeds(t, h, r, `{"response": "told"}`)
	for i, request := range asked(t, scripts["child"], 3) {
		equal(t, "system prompt", request.System, "called by desk in "+r.Subject+" with "+by.Call)
		equal(t, "interactions", request.Interactions.Current, i)
		equal(t, "first message", request.Messages[0].PlainText(), "look")
	}
	end := h.State(sub)
	equal(t, "delegation at the end", end.Init.DelegatedBy, by)
	equal(t, "interactions at the end", end.Turns, 3)
}

// delegation is row B8: who is called knows by whom, for which run and with which call, and the answer comes back; to any depth, of which
// three levels are shown.
func delegation(t *testing.T) {
	helper := callable("helper")
	clerk := callable("clerk", calling(helper))
	child := callable("child", calling(clerk))
	parent := desk(calling(child))
	parent.Spec.System = delegatedSystem
	scripts := map[string]*sdktest.Model{
		"desk": sdktest.Script(
			sdktest.Ask(sdktest.Tool("test_child", message("one")), sdktest.Tool("test_child", message("two"))), sdktest.Say("both")),
		"child":  sdktest.Script(sdktest.Ask(sdktest.Tool("test_clerk", message("please"))), sdktest.Say("from a child")),
		"clerk":  sdktest.Script(sdktest.Ask(sdktest.Tool("test_helper", message("quick"))), sdktest.Say("from a clerk")),
		"helper": sdktest.Script(sdktest.Say("from a helper")),
	}
	h := start(t, byModel(scripts), parent, child, clerk, helper)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "both"}`)

	equal(t, "the first agent's system prompt", last(t, scripts["desk"]).System, "called by nobody")
	calls := uses(t, last(t, scripts["desk"]).Messages, 2)
	wantClerk, wantHelper := map[string]bool{}, map[string]bool{}
	for i, c := range calls {
		sub := harness.Run{Key: wire.NewRunKey(r.Subject + "/" + c.CallID)}
		state := h.State(sub)
		equal(t, "delegation of the child", state.Init.DelegatedBy, &sdk.Delegation{Agent: "desk", Run: r.Subject, Call: c.CallID})
		equal(t, "the child's message", state.Messages()[0].PlainText(), []string{"one", "two"}[i])
		grand := uses(t, state.Messages(), 1)[0].CallID
		wantClerk["called by child in "+state.Run+" with "+grand] = true
		end := h.State(harness.Run{Key: wire.NewRunKey(state.Run + "/" + grand)})
		equal(t, "delegation of the clerk", end.Init.DelegatedBy, &sdk.Delegation{Agent: "child", Run: state.Run, Call: grand})
		equalJSON(t, "the clerk's answer to the child", []byte(results(t, state.Messages(), 1)[0].Text), `{"response": "from a clerk"}`)
		wantHelper["called by clerk in "+end.Run+" with "+uses(t, end.Messages(), 1)[0].CallID] = true
		equalJSON(t, "the helper's answer to the clerk", []byte(results(t, end.Messages(), 1)[0].Text), `{"response": "from a helper"}`)
	}
	callers := func(requests []sdk.ModelRequest) map[string]bool {
		all := map[string]bool{}
		for _, request := range requests {
			all[request.System] = true
			if text := request.Messages[0].PlainText(); strings.Contains(text, sdk.ParentSubjectField) {
				t.Errorf("a delegated model is shown %s", text)
			}
		}
		return all
	}
	equal(t, "who the clerks know to have called them", callers(asked(t, scripts["clerk"], 4)), wantClerk)
	equal(t, "who the helpers know to have called them", callers(asked(t, scripts["helper"], 2)), wantHelper)
	for _, c := range results(t, last(t, scripts["desk"]).Messages, 2) {
		equalJSON(t, "a child's answer", []byte(c.Text), `{"response": "from a child"}`)
	}
}

// lineage is row T66: agents that an agent calls, and their context builders, know whose run they work for, and through which calls, to
// any depth; it calls no more than its limit says; and one that is handed the task completes the run with its answer.
func lineage(t *testing.T) {
	var mu sync.Mutex
	by := map[string]*sdk.Delegation{}
	knowing := func(a sdk.Agent) sdk.Agent {
		a.Hooks.Context = func(_ context.Context, in sdk.ContextInput) (sdk.Context, error) {
			mu.Lock()
			defer mu.Unlock()
			by[a.Spec.Name] = in.DelegatedBy
			return sdk.Context{}, nil
		}
		return a
	}
	clerk, expert := knowing(callable("clerk")), callable("expert")
	child := knowing(callable("child", calling(clerk)))
	handing := func(a sdk.Agent) sdk.ServiceTool {
		tool := calling(a)
		tool.Agent = true
		return tool
	}
	parent := knowing(desk(handing(child), handing(expert)))
	parent.Spec.StopOn, parent.Spec.Limits.Children = []string{"test_expert"}, 2
	scripts := map[string]*sdktest.Model{
		"desk": sdktest.Script(
			sdktest.Ask(sdktest.Tool("test_child", message("one"))),
			sdktest.Ask(sdktest.Tool("test_expert", message("take over")), sdktest.Tool("test_child", message("two")))),
		"child":  sdktest.Script(sdktest.Ask(sdktest.Tool("test_clerk", message("please"))), sdktest.Say("from a child")),
		"clerk":  sdktest.Script(sdktest.Say("from a clerk")),
		"expert": sdktest.Script(sdktest.Say("from an expert")),
	}
	h := start(t, byModel(scripts), parent, child, clerk, expert)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "from an expert"}`)
	equal(t, "reason", reason(h, r), "stopped:tool")
	equal(t, "calls of the first agent's model", len(scripts["desk"].Requests()), 2)

	calls := uses(t, h.Messages(r), 3)
	first := h.State(harness.Run{Key: wire.NewRunKey(r.Subject + "/" + calls[0].CallID)})
	equal(t, "who called the child", first.Init.DelegatedBy, &sdk.Delegation{Agent: "desk", Run: r.Subject, Call: calls[0].CallID})
	grand := uses(t, first.Messages(), 1)[0].CallID
	second := h.State(harness.Run{Key: wire.NewRunKey(first.Run + "/" + grand)})
	equal(t, "who called the clerk", second.Init.DelegatedBy, &sdk.Delegation{Agent: "child", Run: first.Run, Call: grand})
	mu.Lock()
	defer mu.Unlock()
	equal(t, "who called, as context builders know it", by, map[string]*sdk.Delegation{
		"desk": nil, "child": first.Init.DelegatedBy, "clerk": second.Init.DelegatedBy,
	})
	equal(t, "whose run the clerk works for", strings.HasPrefix(second.Run, r.Subject+"/"+calls[0].CallID+"/"), true)

	told := results(t, h.Messages(r), 3)
	equalJSON(t, "the expert's answer", []byte(told[1].Text), `{"response": "from an expert"}`)
	equal(t, "an agent too many", problem(t, told[2]).Code, sdk.CodeQuotaExhausted)
	equal(t, "agents that were called", h.State(r).Children, 2)
}
