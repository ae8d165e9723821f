package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// callable is an agent that can be a tool of others; its model has its name.
func callable(name string, services ...sdk.ServiceTool) sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: name, Version: version, Model: sdk.ModelSpec{Provider: "test", Name: name, ContextWindow: 500_000}, Services: services,
		Contract: contract(name, "", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
			name+".done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
	}
}

// calling makes an agent a tool of another.
func calling(agent sdk.AgentSpec) sdk.ServiceTool {
	return sdk.ServiceTool{Contract: agent.Contract, Version: version, TimeoutMillis: 60_000}
}

func tell(agent, text string) sdk.ToolRequest {
	return sdktest.Tool(agent, map[string]string{"message": text})
}

// models asks the model that has the name of the request's.
func models(named map[string]sdk.Provider) sdk.Provider {
	return sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		return named[req.Model].Generate(ctx, req, nil)
	})
}

// family starts a parent that calls a child that calls a clerk, of which each is a tool of the one before. The clerk has a
// service, calc.add, that nobody answers but the test.
func family(t *testing.T, named map[string]sdk.Provider, change func(parent, child, clerk *sdk.AgentSpec)) *harness.Harness {
	t.Helper()
	clerk := callable("clerk", desk().Services[0])
	child := callable("child", calling(clerk))
	parent := callable("parent", calling(child))
	if change != nil {
		change(&parent, &child, &clerk)
	}
	return harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: parent}, {Spec: child}, {Spec: clerk}}, Model: models(named),
	})
}

// called is the run that the n-th open call of a run started.
func called(s core.State, n int) harness.Run {
	return sub(s.Run, s.Calls[n].ID)
}

func sub(run, call string) harness.Run {
	subject := run + "/" + call
	return harness.Run{Subject: subject, Key: wire.NewRunKey(subject)}
}

// told are the results that a run's model was given.
func told(h *harness.Harness, r harness.Run) []sdk.Content {
	var results []sdk.Content
	for _, m := range h.Messages(r) {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolResult {
				results = append(results, c)
			}
		}
	}
	return results
}

func ended(h *harness.Harness, r harness.Run, reason core.Reason) {
	h.Until(r, "done: "+string(reason), func(s core.State) bool { return s.Status == core.StatusDone && s.Reason == reason })
}

// asksDown is a family in which everybody asks the next one and repeats what they hear.
func asksDown() map[string]sdk.Provider {
	return map[string]sdk.Provider{
		"parent": sdktest.Script(sdktest.Ask(tell("child", "go")), sdktest.Say("heard")),
		"child":  sdktest.Script(sdktest.Ask(tell("clerk", "go")), sdktest.Say("heard")),
		"clerk":  sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
	}
}

func TestAgents_FailureIsAResultForTheCaller(t *testing.T) {
	t.Parallel()
	named := asksDown()
	named["clerk"] = sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "no key").WithCause(context.Canceled)
	})
	h := family(t, named, nil)
	r := h.Run("parent", hello())
	if ev := h.Done(r); ev.Type != "parent.done" {
		t.Fatalf("the parent ended with %s %s", ev.Type, ev.Data)
	}
	child := sub(r.Subject, h.Messages(r)[1].Content[0].CallID)
	results := told(h, child)
	if len(results) != 1 || !results[0].IsError || !containsCode(results[0].Text, sdk.CodeModel) ||
		!strings.Contains(results[0].Text, "no key") || strings.Contains(results[0].Text, "canceled") {
		t.Errorf("the child was told %+v", results)
	}
	if results := told(h, r); len(results) != 1 || results[0].IsError || results[0].Text != `{"response":"heard"}` {
		t.Errorf("the parent was told %+v", results)
	}
}

