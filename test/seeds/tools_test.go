package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/internal/approval"
	"agentd/internal/catalog"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// toolUseMessage is row A27.
func toolUseMessage(t *testing.T) {
	low := service("shop.find")
	low.Priority = -1
	a := desk(service("shop.book"), low)
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_book", n(2)), sdktest.Tool("shop_find", n(3))),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	state := h.Suspended(r, 1)
	call := h.Call("shop.book")
	used := state.Messages()[1]
	if used.Role != sdk.RoleAssistant || used.Seen != 1 {
		t.Errorf("tool use is a message of %s with seen count %d", used.Role, used.Seen)
	}
	if len(used.Content) != 2 {
		t.Fatalf("tool use %v, want one content for each executed call", used.Content)
	}
	equal(t, "tool use of note", used.Content[0], sdk.Content{
		Kind: sdk.ContentToolUse, CallID: state.Calls[0].ID, Tool: "note", Args: []byte(`{"n":1}`),
	})
	equal(t, "tool use of shop_book", used.Content[1], sdk.Content{
		Kind: sdk.ContentToolUse, CallID: call.Event.ID, Tool: "shop_book", Args: []byte(`{"n":2}`),
	})
	call.Answer("shop.book.done", value("booked"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "tool use that the model sees", last(t, model).Messages[1], used)
}

// unknownTool is row A28.
func unknownTool(t *testing.T) {
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("no_such_tool", n(1))), sdktest.Say("sorry"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "sorry"}`)
	p := problem(t, results(t, last(t, model).Messages, 1)[0])
	equal(t, "code", p.Code, sdk.CodeUnknownTool)
	if !strings.Contains(p.ErrorMessage, "no_such_tool") {
		t.Errorf("the message %q does not name the tool", p.ErrorMessage)
	}
	if waits(h.Parts(r)) {
		t.Error("an unknown tool suspended the run")
	}
}

// files is a toolset, as an MCP client is.
type files struct {
	listed, closed atomic.Int32
	calls          chan sdk.ToolCall
}

func (*files) Name() string { return "files" }

func (f *files) Tools(context.Context) ([]sdk.Tool, error) {
	f.listed.Add(1)
	return []sdk.Tool{
		internal("read", func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
			f.calls <- call
			return []byte(`{"text": "hi"}`), nil
		}),
		internal("broken", func(context.Context, sdk.ToolCall) ([]byte, error) { return nil, errors.New("no such file") }),
	}, nil
}

func (f *files) Close() error {
	f.closed.Add(1)
	return nil
}

// toolsetTool is row A30.
func toolsetTool(t *testing.T) {
	set := &files{calls: make(chan sdk.ToolCall, 8)}
	a := desk(service("shop.find"))
	a.Toolsets = []sdk.Toolset{set}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("files_read", n(1)), sdktest.Tool("files_broken", n(2))),
		sdktest.Ask(sdktest.Tool("shop_find", n(3))), sdktest.Ask(sdktest.Tool("files_read", n(4))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	requests := asked(t, model, 2)
	equal(t, "tools, those of the toolset last", toolNames(requests[0]), []string{"shop_find", "files_read", "files_broken"})
	call := taken(t, set.calls)
	used := uses(t, requests[1].Messages, 2)
	equal(t, "call", call, sdk.ToolCall{ID: used[0].CallID, Run: r.Subject, Tool: "files_read", Args: []byte(`{"n":1}`)})
	equal(t, "seen counts of the results", seen(requests[1].Messages), []int{1, 1, 0, 0})
	got := results(t, requests[1].Messages, 2)
	equal(t, "result", got[0].Text, `{"text":"hi"}`)
	if p := problem(t, got[1]); p.Code != sdk.CodeTool || !strings.Contains(p.ErrorMessage, "no such file") {
		t.Errorf("the failed call's result is %+v", p)
	}
	equal(t, "statuses, the last with the call of the service", statuses(h.Parts(r)),
		[]core.Status{core.StatusRunning, core.StatusRunning, core.StatusRunning, core.StatusWaiting})

	// A worker that starts later connects anew, and resumes the run with the toolset.
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.StopWorkers()
	if len(set.calls) != 1 || set.listed.Load() != 2 || set.closed.Load() != 2 {
		t.Errorf("%d more calls, connected %d times, closed %d times, want 1, 2 and 2",
			len(set.calls), set.listed.Load(), set.closed.Load())
	}
}

// internalTool is row A31.
func internalTool(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	calls := make(chan sdk.ToolCall, 8)
	a := desk()
	a.Tools = []sdk.Tool{internal("note", func(_ context.Context, call sdk.ToolCall) ([]byte, error) {
		calls <- call
		return []byte(`{"noted": true}`), nil
	})}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	event := h.Init("desk", message("hello"))
	event.TraceParent = trace
	r := h.Send("desk", event)
	succeeds(t, h, r, `{"response": "done"}`)

	messages := last(t, model).Messages
	id := uses(t, messages, 1)[0].CallID
	equal(t, "call", taken(t, calls), sdk.ToolCall{ID: id, Run: r.Subject, Tool: "note", Args: []byte(`{"n":1}`), TraceParent: trace})
	if len(calls) > 0 {
		t.Error("the tool was run twice")
	}
	equal(t, "result", messages[2], sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{{
		Kind: sdk.ContentToolResult, CallID: id, Tool: "note", Text: `{"noted":true}`,
	}}})
	if waits(h.Parts(r)) {
		t.Error("an internal tool suspended the run")
	}
}

// callValidation is row A32.
func callValidation(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", map[string]any{"n": "one"})), sdktest.Ask(sdktest.Tool("shop_find", n(1))),
		sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	p := problem(t, results(t, last(t, model).Messages, 1)[0])
	equal(t, "code", p.Code, sdk.CodeContractViolation)
	equal(t, "faults", paths(p.Faults), []string{"$.n"})
	call := h.Call("shop.find") // the only one that was published
	equal(t, "data", call.Data(), map[string]any{"n": 1.0})
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "result of the corrected call", results(t, last(t, model).Messages, 2)[1].Text, `{"value":"it"}`)
	var recorded []core.ResultKind
	for _, e := range h.Parts(r) {
		for _, result := range e.Results {
			recorded = append(recorded, result.Kind)
		}
	}
	equal(t, "what is recorded of both", recorded, []core.ResultKind{core.ResultRefused, core.ResultAnswer})
}

// callSuspends is row A33.
func callSuspends(t *testing.T) {
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	event := other(h, "desk", "hats", message("hello"))
	event.AccessControl, event.TraceParent = "role:buyer", aTrace
	r := h.Send("desk", event)
	state := h.Suspended(r, 1)
	call := h.Call("shop.find")
	got := call.Event
	equalJSON(t, "data", got.Data, `{"n": 1}`)
	equal(t, "attributes", []string{
		got.Type, got.To, got.Subject, got.Agent, got.AccessControl, got.TraceParent, got.DataSchema, got.ParentID,
	}, []string{
		"shop.find", "shop.find", r.Subject, "desk", "role:buyer", "00-" + aTraceID + "-07f17441984449e5-01", "#/test/shop.find/1.0.0", event.ID,
	})
	reply, _ := h.Conn().ReplySubject(call.Subject)
	equal(t, "where answers go", []string{got.Source, got.RedirectTo}, []string{reply, reply})
	if state.Driver != nil || state.Timer == 0 {
		t.Errorf("the suspended run is held by %+v and wakes at %d", state.Driver, state.Timer)
	}
	asked(t, model, 1)
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// domainRouting is row A37, for services.
func domainRouting(t *testing.T) {
	own, override, both := service("shop.find"), service("shop.book"), service("shop.approve")
	own.Contract.Domain = "shop"
	override.Contract.Domain, override.Domains = "shop", []string{sdk.HumanDomain}
	both.Domains = []string{"eu.west", sdk.HumanDomain}
	a := desk(own, override, both)
	a.Spec.Builtin = []string{"ask_question"}
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_book", n(2)), sdktest.Tool("shop_approve", n(3)),
		sdktest.Tool("ask_question", map[string]any{"question": "Really?"})), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 4)

	lane := func(c *harness.Call) []string { return []string{c.Event.Domain, strings.Split(c.Subject, ".")[2]} }
	human := []string{sdk.HumanDomain, "human_interaction"}
	find, book, question := h.Call("shop.find"), h.Call("shop.book"), h.Call(sdk.TypeQuestion)
	equal(t, "lane of the contract", lane(find), []string{"shop", "shop"})
	equal(t, "lane of the agent's choice", lane(book), human)
	equal(t, "lane of a question", lane(question), human)
	first, second := h.Call("shop.approve"), h.Call("shop.approve")
	equal(t, "first of two lanes", lane(first), []string{"eu.west", "eu_west"})
	equal(t, "second of two lanes", lane(second), human)

	// Whoever is not in the lane cannot answer.
	stray := find.Response("shop.find.done", value("forged"))
	h.Publish(strings.Replace(replySubject(h, find), ".shop.", ".local.", 1), stray)
	equal(t, "reason of the dead letter", h.DeadLetter().Reason, string(sdk.CodeUnknownRun))

	find.Answer("shop.find.done", value("found"))
	book.Answer("shop.book.done", value("booked"))
	second.Answer("shop.approve.done", value("approved by a person"))
	question.Answer("agentd.question.answered", map[string]any{"answer": "yes"})
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "the answer of either lane", results(t, last(t, model).Messages, 4)[2].Text, `{"value":"approved by a person"}`)
}

// requestLane is row A37, for requests for permission: they go to the domain of their stage.
func requestLane(t *testing.T) {
	m := asks(sdk.PermissionHold, "shop_find")
	m.terms.Stages[0].Domain = "finance.desk"
	h := start(t, sdktest.Script(find(1), sdktest.Say("done")), gated(m, service("shop.find")))
	r := h.Run("desk", message("hello"))
	c := request(t, h)
	equal(t, "lane of a request", []string{c.Event.Domain, strings.Split(c.Subject, ".")[2]}, []string{"finance.desk", "finance_desk"})
	decide(c, sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	succeeds(t, h, r, `{"response": "done"}`)
}

func allLanes(t *testing.T) {
	t.Run("services", domainRouting)
	t.Run("requests", requestLane)
}

func replySubject(h *harness.Harness, c *harness.Call) string {
	reply, _ := h.Conn().ReplySubject(c.Subject)
	return reply
}

// nameTranslation is row B2.
func nameTranslation(t *testing.T) {
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("weather_forecast_daily", n(1))), sdktest.Say("done"))
	h := start(t, model, desk(service("weather.forecast.daily"), service("weather.forecast_hourly")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	equal(t, "names that the model sees", toolNames(last(t, model)), []string{"weather_forecast_daily", "weather_forecast_hourly"})
	call := h.Call("weather.forecast.daily")
	equal(t, "type of the call", call.Event.Type, "weather.forecast.daily")
	call.Answer("weather.forecast.daily.done", value("sun"))
	succeeds(t, h, r, `{"response": "done"}`)

	models := func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil }
	err := catalog.New(nil, models, approval.Options{}).Set([]sdk.Agent{desk(service("shop.find"), service("shop_find"))})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "shop_find") {
		t.Errorf("two contracts with one tool name: %v", err)
	}
}

func toolNames(request sdk.ModelRequest) []string {
	var names []string
	for _, tool := range request.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// toolDefinition is row B3.
func toolDefinition(t *testing.T) {
	annotated := service("shop.find")
	annotated.Contract = contract("shop.find", `{
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/find.json", "type": "object",
		"properties": {"n": {"type": "integer", "minimum": 1, "description": "How many."}, "parentSubject$$": {"type": "string"}},
		"required": ["n", "parentSubject$$"], "additionalProperties": false
	}`, valueAnswer)
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, desk(annotated))
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	tool := last(t, model).Tools[0]
	equal(t, "name and description", []string{tool.Name, tool.Description}, []string{"shop_find", "A test's shop.find."})
	equalJSON(t, "parameters", tool.Parameters, `{
		"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "How many."}},
		"required": ["n"], "additionalProperties": false
	}`)
}

// parentSubject is row B4.
func parentSubject(t *testing.T) {
	open := service("flow.open")
	open.Contract = contract("flow.open", `{"type": "object", "properties": {
		"message": {"type": "string"}, "parentSubject$$": {"type": "string"}
	}, "required": ["parentSubject$$"]}`, valueAnswer)
	strict := service("flow.strict")
	strict.Contract = contract("flow.strict", delegatedInput, valueAnswer)
	forged := map[string]any{"message": "hi", sdk.ParentSubjectField: "another run"}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("flow_open", forged), sdktest.Tool("flow_strict", message("hi")),
			sdktest.Tool("flow_strict", forged), sdktest.Tool("shop_find", n(1))),
		sdktest.Say("done"))
	h := start(t, model, desk(open, strict, service("shop.find")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 3)
	for _, tool := range last(t, model).Tools {
		if strings.Contains(string(tool.Parameters), sdk.ParentSubjectField) {
			t.Errorf("the model is shown %s of %s: %s", sdk.ParentSubjectField, tool.Name, tool.Parameters)
		}
	}
	injected := map[string]any{"message": "hi", sdk.ParentSubjectField: r.Subject}
	calls := []*harness.Call{h.Call("flow.open"), h.Call("flow.strict"), h.Call("shop.find")}
	equal(t, "data, whatever the model wrote there", calls[0].Data(), injected)
	equal(t, "data", calls[1].Data(), injected)
	equal(t, "data of a contract that does not know the field", calls[2].Data(), map[string]any{"n": 1.0})
	for _, c := range calls {
		c.Answer(done(c.Event.Type), value("ok"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
	// A strict contract refuses what the model was not shown.
	equal(t, "forged field", problem(t, results(t, last(t, model).Messages, 4)[2]).Code, sdk.CodeContractViolation)
	h.NoCall("flow.strict")
}

// structuredErrors is row B5.
func structuredErrors(t *testing.T) {
	two := service("shop.find")
	two.Contract = contract("shop.find", `{"type": "object", "properties": {
		"from": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}
	}, "required": ["from", "days"], "additionalProperties": false}`, valueAnswer)
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", map[string]any{"from": 1, "days": []any{1, "two"}})),
		sdktest.Ask(sdk.ToolRequest{Name: "shop_find", Arguments: `{"from": "here", "days": [`}),
		sdktest.Ask(sdktest.Tool("shop_find", map[string]any{"from": "here", "days": []int{1}})), sdktest.Say("done"))
	h := start(t, model, desk(two))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	told := results(t, last(t, model).Messages, 2)
	wrong, unreadable := problem(t, told[0]), problem(t, told[1])
	got := paths(wrong.Faults)
	slices.Sort(got)
	equal(t, "every fault is listed", got, []string{"$.days[1]", "$.from"})
	for _, f := range append(wrong.Faults, unreadable.Faults...) {
		if f.Expected == "" {
			t.Errorf("fault %+v does not say what is expected", f)
		}
	}
	equal(t, "codes", []sdk.Code{wrong.Code, unreadable.Code}, []sdk.Code{sdk.CodeContractViolation, sdk.CodeContractViolation})
	if len(unreadable.Faults) == 0 {
		t.Error("arguments that are not JSON have no fault")
	}
	// The history keeps what the model wrote.
	equal(t, "unreadable arguments", uses(t, last(t, model).Messages, 2)[1].Args,
		json.RawMessage(`"{\"from\": \"here\", \"days\": ["`))
	call := h.Call("shop.find")
	equal(t, "the one call that was made", call.Data()["from"], any("here"))
	call.Fail(wire.Problem{ErrorName: "tool_failed", ErrorMessage: "sold out", Code: sdk.CodeTool})
	succeeds(t, h, r, `{"response": "done"}`)
	if p := problem(t, results(t, last(t, model).Messages, 3)[2]); p.ErrorMessage != "sold out" {
		t.Errorf("the service's error reaches the model as %+v", p)
	}
}

// domainAttached is row B15.
func domainAttached(t *testing.T) {
	with, without := service("shop.find"), service("shop.book")
	with.Domains = []string{"airline.europe"}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_book", n(2))), sdktest.Say("done"))
	h := start(t, model, desk(with, without))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	for _, want := range []struct{ contract, domain, token string }{
		{"shop.find", "airline.europe", "airline_europe"}, {"shop.book", "", wire.LocalDomain},
	} {
		call := h.Call(want.contract)
		equal(t, "domain of "+want.contract, call.Event.Domain, want.domain)
		address, err := h.Conn().Subjects().Parse(call.Subject)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "subject token of "+want.contract, address.Call.Domain, want.token)
		call.Answer(done(want.contract), value("ok"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
}
