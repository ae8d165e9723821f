package pipeline

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"testing"

	"agentd/sdk/wire"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

func TestRun_ResumesOnAnotherWorker(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.Restart()
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
}

func TestAnswers_DuplicatedAndReorderedChangeNothingTwice(t *testing.T) {
	t.Parallel()
	model := sdktest.Script(sdktest.Ask(add(1, 1), add(2, 2), add(3, 3)), sdktest.Say("done"))
	h := start(t, desk(), model)
	r := h.Run("desk", hello())
	calls := []*harness.Call{h.Call("calc.add"), h.Call("calc.add"), h.Call("calc.add")}
	for i := len(calls) - 1; i >= 0; i-- {
		n := int(calls[i].Data()["a"].(float64)) * 2
		calls[i].Answer("calc.added", sum(n))
		h.Until(r, "answered", func(s core.State) bool { return len(s.Results) >= len(calls)-i || s.Turns > 1 })
		again := calls[i].Response("calc.added", sum(99))
		again.ID = "another"
		h.PublishAgain(calls[i], again)
	}
	wantResponse(t, h.Done(r), "done")
	messages := h.Messages(r)
	for i, want := range []string{`{"sum":2}`, `{"sum":4}`, `{"sum":6}`} {
		if got := messages[2+i].Content[0].Text; got != want {
			t.Errorf("result %d is %s, want %s", i, got, want)
		}
	}
	if n := len(model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
}

func TestRun_ManyOnThreeWorkers(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk()}}, Workers: 3,
		Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
	})
	const runs = 40
	var started []harness.Run
	for i := range runs {
		ev := h.Init("desk", hello())
		ev.Subject += strconv.Itoa(i)
		ev.ID += strconv.Itoa(i)
		started = append(started, h.Send("desk", ev))
	}
	for range runs {
		h.Call("calc.add").Answer("calc.added", sum(3))
	}
	for _, r := range started {
		wantResponse(t, h.Done(r), "three")
	}
	h.NoCall("calc.add")
}

func TestCall_TimesOut(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Services[0].TimeoutMillis = 200
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("gave up")))
	r := h.Run("desk", hello())
	late := h.Call("calc.add")
	wantResponse(t, h.Done(r), "gave up")
	late.Answer("calc.added", sum(3))
	result := h.Messages(r)[2].Content[0]
	if !result.IsError || !containsCode(result.Text, sdk.CodeDeadline) {
		t.Errorf("the model was told %s, want %s", result.Text, sdk.CodeDeadline)
	}
	h.Void("calc.add")
}

func containsCode(text string, code sdk.Code) bool {
	var shown struct {
		Error struct{ Code sdk.Code }
	}
	return json.Unmarshal([]byte(text), &shown) == nil && shown.Error.Code == code
}

func TestRun_DeadlinePasses(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Limits.DeadlineMillis = 300
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2))))
	wantProblem(t, h.Done(h.Run("desk", hello())), "desk", sdk.CodeDeadline)
}

func TestRun_CancelledWhileItWaits(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2))))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.Cancel(r, "no longer needed")
	wantProblem(t, h.Done(r), "desk", sdk.CodeCancelled)
	h.Void("calc.add")
	if s := h.State(r); s.Status != core.StatusDone || len(s.Calls) != 0 {
		t.Errorf("the run is %s with %d calls", s.Status, len(s.Calls))
	}
}

func TestInit_DuplicateStartsNothingAndAnotherIsRefused(t *testing.T) {
	t.Parallel()
	model := sdktest.Script(sdktest.Say("hi"))
	h := start(t, desk(), model)
	ev := h.Init("desk", hello())
	r := h.Send("desk", ev)
	wantResponse(t, h.Done(r), "hi")
	h.Send("desk", ev)
	ev.ID = "another"
	wantProblem(t, h.Done(h.Send("desk", ev)), "desk", sdk.CodeRunExists)
	if n := len(model.Requests()); n != 1 {
		t.Errorf("the model was asked %d times, want 1", n)
	}
}

