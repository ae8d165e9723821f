package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
)

// Progress is what stop conditions count. A run whose agent has no condition that needs a number does not count it.
type Progress struct {
	// Failed is how many rounds in a row failed altogether.
	Failed int `json:"failed,omitempty"`
	// Same is how many calls in a row failed in the way that Fault names: tool and error code.
	Same  int    `json:"same,omitempty"`
	Fault string `json:"fault,omitempty"`
	// Rounds are hashes of the calls of the last rounds, the latest last; at most sdk.MaxLoopWindow.
	Rounds []string `json:"rounds,omitempty"`
	// Reminders is how many replies in a row were answered with a reminder.
	Reminders int `json:"reminders,omitempty"`
}

// CodeDegraded is the reason code of a run whose output is a text of its agent's, because no model answered.
const CodeDegraded = "degraded"

// NoToolCall is what becomes of replies without a call.
type NoToolCall struct {
	// Remind asks for a call, up to Limit times in a row; then Accept takes the text, and else the run ends.
	Remind, Accept bool
	Limit          int
	// Text is the reminder.
	Text string
}

// outOfTokens is the Detail of the ending of a run that has no tokens left.
const outOfTokens = "tokens"

// stopped is how the run ends because of a condition that holds now, when it would call the model next.
func stopped(spec *Spec, h *Head) (Ending, bool) {
	stop, p := &spec.Stop, &h.Progress
	stalled := func(detail, format string, args ...any) (Ending, bool) {
		return Ending{ReasonStalled, sdk.CodeStalled, fmt.Sprintf(format, args...), detail}, true
	}
	tokens := func(are string) (Ending, bool) {
		return Ending{
			ReasonQuota, sdk.CodeQuotaExhausted, fmt.Sprintf("no answer within %d tokens; %d are %s", h.Budget, h.TokensUsed(), are), outOfTokens,
		}, true
	}
	switch {
	case h.turns() >= spec.MaxTurns:
		return Ending{
			ReasonQuota, sdk.CodeQuotaExhausted,
			fmt.Sprintf("no answer within %d interactions with the model", spec.MaxTurns), "interactions",
		}, true
	case h.Budget > 0 && h.spent() >= h.Budget:
		return tokens("used")
	case stop.Errors > 0 && p.Failed >= stop.Errors:
		return stalled("errors", "every call of %s in a row failed", rounds(p.Failed))
	case stop.SameError > 0 && p.Same >= stop.SameError:
		return stalled("same_error", "%d calls in a row failed in the same way: %s", p.Same, p.Fault)
	case stop.Repeats > 0 && p.repeated() >= stop.Repeats:
		return stalled("loop", "the same calls were made %d times within %s", p.repeated(), rounds(len(p.Rounds)))
	case spec.NoToolCall.Remind && !spec.NoToolCall.Accept && p.Reminders > spec.NoToolCall.Limit:
		return stalled("no_tool_call", "%d replies in a row had no tool call", p.Reminders)
	case h.tokensKept():
		return tokens("used or kept for agents that it called")
	}
	return Ending{}, false
}

// over reports whether the run's model is not called any more, whatever the agents that still work give back.
func over(spec *Spec, h *Head) bool {
	ending, stop := stopped(spec, h)
	return stop && (ending.Detail != outOfTokens || !h.tokensKept())
}