func TestAgents_WrongInputIsAResultForTheCaller(t *testing.T) {
	t.Parallel()
	// What the parent knows of the child's contract is older than the child.
	h := family(t, asksDown(), func(_, child, _ *sdk.AgentSpec) {
		child.Contract.Versions[version] = sdk.ContractVersion{
			Accepts: json.RawMessage(`{"type":"object","required":["message","tone"]}`), Emits: child.Contract.Versions[version].Emits,
		}
	})
	r := h.Run("parent", hello())
	h.Done(r)
	results := told(h, r)
	if len(results) != 1 || !results[0].IsError || !containsCode(results[0].Text, sdk.CodeContractViolation) || !strings.Contains(results[0].Text, "tone") {
		t.Errorf("the parent was told %+v", results)
	}
}

func TestAgents_DeadlineOfACallCancelsTheRunAndAllBelow(t *testing.T) {
	t.Parallel()
	h := family(t, asksDown(), func(parent, _, _ *sdk.AgentSpec) { parent.Services[0].TimeoutMillis = 15_000 })
	r := h.Run("parent", hello())
	child := called(h.Suspended(r, 1), 0)
	clerk := called(h.Suspended(child, 1), 0)
	h.Suspended(clerk, 1)
	h.Done(r)
	results := told(h, r)
	if len(results) != 1 || !results[0].IsError || !containsCode(results[0].Text, sdk.CodeDeadline) {
		t.Errorf("the parent was told %+v", results)
	}
	ended(h, child, core.ReasonCancelled)
	ended(h, clerk, core.ReasonCancelled)
	h.Void("calc.add")
}

func TestAgents_CancelReachesEveryGeneration(t *testing.T) {
	t.Parallel()
	h := family(t, asksDown(), nil)
	r := h.Run("parent", hello())
	child := called(h.Suspended(r, 1), 0)
	clerk := called(h.Suspended(child, 1), 0)
	h.Suspended(clerk, 1)
	h.Cancel(r, "no longer needed")
	wantProblem(t, h.Done(r), "parent", sdk.CodeCancelled)
	ended(h, child, core.ReasonCancelled)
	ended(h, clerk, core.ReasonCancelled)
	h.Void("calc.add")
	h.NoDeadLetter()
}

func TestAgents_CancelOfTheOneInTheMiddleIsAResultAbove(t *testing.T) {
	t.Parallel()
	h := family(t, asksDown(), nil)
	r := h.Run("parent", hello())
	child := called(h.Suspended(r, 1), 0)
	child.Agent = "child"
	clerk := called(h.Suspended(child, 1), 0)
	h.Suspended(clerk, 1)
	h.Cancel(child, "not this one")
	h.Done(r)
	results := told(h, r)
	if len(results) != 1 || !results[0].IsError || !containsCode(results[0].Text, sdk.CodeCancelled) {
		t.Errorf("the parent was told %+v", results)
	}
	ended(h, clerk, core.ReasonCancelled)
}

func TestAgents_DeadlineOfTheRunCancelsThoseBelow(t *testing.T) {
	t.Parallel()
	h := family(t, asksDown(), func(parent, _, _ *sdk.AgentSpec) { parent.Limits.DeadlineMillis = 15_000 })
	r := h.Run("parent", hello())
	child := called(h.Suspended(r, 1), 0)
	clerk := called(h.Suspended(child, 1), 0)
	h.Suspended(clerk, 1)
	wantProblem(t, h.Done(r), "parent", sdk.CodeDeadline)
	ended(h, child, core.ReasonCancelled)
	ended(h, clerk, core.ReasonCancelled)
}