// New input for a run that waits is never lost: the answer that it waits for is taken, another beginning under its name is
// refused to whoever sent it, and what it does not understand is a dead letter. None of it harms the run.
func TestInit_DuringAWaitIsRefusedAndAMessageIsHeard(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Text = sdk.TextConverse
	h := start(t, spec, sdktest.Script(sdktest.Say("What is it?"), sdktest.Say("I see.")))
	ev := h.Init("desk", hello())
	r := h.Send("desk", ev)
	turn := h.Call(sdk.TypeConversationTurn)
	waiting := h.Suspended(r, 1)

	other := ev
	other.ID, other.Data = "another", []byte(`{"message":"something else"}`)
	wantProblem(t, h.Done(h.Send("desk", other)), "desk", sdk.CodeRunExists)
	h.Send("desk", ev) // the same once more
	message := wire.DefaultSubjects().Control(wire.ControlMessage, "desk", r.Key)
	h.PublishRaw(message, []byte(`{"specversion":"1.0","id":"m","source":"c","type":"agentd.message","data":{"message":"by the way"}}`))
	s := h.Until(r, "the message is taken", func(s core.State) bool { return len(s.Head.Notes) == 1 })
	if s.Status != core.StatusWaiting || len(s.Messages()) != len(waiting.Messages()) {
		t.Errorf("the run is %s with %d messages, before %d", s.Status, len(s.Messages()), len(waiting.Messages()))
	}

	turn.Answer("agentd.conversation.answered", map[string]any{"message": "My case."})
	h.Call(sdk.TypeConversationTurn).Answer("agentd.conversation.answered", map[string]any{"message": "bye", "end": true})
	wantResponse(t, h.Done(r), "I see.")
	var texts []string
	for _, m := range h.Messages(r) {
		texts = append(texts, m.PlainText())
	}
	if diff := cmp.Diff([]string{"hello", "What is it?", "My case.", "by the way", "I see.", "bye"}, texts); diff != "" {
		t.Errorf("the conversation (-want +got):\n%s", diff)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

func TestModel_FailureEndsTheRun(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the key is wrong")
	}))
	p := wantProblem(t, h.Done(h.Run("desk", hello())), "desk", sdk.CodeModel)
	if p.ErrorMessage != "the key is wrong" {
		t.Errorf("message %q", p.ErrorMessage)
	}
}

func TestTools_RunInlineAndCrashesAreResults(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	tool := func(name string, run func(context.Context, sdk.ToolCall) (json.RawMessage, error)) sdk.Tool {
		return sdk.Tool{Definition: sdk.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)}, Run: run}
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Tools: []sdk.Tool{
			tool("count", func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return json.RawMessage(strconv.FormatInt(runs.Add(1), 10)), nil
			}),
			tool("crash", func(context.Context, sdk.ToolCall) (json.RawMessage, error) { panic("secret") }),
		}}},
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("count", struct{}{}), sdktest.Tool("crash", struct{}{})), sdktest.Say("ok")),
	})
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "ok")
	messages := h.Messages(r)
	if got := messages[2].Content[0].Text; got != "1" {
		t.Errorf("count returned %s", got)
	}
	if c := messages[3].Content[0]; !c.IsError || !containsCode(c.Text, sdk.CodeTool) {
		t.Errorf("crash returned %s", c.Text)
	}
}

func TestQuery_TellsWhatWasMissed(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	ask := func(after wire.Mark) (s wire.RunStatus) {
		t.Helper()
		err := h.Conn().Ask(t.Context(), "desk", wire.Query{Run: r.Subject, After: after}, &s)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	all := ask(wire.Mark{})
	if all.Status != core.StatusWaiting || len(all.Waiting) != 1 || len(all.Milestones) < 3 {
		t.Fatalf("status %+v", all)
	}
	for i, seen := range all.Milestones {
		rest := ask(wire.Mark{Revision: seen.Revision, Index: seen.Index})
		if len(rest.Milestones) != len(all.Milestones)-i-1 {
			t.Errorf("after milestone %d there are %d, want %d", i, len(rest.Milestones), len(all.Milestones)-i-1)
		}
	}
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
	if done := ask(wire.Mark{}); done.Status != core.StatusDone || done.Terminal == nil {
		t.Errorf("status %+v", done)
	}
}