// exhausted reports whether the run has used up its model calls or its tokens, whatever the agents that still work give back.
func (s *Spec) exhausted(h *Head) bool {
	return h.turns() >= s.MaxTurns || h.Budget > 0 && h.spent() >= h.Budget
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// repeated is how often the calls of the last round were made within the window.
func (p *Progress) repeated() int {
	n := 0
	for _, hash := range p.Rounds {
		if hash == p.Rounds[len(p.Rounds)-1] {
			n++
		}
	}
	return n
}

// countRound remembers the calls of a new round.
func (t *transition) countRound(admission *Admission) {
	p := &t.Head.Progress
	p.Reminders = 0
	if t.spec.Stop.Repeats == 0 {
		return
	}
	calls := make([]string, len(admission.Calls))
	for i := range admission.Calls {
		calls[i] = admission.Calls[i].Tool + "\x00" + string(admission.Calls[i].Args)
	}
	slices.Sort(calls) // the order in a reply says nothing
	sum := sha256.Sum256([]byte(strings.Join(calls, "\x01")))
	window := cmp.Or(t.spec.Stop.Window, sdk.MaxLoopWindow)
	p.Rounds = append(slices.Clip(p.Rounds), hex.EncodeToString(sum[:8]))
	p.Rounds = p.Rounds[max(0, len(p.Rounds)-window):]
}

// countResult looks at the result of one of the model's calls.
func (t *transition) countResult(c *Call, r Result) {
	p := &t.Head.Progress
	if t.spec.Stop.SameError == 0 || !c.ofModel() {
		return
	}
	if !r.Error {
		p.Same, p.Fault = 0, ""
		return
	}
	// Texts differ where errors are the same; their codes do not.
	p.failedBy(c.Tool + " " + string(r.Code()))
}

// countFailures looks at a round that is complete.
func (t *transition) countFailures(calls []Call) {
	if t.spec.Stop.Errors == 0 {
		return
	}
	p, open := &t.Head.Progress, false
	for i := range calls {
		if calls[i].ofModel() && calls[i].Status == CallSucceeded {
			p.Failed = 0
			return
		}
		open = open || !calls[i].Closed()
	}
	if !open {
		p.Failed++
	}
}

// finalText reports whether the reply has a text that completes the run.
func (s *Spec) finalText(reply string) bool {
	return slices.ContainsFunc(s.Stop.Text, func(text string) bool { return strings.Contains(reply, text) })
}

// TokensUsed are the tokens of the run and of the agents that it called. What those that still work may use counts as used.
func (h *Head) TokensUsed() int64 {
	used := h.spent()
	for i := range h.Calls {
		if !h.Calls[i].Closed() {
			used = sum(used, h.Calls[i].Reserved)
		}
	}
	return used
}

// spent are the tokens of the run and of the agents that have answered it.
func (h *Head) spent() int64 { return sum(h.Usage.Prompt, h.Usage.Completion, h.Delegated) }

// tokensKept reports whether the run has tokens left, but all of them are kept for agents that still work: what these do not use comes back.
func (h *Head) tokensKept() bool { return h.Budget > 0 && h.TokensLeft() <= 0 && h.spent() < h.Budget }

// mostTokens is the highest count of tokens.
const mostTokens = 1<<63 - 1

// sum adds counts of tokens, up to mostTokens. Less than nothing counts as nothing: others say how many they have used.
func sum(counts ...int64) int64 {
	total := int64(0)
	for _, n := range counts {
		total += min(max(n, 0), mostTokens-total)
	}
	return total
}

// TokensLeft are the tokens that a run with a budget may still use; fewer than 0 by what its last model call was over.
func (h *Head) TokensLeft() int64 { return h.Budget - h.TokensUsed() }

// share is how many tokens a call of an agent may use: its part of what is left, and no more than the tool's bound. 0 is any
// number, where the run has no budget and the tool no bound. A run that has none left refuses the call.
func (h *Head) share(tool *Tool, part int64) (int64, *sdk.Error) {
	switch {
	case h.Budget == 0:
		return tool.Tokens, nil
	case part < 1:
		return 0, sdk.Errorf(sdk.CodeQuotaExhausted, "no tokens are left for %s", tool.Name)
	case tool.Tokens > 0:
		return min(part, tool.Tokens), nil
	}
	return part, nil
}

// account takes what a call has used of the tokens that were reserved for it; -1 is all of them, because nobody says. A call that was never made
// has used none.
func (t *transition) account(c *Call, used int64) {
	if used < 0 {
		used = c.Reserved
	}
	if c.Status == CallSuspended && c.Held == "" {
		t.Head.Delegated = sum(t.Head.Delegated, used)
	}
	c.Reserved = 0
}

// remind answers a reply without a call, unless it is to be accepted: where the model is not called again, nobody would read a reminder. It
// reports whether it did.
func (t *transition) remind(text string) bool {
	rule, h := &t.spec.NoToolCall, &t.Head
	_, last := stopped(t.spec, h)
	if !rule.Remind || rule.Accept && (last || h.Progress.Reminders >= rule.Limit) {
		return false
	}
	h.Progress.Reminders++
	h.Lifecycle = sdk.LifecycleReminder
	if text != "" {
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, text))
	}
	return true
}
