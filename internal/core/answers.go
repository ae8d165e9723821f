package core

import (
	"fmt"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Answers counts what the run has refused to take for an answer.
type Answers struct {
	// Empty is how many replies in a row had neither text nor a call.
	Empty int `json:"empty,omitempty"`
}

// maxNudge bounds Head.Nudge, in bytes: it is written with every entry until the next reply.
const maxNudge = 2 << 10

// mostEmpty is how many empty replies in a row are answered with a nudge. After one more the model is asked for a summary, without
// tools, and when that is empty too the run ends.
const mostEmpty = 2

// FinalAnswer asks for an answer in place of a further round. It forbids claiming what the model has not received.
const FinalAnswer = "Give your final answer now, from what you have; you cannot call tools any more. Report only results that you have " +
	"received. Name what was not processed as not done, and claim nothing about it. If you have received no results, say that you could " +
	"not finish the task."

// nudge has the next model call told text after the conversation. What the same step has nudged with already stays before it, with a
// blank line between.
func (t *transition) nudge(text string) {
	h := &t.Head
	if h.Nudge != "" {
		text = h.Nudge + "\n\n" + text
	}
	h.Nudge = clip.Text(text, maxNudge)
}

// Empty reports whether a reply has nothing to go on with: no call, and no text but space.
func Empty(reply *sdk.ModelReply) bool {
	return reply.Fault == nil && len(reply.Calls) == 0 && strings.TrimSpace(reply.Text) == ""
}

// Summarises reports whether the next model call is for a final answer, without tools, because the replies before were empty, or made the
// same calls again and again.
func (h *Head) Summarises() bool { return h.Answers.Empty > mostEmpty || h.Guarded.Concludes }

// emptied answers a reply that was empty: it is never the run's answer. results is how many results the model has to go on.
func (t *transition) emptied(results int) error {
	h := &t.Head
	if h.Summarises() {
		return t.finish(Ending{
			Reason: ReasonError, Code: sdk.CodeNoAnswer, Detail: "empty",
			Message: fmt.Sprintf("the model gave %d empty replies in a row, the last one when it was asked for a summary", h.Answers.Empty+1),
		})
	}
	h.Answers.Empty++
	h.Lifecycle = sdk.LifecycleNudge
	if h.Summarises() {
		t.nudge("Your replies were empty. " + FinalAnswer)
	} else {
		t.nudge(emptyNudge(results))
	}
	return nil
}

// emptyNudge is what the model is told after an empty reply.
func emptyNudge(results int) string {
	switch results {
	case 0:
		return "Your reply was empty. Answer now, or call a tool."
	case 1:
		return "Your reply was empty. You have the result of 1 call above. Make the next call that the task needs, or, if nothing is left to do, " +
			"give your answer from that result."
	}
	return fmt.Sprintf("Your reply was empty. You have the results of %d calls above. Make the next call that the task needs, or, if nothing is "+
		"left to do, give your answer from those results.", results)
}
