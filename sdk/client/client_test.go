package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clerk pays bills with a tool in Go, which a person must allow, and may ask the person back.
func clerk(paid chan<- string) sdk.Agent {
	return sdk.Agent{
		Spec: sdk.AgentSpec{
			Name: "clerk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "script", Name: "script"}, System: "You are a clerk.",
			Contract: sdk.Contract{URI: "#/clerk", Type: "clerk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
				Accepts: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`),
				Emits: map[string]json.RawMessage{
					"clerk.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
				},
			}}},
			Builtin: []string{"ask_question"},
			Permissions: &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{
				Name: "money", Tools: []string{"pay"}, Verdict: sdk.PermissionAsk,
			}}},
		},
		Tools: []sdk.Tool{{
			Definition: sdk.ToolDefinition{
				Name: "pay", Description: "Pays a bill.",
				Parameters: json.RawMessage(`{"type":"object","properties":{"euros":{"type":"integer"}},"required":["euros"]}`),
			},
			Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
				paid <- string(call.Args)
				return json.RawMessage(`{"paid":true}`), nil
			},
		}},
	}
}

func connect(t *testing.T, h *sdktest.Harness) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), client.Options{InProcess: h, As: "ann"})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(key string) client.Request {
	return client.Request{Agent: "clerk", Input: map[string]string{"message": "Pay the bill."}, Key: key}
}

// until waits until the run asks something of that type.
func until(t *testing.T, c *client.Client, run client.Run, callType string) client.Call {
	t.Helper()
	for _, err := range c.Follow(t.Context(), run, wire.Mark{}) {
		must(t, err)
		calls, err := c.Asked(t.Context(), run)
		must(t, err)
		if i := slices.IndexFunc(calls, func(call client.Call) bool { return call.Type == callType }); i >= 0 {
			return calls[i]
		}
	}
	t.Fatalf("run %s ended and never asked a %s", run.Name, callType)
	return client.Call{}
}

// A run from its start to its end: it is started twice and runs once, a person answers its question and decides its call.
func TestClient_CarriesARunFromItsStartToItsEnd(t *testing.T) {
	t.Parallel()
	paid := make(chan string, 8)
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(paid)},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})),
			sdktest.Ask(sdktest.Tool("pay", map[string]int{"euros": 12})),
			sdktest.Say("The bill is paid."),
		),
	})
	c := connect(t, h)
	run, err := c.Start(t.Context(), request("bill-7"))
	must(t, err)
	again, err := c.Start(t.Context(), request("bill-7"))
	must(t, err)
	if again != run {
		t.Fatalf("the same key started %v and %v", run, again)
	}

	question := until(t, c, run, sdk.TypeQuestion)
	if string(question.Asked) != `{"question":"Which bill?"}` {
		t.Errorf("it asks %s", question.Asked)
	}
	outcome, err := c.Answer(t.Context(), run, question.Call, client.Reply{Text: "The one of May."})
	must(t, err)
	if outcome.State != client.OutcomeCounted || outcome.Who != "ann" {
		t.Errorf("the answer is %+v", outcome)
	}

	permission := until(t, c, run, sdk.TypePermissionRequest)
	if _, err := c.Decide(t.Context(), run, permission.Call, sdk.PermissionDecision{
		Decision: sdk.DecisionAllow, ArgsHash: "that of other arguments",
	}); !errors.Is(err, &sdk.Error{Code: sdk.CodeDecisionRefused}) {
		t.Errorf("a decision on other arguments: %v", err)
	}
	outcome, err = c.Decide(t.Context(), run, permission.Call, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	must(t, err)
	if outcome.State != client.OutcomeCounted {
		t.Errorf("the decision is %+v", outcome)
	}

	result, err := c.Wait(t.Context(), run)
	must(t, err)
	if result.Type != "clerk.done" || string(result.Data) != `{"response":"The bill is paid."}` || result.Reason != wire.ReasonCompleted {
		t.Errorf("it ended with %s %s (%s)", result.Type, result.Data, result.Reason)
	}
	byName, err := c.Wait(t.Context(), client.Run{Agent: "clerk", Name: run.Name})
	must(t, err)
	if string(byName.Data) != string(result.Data) || byName.Reason != result.Reason {
		t.Errorf("who knows only the name gets %s (%s)", byName.Data, byName.Reason)
	}
	if got := <-paid; got != `{"euros":12}` || len(paid) > 0 {
		t.Errorf("it paid %s, and %d times more", got, len(paid))
	}
	h.NoDeadLetter()
}

// Whoever follows is told every milestone once and in order, also after it was interrupted in the middle.
func TestClient_TellsEachMilestoneOnce(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 8))},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})), sdktest.Say("Done."),
		),
	})
	c := connect(t, h)
	run, err := c.Start(t.Context(), request(""))
	must(t, err)
	var told []string
	var mark wire.Mark
	follow := func(last string) {
		for l, err := range c.Follow(t.Context(), run, mark) {
			must(t, err)
			if l.Ephemeral {
				continue
			}
			told, mark = append(told, l.Type), wire.Mark{Revision: l.Revision, Index: l.Index}
			if l.Type == last {
				return
			}
		}
	}
	follow(wire.MilestoneCall)
	question := until(t, c, run, sdk.TypeQuestion)
	_, err = c.Answer(t.Context(), run, question.Call, client.Reply{Text: "All."})
	must(t, err)
	follow("")
	want := []string{
		"run.started", "checkpoint", "call.opened", "run.usage", "checkpoint", "run.suspended", "call.result", "checkpoint",
		"model.reply", "run.usage", "checkpoint", "run.finished",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q\nwant %q", told, want)
	}
	var history []string
	for l, err := range c.History(t.Context(), run, wire.Mark{}) {
		must(t, err)
		history = append(history, l.Type)
	}
	if !slices.Equal(history, want) {
		t.Errorf("the history is %q", history)
	}
}

func TestClient_CancelsListsAndSends(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 8))},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})), sdktest.Say("Done."),
		),
	})
	c := connect(t, h)
	first, err := c.Start(t.Context(), request("one"))
	must(t, err)
	second, err := c.Start(t.Context(), request("two"))
	must(t, err)
	until(t, c, first, sdk.TypeQuestion)
	until(t, c, second, sdk.TypeQuestion)
	heard, err := c.Send(t.Context(), first, "Hurry up.")
	must(t, err)
	if !heard {
		t.Error("the run did not hear the message")
	}
	must(t, c.Cancel(t.Context(), first, "too slow"))
	_, err = c.Wait(t.Context(), first)
	failed := &client.RunError{}
	if !errors.As(err, &failed) || failed.Reason != wire.ReasonCancelled || !errors.Is(err, &sdk.Error{Code: sdk.CodeCancelled}) ||
		failed.Err.Message != "the run was cancelled: too slow" {
		t.Errorf("a cancelled run ended with %v", err)
	}
	names := map[wire.Status][]string{}
	for run, err := range c.List(t.Context(), "clerk", "") {
		must(t, err)
		names[run.Status] = append(names[run.Status], run.Run)
	}
	if !slices.Equal(names[wire.StatusDone], []string{first.Name}) || !slices.Equal(names[wire.StatusWaiting], []string{second.Name}) {
		t.Errorf("it lists %v", names)
	}
	ended := 0
	for run, err := range c.List(t.Context(), "clerk", wire.StatusDone) {
		must(t, err)
		ended++
		if run.Run != first.Name || run.Reason != wire.ReasonCancelled || run.Initiator != "ann" {
			t.Errorf("of those that are done it lists %+v", run)
		}
	}
	if ended != 1 {
		t.Errorf("of those that are done it lists %d, want 1", ended)
	}
}

func TestClient_SaysWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{Agents: []sdk.Agent{clerk(make(chan string, 8))}, Model: sdktest.Script(sdktest.Say("Done."))})
	c := connect(t, h)
	for _, test := range []struct {
		name    string
		request client.Request
		code    sdk.Code
	}{
		{"an agent's name", client.Request{Agent: "*", Input: struct{}{}}, sdk.CodeInvalidEvent},
		{"input that is a list", client.Request{Agent: "clerk", Input: []int{1}}, sdk.CodeContractViolation},
		{"input that cannot be encoded", client.Request{Agent: "clerk", Input: make(chan int)}, sdk.CodeContractViolation},
		{"a limit of less than nothing", client.Request{Agent: "clerk", Input: map[string]string{"message": "hi"}, Tokens: -1}, sdk.CodeInvalidEvent},
		{"a name with a control character", client.Request{Agent: "clerk", Input: struct{}{}, Name: "a\x00b"}, sdk.CodeInvalidEvent},
	} {
		if _, err := c.Start(t.Context(), test.request); !errors.Is(err, &sdk.Error{Code: test.code}) {
			t.Errorf("%s: %v; want %s", test.name, err, test.code)
		}
	}
	run, err := c.Start(t.Context(), client.Request{Agent: "clerk", Input: map[string]int{"message": 7}})
	must(t, err)
	if _, err := c.Wait(t.Context(), run); !errors.Is(err, &sdk.Error{Code: sdk.CodeContractViolation}) {
		t.Errorf("input that the agent refuses: %v", err)
	}
	if _, err := c.Status(t.Context(), client.Run{Agent: "clerk", Name: "nobody's"}); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("the status of a run that is not there: %v", err)
	}
	for _, agent := range []string{strings.Repeat("a", 4200), "nobody"} { // longer subjects end the connection
		if _, err := c.Status(t.Context(), client.Run{Agent: agent, Name: "x"}); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			t.Errorf("an agent that nobody serves: %v", err)
		}
	}
	if _, err := c.Answer(t.Context(), run, "c1-0-x", client.Reply{Text: "Yes"}); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("an answer to nothing: %v", err)
	}
}
