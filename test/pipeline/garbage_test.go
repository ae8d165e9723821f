package pipeline

import (
	"encoding/json"
	"testing"

	"agentd/sdk/wire"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

func TestGarbage_IsDeadLetteredAndTheWorkerLives(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Say("hi")))
	subjects := wire.DefaultSubjects()
	h.PublishRaw(subjects.Start("desk"), []byte("{not json"))
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeInvalidEvent) || d.Subject != subjects.Start("desk") || string(d.Data) != "{not json" {
		t.Errorf("dead letter %+v", d)
	}
	answer := subjects.Reply(wire.CallAddress{
		Domain: "local", Type: "calc_add", Agent: "desk", Run: wire.NewRunKey("nobody"),
		Call: wire.CallID(wire.NewRunKey("nobody"), "init", 1, 0, "calc_add", []byte("{}")),
	})
	h.PublishRaw(answer, []byte(`{"specversion":"1.0","id":"x","source":"y","type":"calc.added","data":{"sum":1}}`))
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeUnknownRun) {
		t.Errorf("dead letter %+v", d)
	}
	wantResponse(t, h.Done(h.Run("desk", hello())), "hi")
}

func TestInit_ViolationListsEveryFault(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script())
	p := wantProblem(t, h.Done(h.Run("desk", map[string]any{"count": "many"})), "desk", sdk.CodeContractViolation)
	if len(p.Faults) != 2 {
		t.Fatalf("faults %v, want the missing message and the count", p.Faults)
	}
}

func TestInit_UnknownAgentIsAnswered(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script())
	wantProblem(t, h.Done(h.Run("ghost", hello())), "ghost", sdk.CodeUnknownAgent)
}

func TestAnswer_ThatBreaksTheContractIsAResultForTheModel(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("sorry")))
	r := h.Run("desk", hello())
	h.Call("calc.add").Answer("calc.added", map[string]string{"sum": "three"})
	wantResponse(t, h.Done(r), "sorry")
	if c := h.Messages(r)[2].Content[0]; !c.IsError || !containsCode(c.Text, sdk.CodeContractViolation) {
		t.Errorf("the model was told %s", c.Text)
	}
}

func TestAnswer_ToSomethingElseIsDeadLettered(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	call := h.Call("calc.add")
	forged := call.Response("calc.added", sum(99))
	forged.ParentID = "something-else"
	h.PublishAgain(call, forged)
	if d := h.DeadLetter(); d.Reason != string(sdk.CodeUnknownRun) {
		t.Errorf("dead letter %+v", d)
	}
	right := call.Response("calc.added", sum(3))
	right.ID = "right"
	h.PublishAgain(call, right)
	wantResponse(t, h.Done(r), "three")
	if got := h.Messages(r)[2].Content[0].Text; got != `{"sum":3}` {
		t.Errorf("result %s", got)
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
