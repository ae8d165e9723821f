package pipeline

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

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

// A service that handles one call at a time has those of a turn in the order in which the model made them.
func TestRun_CallsOfATurnAreInTheModelsOrder(t *testing.T) {
	t.Parallel()
	const calls = 8
	var asked []sdk.ToolRequest
	for n := range calls {
		asked = append(asked, add(n, 1))
	}
	h := start(t, desk(), sdktest.Script(sdktest.Ask(asked...), sdktest.Say("done")))
	r := h.Run("desk", hello())
	for n := range calls {
		call := h.Call("calc.add")
		if got := call.Data()["a"]; got != float64(n) {
			t.Errorf("call %d of the stream is the one with %v", n, got)
		}
		call.Answer("calc.added", sum(n+1))
	}
	wantResponse(t, h.Done(r), "done")
}

func containsCode(text string, code sdk.Code) bool {
	var shown struct {
		Error struct{ Code sdk.Code }
	}
	return json.Unmarshal([]byte(text), &shown) == nil && shown.Error.Code == code
}

// New input for a run that waits is never lost: the answer that it waits for is taken, another beginning under its name is
// refused to whoever sent it, and what it does not understand is a dead letter. None of it harms the run.
func TestInit_DuringAWaitIsRefusedAndAMessageIsHeard(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Text = sdk.TextConverse
	model := sdktest.Script(sdktest.Say("What is it?"), sdktest.Say("I see."))
	h := start(t, spec, model)
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

	sound(t, h.Conn(), natsStore(h.Conn())) // an answer that comes while the message is written asks the model once more
	turn.Answer("agentd.conversation.answered", map[string]any{"message": "My case."})
	h.Call(sdk.TypeConversationTurn).Answer("agentd.conversation.answered", map[string]any{"message": "bye", "end": true})
	wantResponse(t, h.Done(r), "I see.")
	h.Send("desk", ev) // when the run is done, too
	other.ID = "yet another"
	wantProblem(t, h.Done(h.Send("desk", other)), "desk", sdk.CodeRunExists)
	var texts []string
	for _, m := range h.Messages(r) {
		texts = append(texts, m.PlainText())
	}
	if diff := cmp.Diff([]string{"hello", "What is it?", "My case.", "by the way", "I see.", "bye"}, texts); diff != "" {
		t.Errorf("the conversation (-want +got):\n%s", diff)
	}
	sound(t, h.Conn(), natsStore(h.Conn())) // when everything is settled
	if n := len(model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
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

func TestLargeContents_LiveBesideTheJournal(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Say("read it")))
	long := make([]byte, 700_000)
	for i := range long {
		long[i] = 'a' + byte(i%26)
	}
	r := h.Run("desk", map[string]string{"message": string(long)})
	wantResponse(t, h.Done(r), "read it")
	h.Restart()
	entries := h.Journal(r)
	if len(entries[0].Blobs) == 0 {
		t.Error("the first entry has no blob")
	}
	if got := h.Messages(r)[0].PlainText(); got != string(long) {
		t.Errorf("the message has %d characters, want %d", len(got), len(long))
	}
	data, err := json.Marshal(entries[0].Blobs)
	if err != nil || len(data) > 1000 {
		t.Errorf("blobs %s, %v", data, err)
	}
}

func TestControl_ReachesOnlyRunsOfTheAgentInItsSubject(t *testing.T) {
	t.Parallel()
	other := desk()
	other.Name, other.Contract.Type, other.Contract.URI = "other", "other", "#/other"
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk()}, {Spec: other}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
	})
	r := h.Run("desk", hello())
	h.Suspended(r, 1)
	h.Cancel(harness.Run{Subject: r.Subject, Key: r.Key, Agent: "other"}, "not mine")
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeUnknownRun) {
		t.Errorf("dead letter %+v", d)
	}
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
}
