package pipeline

import (
	"testing"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// The summary that the last model call is for names what is not done, as it is asked to. It is the answer, although a judge objects to that.
func TestAnswers_TheLastSummaryIsTheAnswer(t *testing.T) {
	t.Parallel()
	summary := "I have added 1 and 2, which is 3. Four sums are still to be added."
	spec, small := desk(), sdk.SmallModel()
	spec.Answers = &small
	spec.Limits.Interactions = 2
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say(summary))
	h := start(t, spec, model)
	r := h.Run("desk", hello())
	h.Call("calc.add").Answer("calc.added", map[string]int{"sum": 3})
	wantResponse(t, h.Done(r), summary)
	if got := judgedLast(h, r); got != "incomplete, accepted" {
		t.Errorf("watchers are told %q of it", got)
	}
}

// judgedLast is the judge that objected to the last reply, and whether that was taken for the answer.
func judgedLast(h *harness.Harness, r harness.Run) string {
	entries := h.Journal(r)
	judged := entries[len(entries)-1].Judged
	switch {
	case judged == nil:
		return ""
	case judged.Accepted:
		return judged.Judge + ", accepted"
	}
	return judged.Judge
}
