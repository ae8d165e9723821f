package seeds_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// aFamily is an agent that answers questions of the one that it calls, and that one.
func aFamily() (parent, child sdk.Agent) {
	child = callable("child")
	child.Spec.Builtin = []string{sdk.ToolAskParent}
	parent = desk(calling(child))
	parent.Spec.Builtin = []string{sdk.ToolAnswerChild}
	return parent, child
}

var (
	askColour    = sdktest.Ask(sdktest.Tool(sdk.ToolAskParent, map[string]any{"question": "Which colour?"}))
	answerColour = sdktest.Ask(sdktest.Tool(sdk.ToolAnswerChild, map[string]any{"question": "c1-0.c1-0", "answer": "blue"}))
	callChild    = sdktest.Ask(sdktest.Tool("test_child", message("paint")))
)

// childOf is the run that a call of a run has started.
func childOf(r harness.Run, call string) harness.Run {
	return harness.Run{Agent: "child", Subject: r.Subject + "/" + call, Key: wire.NewRunKey(r.Subject + "/" + call)}
}

// family is row F57: an agent that another calls asks it something while both are at work, and goes on with the answer. Neither is stuck when
// the other has ended, or does not answer; and agents call agents only so deep.
func family(t *testing.T) {
	t.Run("asks and is answered", asksItsParent)
	t.Run("asks while other calls are open", asksAmongOthers)
	t.Run("is told that nobody answers", asksForNothing)
	t.Run("ends with its parent", endsWithItsParent)
	t.Run("ends before its answer", endsBeforeItsAnswer)
	t.Run("asks a run that has ended", asksARunThatHasEnded)
	t.Run("calls itself", callsItself)
	t.Run("calls too many", callsTooMany)
}

