package core

import (
	"fmt"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Answers counts what the run has refused to take for an answer.
type Answers struct {
	// Empty is how many replies in a row had neither text nor a call.
	Empty int `json:"empty,omitempty"`
	// Refused is how often each judge has sent a text back since a person spoke, in the order in which they first did.
	Refused []Refused `json:"refused,omitempty"`
	// Heard is how many model calls there had been when a person last spoke to an agent with judges.
	Heard int `json:"heard,omitempty"`
}

// Refused is how often a judge has sent a text back.
type Refused struct {
	Judge string `json:"judge"`
	Times int    `json:"times"`
}

func (a *Answers) zero() bool { return a.Empty == 0 && len(a.Refused) == 0 && a.Heard == 0 }

// refused is how often a judge has sent a text back.
func (a *Answers) refused(judge string) int {
	for _, r := range a.Refused {
		if r.Judge == judge {
			return r.Times
		}
	}
	return 0
}

// Objection is what a judge has against a text.
type Objection struct {
	Judge string
	// Found is what it objects to, and Nudge what the model is told.
	Found, Nudge string
	// Most is how often it may send a text back. Then the text is accepted, or the run ends where Required.
	Most     int
	Required bool
	// WantsCalls says that Nudge asks for calls: a text that was written without tools is not sent back with it.
	WantsCalls bool
}

// Judged is a reply that a judge objected to.
type Judged struct {
	Judge string `json:"judge"`
	// Found is what it objects to: words of the reply, or what is wrong with the output.
	Found string `json:"found,omitempty"`
	// Times is how often it has objected, with this one, since a person spoke. Accepted says that the text was taken for an answer all
	// the same.
	Times    int  `json:"times"`
	Accepted bool `json:"accepted,omitempty"`
}

// judgeEmpty is the judge of empty replies, which no agent is without.
const judgeEmpty = "empty"

// maxFound bounds Judged.Found, in bytes.
const maxFound = 256

// judged tells of an objection after so many by the same judge.
func (o *Objection) judged(times int) *Judged {
	return &Judged{Judge: o.Judge, Found: clip.Text(o.Found, maxFound), Times: times + 1, Accepted: times >= o.Most && !o.Required}
}

// ending is how a run ends whose output a gate has sent back so often.
func (o *Objection) ending(times int) *Ending {
	return &Ending{
		Reason: ReasonError, Code: sdk.CodeNoAnswer, Detail: o.Judge,
		Message: fmt.Sprintf("the output did not pass %s, which has sent it back %d times: %s", o.Judge, times, o.Found),
	}
}

// object sends a text back that a judge objects to, unless it has done so as often as it may. It reports whether the reply is dealt with.
func (t *transition) object(ev *Replied) (done bool, err error) {
	for _, o := range ev.Objections {
		if ev.Final && o.WantsCalls {
			o.Most = 0
		}
		if t.sendsBack(o, ev.Reply.Text) {
			return true, nil
		}
		if o.Required {
			return true, t.finish(*o.ending(t.Head.Answers.refused(o.Judge)))
		}
	}
	return false, nil
}

// sendsBack sends a text back, unless the judge has done so as often as it may, or the model is not called any more, so that the run would
// end without an answer. said is the text; empty is that the conversation has it.
func (t *transition) sendsBack(o Objection, said string) bool {
	h := &t.Head
	if _, last := stopped(t.spec, h); last && !o.Required {
		o.Most = 0
	}
	times := h.Answers.refused(o.Judge)
	t.Judged = o.judged(times)
	if times >= o.Most {
		return false
	}
	h.Answers.Refused = slices.DeleteFunc(slices.Clone(h.Answers.Refused), func(r Refused) bool { return r.Judge == o.Judge })
	h.Answers.Refused = append(h.Answers.Refused, Refused{Judge: o.Judge, Times: times + 1})
	if said != "" {
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, said))
	}
	h.Lifecycle = sdk.LifecycleNudge
	t.nudge(o.Nudge)
	return true
}

// spoken begins to count anew, because a person has spoken.
func (t *transition) spoken() {
	t.Head.Answers.Refused = nil
	t.replan()
	if t.spec.Judged {
		t.Head.Answers.Heard = t.Head.Turns
	}
}

// LastTurn reports whether the next model call is the last one that the run may make, and is to be for a summary.
func (s *Spec) LastTurn(h *Head) bool { return s.Summary && s.Interactions(h).Exhausted }

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
		t.Judged = &Judged{Judge: judgeEmpty, Times: h.Answers.Empty + 1}
		return t.finish(Ending{
			Reason: ReasonError, Code: sdk.CodeNoAnswer, Detail: "empty",
			Message: fmt.Sprintf("the model gave %d empty replies in a row, the last one when it was asked for a summary", h.Answers.Empty+1),
		})
	}
	h.Answers.Empty++
	t.Judged = &Judged{Judge: judgeEmpty, Times: h.Answers.Empty}
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
