package seeds_test

import (
	"context"
	"slices"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// lastSaid is the last message of a request.
func lastSaid(r sdk.ModelRequest) string { return r.Messages[len(r.Messages)-1].PlainText() }

// emptyReplies is rows L37 and L45: a reply of nothing but space is not an answer. The model is asked again, twice in a row, in words that
// depend on whether it has results; and what it is told then is not kept.
func emptyReplies(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Say(""), sdktest.Say(" \n"), sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("note", n(2))),
		sdktest.Say(""), sdktest.Say(""), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	const (
		first = "Your reply was empty. Answer now, or call a tool."
		later = "Your reply was empty. You have the results of 2 calls above. Make the next call that the task needs, or, if nothing is left " +
			"to do, give your answer from those results."
	)
	requests := asked(t, model, 6)
	for i, want := range []string{1: first, 2: first, 4: later, 5: later} {
		if want == "" {
			continue
		}
		equal(t, "what the model is told", []any{lastSaid(requests[i]), len(requests[i].Tools)}, []any{want, 1})
		if before := requests[i].Messages[:len(requests[i].Messages)-1]; slices.ContainsFunc(before, func(m sdk.Message) bool {
			return m.PlainText() == first || m.PlainText() == later
		}) {
			t.Errorf("request %d has an earlier nudge: %+v", i, before)
		}
	}
	messages := h.Messages(r)
	equal(t, "messages that are kept", len(messages), 5) // the task, the calls, two results, the answer
}

// forcedSummary is rows L38 and L44: after the nudges the model is asked for a summary, without tools, in words that forbid it to claim
// what it has not received. A call that it makes all the same is not made; and when there is still no text, the run fails.
func forcedSummary(t *testing.T) {
	for answer, ends := range map[string]string{"one of two is done": "", "": "no_answer"} {
		a := desk()
		ran := 0
		a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
			ran++
			return []byte(`{}`), nil
		})}
		last := sdktest.Ask(sdktest.Tool("note", n(2)))
		last.Text = answer
		model := sdktest.Script(
			sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say(""), sdktest.Say(""), sdktest.Say(""), last)
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		if ends == "" {
			succeeds(t, h, r, `{"response": "one of two is done"}`)
		} else {
			equal(t, "error", string(fails(t, h, r, deskType).Code), ends)
		}
		summary := asked(t, model, 5)[4]
		equal(t, "what the model is told", lastSaid(summary), "Your replies were empty. Give your final answer now, from what you have; you "+
			"cannot call tools any more. Report only results that you have received. Name what was not processed as not done, and claim "+
			"nothing about it. If you have received no results, say that you could not finish the task.")
		equal(t, "tools that are offered, and calls that were made", []int{len(summary.Tools), ran}, []int{0, 1})
	}
}