func asksItsParent(t *testing.T) {
	parent, child := aFamily()
	parent.Hooks.Permissions = asks(sdk.PermissionHold, sdk.ToolAnswerChild)
	scripts := map[string]*sdktest.Model{
		"desk":  sdktest.Script(callChild, answerColour, sdktest.Say("painted")),
		"child": sdktest.Script(askColour, sdktest.Say("it is blue")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	answer := request(t, h) // the answer waits for a person: both runs are suspended
	call := uses(t, h.Messages(r), 2)[0].CallID
	sub := childOf(r, call)
	waiting := h.Suspended(sub, 1).Calls[0]
	equal(t, "whom the child asks", []string{waiting.Tool, waiting.Type}, []string{sdk.ToolAskParent, "test.desk"})
	h.Restart()
	decide(answer, allow)
	succeeds(t, h, r, `{"response": "painted"}`)

	first, second := scripts["desk"].Requests()[0], asked(t, scripts["desk"], 3)[1]
	offers := func(req sdk.ModelRequest) bool {
		return slices.ContainsFunc(req.Tools, func(d sdk.ToolDefinition) bool { return d.Name == sdk.ToolAnswerChild })
	}
	equal(t, "the tool to answer with is offered once there is a question", []bool{offers(first), offers(second)}, []bool{false, true})
	equal(t, "what the parent sees of its call", shownOf(second), []string{"test_child pending"})
	told := second.Messages[len(second.Messages)-1].PlainText()
	if !strings.Contains(told, "Which colour?") || !strings.Contains(told, `"c1-0.c1-0"`) {
		t.Errorf("the parent is told %q", told)
	}
	equal(t, "the child's answer comes late", shownOf(last(t, scripts["desk"])), []string{
		"test_child pending", "answer_child succeeded", `test_child told: {"response":"it is blue"}`,
	})
	equalJSON(t, "what the child is told", []byte(results(t, last(t, scripts["child"]).Messages, 1)[0].Text), `{"answer": "blue"}`)
	equal(t, "open questions at the end", len(h.State(r).Questions), 0)
	h.NoDeadLetter()
}

// asksAmongOthers: the parent goes on only with the call that asks; what else its round has open comes later.
func asksAmongOthers(t *testing.T) {
	parent, child := aFamily()
	parent.Spec.Services = append(parent.Spec.Services, service("shop.find"))
	scripts := map[string]*sdktest.Model{
		"desk": sdktest.Script(
			sdktest.Ask(sdktest.Tool("test_child", message("paint")), sdktest.Tool("shop_find", n(1))),
			sdktest.Ask(sdktest.Tool(sdk.ToolAnswerChild, map[string]any{"question": "c9-9.c1-0", "answer": "red"})),
			answerColour, sdktest.Say("painted, not found"), sdktest.Say("both")),
		"child": sdktest.Script(askColour, sdktest.Say("it is blue")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	h.Until(r, "the child's answer was told", func(s core.State) bool { return s.Turns == 4 && s.Status == core.StatusWaiting })
	equal(t, "what the parent has seen", shownOf(last(t, scripts["desk"])), []string{
		"test_child pending", "shop_find pending", "answer_child failed", "answer_child succeeded", `test_child told: {"response":"it is blue"}`,
	})
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "both"}`)
}

// asksForNothing: a parent that does not answer in time is waited for no longer, and one that answers no questions is not asked.
func asksForNothing(t *testing.T) {
	parent, child := aFamily()
	child.Spec.Limits.QuestionTimeoutMillis = 3000
	scripts := map[string]*sdktest.Model{
		"desk":  sdktest.Script(callChild, sdktest.Say("let it wait"), sdktest.Say("done")),
		"child": sdktest.Script(askColour, sdktest.Say("it is white")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := problem(t, results(t, last(t, scripts["child"]).Messages, 1)[0])
	equal(t, "what the child is told", told.Code, sdk.CodeDeadline)

	parent.Spec.Builtin = nil
	scripts["desk"] = sdktest.Script(callChild, sdktest.Say("done"))
	scripts["child"] = sdktest.Script(askColour, sdktest.Say("it is white"))
	h = start(t, byModel(scripts), parent, child)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	equal(t, "tools of a child whose parent answers nothing", len(scripts["child"].Requests()[0].Tools), 0)
	told = problem(t, results(t, last(t, scripts["child"]).Messages, 1)[0])
	equal(t, "what it is told", told.Code, sdk.CodeUnknownTool)
}

// held is a family whose parent waits for a person before it answers.
func held(t *testing.T, child, then sdk.ModelReply) (*harness.Harness, harness.Run, harness.Run) {
	t.Helper()
	parent, asker := aFamily()
	parent.Hooks.Permissions = asks(sdk.PermissionHold, sdk.ToolAnswerChild)
	h := start(t, byModel(map[string]*sdktest.Model{
		"desk": sdktest.Script(callChild, answerColour, then), "child": sdktest.Script(askColour, child),
	}), parent, asker)
	r := h.Run("desk", message("hello"))
	request(t, h)
	sub := childOf(r, uses(t, h.Messages(r), 2)[0].CallID)
	h.Suspended(sub, 1)
	return h, r, sub
}

func endsWithItsParent(t *testing.T) {
	h, r, sub := held(t, sdktest.Say("never"), sdktest.Say("never"))
	h.Cancel(r, "enough")
	fails(t, h, r, "test.desk")
	end := h.Until(sub, "the child has ended", func(s core.State) bool { return s.Status == core.StatusDone })
	equal(t, "how the child ends", end.Termination(), "cancelled:asked")
	equal(t, "questions of a run that has ended", len(h.State(r).Questions), 0)
}

func endsBeforeItsAnswer(t *testing.T) {
	h, r, sub := held(t, sdktest.Say("never"), sdktest.Say("it was cancelled"))
	h.Cancel(sub, "enough")
	h.Until(r, "the parent knows", func(s core.State) bool { return len(s.Questions) == 0 })
	equal(t, "the call that asks has its result", problemOf(t, h, r), sdk.CodeCancelled)
}

// problemOf is the code of the result that waits to be told in a run.
func problemOf(t *testing.T, h *harness.Harness, r harness.Run) sdk.Code {
	t.Helper()
	s := h.State(r)
	told := s.Untold()
	if len(told) != 1 {
		t.Fatalf("%d results wait to be told", len(told))
	}
	return problem(t, told[0]).Code
}

// asksARunThatHasEnded: whoever asks a run that has ended, or that does not wait for them, is told.
func asksARunThatHasEnded(t *testing.T) {
	parent, child := aFamily()
	h := start(t, byModel(map[string]*sdktest.Model{"desk": sdktest.Script(sdktest.Say("done"))}), parent, child)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	call := wire.CallID(r.Key, "i", 1, 0, "test_child", []byte(`{}`))
	sub := childOf(r, call)
	at := wire.CallAddress{
		Domain: "local", Type: "test_desk", Agent: "child", Run: sub.Key, Call: wire.CallID(sub.Key, "i", 1, 0, sdk.ToolAskParent, []byte(`{}`)),
	}
	h.Publish(h.Conn().Subjects().Call(at), wire.Event{
		ID: at.Call, Source: "test", Type: "test.desk", Subject: sub.Subject, DataSchema: wire.CallerQuestionSchema, Agent: "child",
		Data: json.RawMessage(`{"question":"Which colour?"}`),
	})
	letter := h.DeadLetter() // the child's run is made up, so nobody waits for what it is told
	equal(t, "where the answer goes", letter.Subject, h.Conn().Subjects().Reply(at))
	event, err := wire.DecodeEvent(nil, letter.Data)
	if err != nil {
		t.Fatal(err)
	}
	var told wire.Problem
	if err := json.Unmarshal(event.Data, &told); err != nil {
		t.Fatal(err)
	}
	equal(t, "what the child is told", []string{string(told.Code), told.ErrorMessage}, []string{"message_refused", "the caller's run has ended"})
	h.NoDeadLetter()
}

// callsTooMany: a run calls as many agents as its limit says, and goes on without more, also on another worker.
func callsTooMany(t *testing.T) {
	child := callable("child")
	called := calling(child)
	called.Agent = true
	parent := desk(called, service("shop.find"))
	parent.Spec.Limits.Children = 2
	scripts := map[string]*sdktest.Model{
		"desk":  sdktest.Script(callChild, find(1), sdktest.Ask(callChild.Calls[0], callChild.Calls[0]), sdktest.Say("done")),
		"child": sdktest.Script(sdktest.Say("painted"), sdktest.Say("painted")),
	}
	h := start(t, byModel(scripts), parent, child)
	r := h.Run("desk", message("hello"))
	call := h.Call("shop.find")
	h.Restart()
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, h.Messages(r), 4)
	equal(t, "an agent too many", problem(t, told[3]).Code, sdk.CodeQuotaExhausted)
	equal(t, "agents that were called", []int{len(asked(t, scripts["child"], 2)), h.State(r).Children}, []int{2, 2})
}

// callsItself: agents call agents at most eight levels deep.
func callsItself(t *testing.T) {
	a := callable("child")
	a.Spec.Services = []sdk.ServiceTool{calling(a)}
	parent := desk(calling(a))
	model := sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if req.Interactions.Current > 0 {
			return sdktest.Say("done"), nil
		}
		return callChild, nil
	})
	h := start(t, model, parent, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	depth, name := 0, r.Subject
	for {
		s := h.State(harness.Run{Key: wire.NewRunKey(name)})
		calls := uses(t, s.Messages(), 1)
		deeper := name + "/" + calls[0].CallID
		if p := results(t, s.Messages(), 1)[0]; p.IsError {
			equal(t, "why it goes no deeper", problem(t, p).ErrorMessage, "agents call agents at most 8 levels deep")
			break
		}
		depth, name = depth+1, deeper
	}
	equal(t, "how deep agents call agents", depth, 8)
}