// Two runs of one agent under one parent, each with a run of its own below: nothing of one reaches the other.
func TestAgents_ParallelCallsOfOneAgentDoNotMeet(t *testing.T) {
	t.Parallel()
	named := asksDown()
	named["parent"] = sdktest.Script(sdktest.Ask(tell("child", "one"), tell("child", "two")), sdktest.Say("heard"))
	named["child"] = sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		asked := req.Messages[0].PlainText()
		if req.Interactions.Current == 0 {
			return sdktest.Ask(tell("clerk", asked)), nil
		}
		return sdktest.Say(asked + " is done"), nil
	})
	h := family(t, named, nil)
	r := h.Run("parent", hello())
	state := h.Suspended(r, 2)
	first, second := called(state, 0), called(state, 1)
	clerks := []harness.Run{called(h.Suspended(first, 1), 0), called(h.Suspended(second, 1), 0)}
	for _, c := range clerks {
		h.Suspended(c, 1)
	}
	first.Agent = "child"
	h.Cancel(first, "only this one")
	ended(h, first, core.ReasonCancelled)
	ended(h, clerks[0], core.ReasonCancelled)
	for range clerks {
		if call := h.Call("calc.add"); call.Event.Subject == clerks[1].Subject {
			call.Answer("calc.added", sum(3))
		}
	}
	h.Done(r)
	results := told(h, r)
	if len(results) != 2 || !results[0].IsError || !containsCode(results[0].Text, sdk.CodeCancelled) ||
		results[1].IsError || results[1].Text != `{"response":"two is done"}` {
		t.Errorf("the parent was told %+v", results)
	}
}

// A call that comes again while its run works, and after, starts nothing; neither does another attempt at it.
func TestAgents_AttemptsAtOneCallAreOneRun(t *testing.T) {
	t.Parallel()
	named := asksDown()
	clerk := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three"))
	named["clerk"] = clerk
	h := family(t, named, func(_, child, _ *sdk.AgentSpec) {
		child.Services[0].TimeoutMillis = 200
		child.Services[0].Retry = &sdk.Retry{Attempts: sdk.MaxAttempts, BackoffMillis: 1} // some are left when the answer is read
	})
	r := h.Run("parent", hello())
	child := called(h.Suspended(r, 1), 0)
	state := h.Until(child, "at its second attempt", func(s core.State) bool {
		return slices.ContainsFunc(s.Calls, func(c core.Call) bool { return c.Attempt > 1 })
	})
	h.Call("calc.add").Answer("calc.added", sum(3))
	h.Done(r)
	if results := told(h, child); len(results) != 1 || results[0].Text != `{"response":"three"}` {
		t.Errorf("the child was told %+v", results)
	}
	ended(h, called(state, 0), core.ReasonCompleted)
	if n := len(clerk.Requests()); n != 2 {
		t.Errorf("the clerk's model was asked %d times, want 2", n)
	}
}

// What says that nobody waits may be handled before the call: then the run that the call begins ends at once.
func TestAgents_VoidThatOvertakesItsCall(t *testing.T) {
	t.Parallel()
	model := sdktest.Script(sdktest.Say("done in vain"))
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: callable("child")}}, Model: model})
	const caller = "another desk's run"
	address := wire.CallAddress{Domain: wire.LocalDomain, Type: "child", Agent: "desk", Run: wire.NewRunKey(caller)}
	address.Call = wire.CallID(address.Run, "init", 1, 0, "child", []byte("{}"))
	subjects := h.Conn().Subjects()
	call := wire.Event{
		ID: address.Call, Source: subjects.Reply(address), Type: "child", To: "child", Subject: caller, Agent: "desk",
		Time: time.UnixMilli(1_790_000_000_000), Data: json.RawMessage(`{"message":"hello"}`),
	}
	void := call
	void.ID, void.ParentID, void.Data = call.ID+"-void", call.ID, json.RawMessage(`{}`)

	h.Publish(subjects.Void(address), void)
	delivered(t, h, streams.AgentConsumers("child")[3], 1)
	h.Publish(subjects.Call(address), call)
	ended(h, sub(caller, address.Call), core.ReasonCancelled)
	handled(t, h, 2)
	if n := len(model.Requests()); n != 0 {
		t.Errorf("the model was asked %d times, want 0", n)
	}
	h.NoDeadLetter()
}

// handled waits until the agent child has done with the first n messages of AGENTD_OUT.
func handled(t *testing.T, h *harness.Harness, n uint64) {
	t.Helper()
	poll.Until(t, harness.Patience, fmt.Sprintf("message %d is handled", n), func() bool {
		var done uint64
		for _, info := range consumersOf(t, h.Conn(), streams.AgentConsumers("child")[3]) {
			done += info.AckFloor.Stream
		}
		return done >= n
	})
}
