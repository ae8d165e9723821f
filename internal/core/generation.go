package core

import (
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// MaxRetries is how often a run can be taken up: each event that did is remembered, so that one which comes again changes nothing.
const MaxRetries = 32

// RetryEvent is the operator's event that took up a run which had ended, to go on or to undo calls. What follows it in the journal is the
// next generation of the run: it has a terminal event, a deadline and limits of its own.
type RetryEvent struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	// Token identifies the event, as an init event's does: wire.InitToken. Before are the tokens of those before it.
	Token  string   `json:"token"`
	Before []string `json:"before,omitempty"`
	// Who is the principal that sent it, as the broker enforced it.
	Who string `json:"who,omitempty"`
	// Turns and Tokens are what the run had used of its limits until then.
	Turns  int   `json:"interactions"`
	Tokens int64 `json:"tokens,omitempty"`
}

// Left is what a run that ended had, and what a retry gives back to it. An undo gives back what hooks keep, and nothing else.
type Left struct {
	// Calls are those of the open round, Notes the messages that waited for its end, and Ahead how many of them are urgent.
	Calls  []Call      `json:"calls,omitempty"`
	Notes  []string    `json:"notes,omitempty"`
	Ahead  int         `json:"ahead,omitempty"`
	Grants []Grant     `json:"grants,omitempty"`
	Hooks  []HookState `json:"hooks,omitempty"`
	Review bool        `json:"review,omitempty"`
	// Stop and Code are Head.Stop, and the ReasonCode that goes with it.
	Stop string `json:"stop,omitempty"`
	Code string `json:"code,omitempty"`
}

// Generation is what the terminal event of the run's generation follows from: the event that started the run, or the one that took it up
// last in that event's place. Who called the agent is told of no end but the first.
func (h *Head) Generation() Init {
	init := h.Init
	if h.Retry != nil {
		init.ID, init.Token = h.Retry.ID, h.Retry.Token
		init.Reply = nil
	}
	return init
}

// Generations are the tokens of the events that the terminal events of the run follow from, in order.
func (h *Head) Generations() []string {
	tokens := []string{h.Init.Token}
	if h.Retry != nil {
		tokens = append(append(tokens, h.Retry.Before...), h.Retry.Token)
	}
	return tokens
}

// RetriedBy reports whether the event with that token has taken up the run.
func (h *Head) RetriedBy(token string) bool {
	return h.Retry != nil && (h.Retry.Token == token || slices.Contains(h.Retry.Before, token))
}

// RetryOf is the id of the run's first terminal event; empty for a run that was not taken up again.
func (h *Head) RetryOf() string {
	if h.Retry == nil {
		return ""
	}
	return wire.TerminalID(h.Key(), h.Init.Token)
}

// CheckRetry says why a run cannot be retried as it is now, or nil.
func (h *Head) CheckRetry() *sdk.Error {
	refused := func(format string, args ...any) *sdk.Error { return sdk.Errorf(sdk.CodeRetryRefused, format, args...) }
	switch {
	case h.Status != StatusDone:
		return refused("the run has not ended: it is %s", h.Status)
	case h.Init.Reply != nil:
		return refused("the run answers a call of run %q; retry the caller", h.Init.ReplySubject)
	case h.Purged != nil, h.ReasonCode == string(sdk.CodeStateLost):
		return refused("the run's history is gone; start another run")
	case !h.Reason.Retryable():
		return refused("the run ended with %s; only runs that ended with %s, %s or %s can be retried",
			h.Termination(), ReasonError, ReasonQuota, ReasonDeadline)
	case h.Retry != nil && len(h.Retry.Before)+1 >= MaxRetries:
		return refused("the run was taken up %d times; start another run", MaxRetries)
	}
	return nil
}

// turns counts the model calls of the run's generation, which has limits of its own.
func (h *Head) turns() int {
	if h.Retry == nil {
		return h.Turns
	}
	return h.Turns - h.Retry.Turns
}

// Interactions are the model calls that the run has made and may make: those before it was last taken up do not count against its limit. The
// last one is exhausting.
func (s *Spec) Interactions(h *Head) sdk.Interactions {
	return sdk.Interactions{Current: h.Turns, Max: h.Turns - h.turns() + s.MaxTurns, Exhausted: h.turns()+1 >= s.MaxTurns}
}

// Unbegun reports whether the run has done nothing but build its context. When it is retried, it does so again. A message that has
// come into the conversation is said once, and must not be forgotten: then the context stays as well.
func (h *Head) Unbegun() bool {
	return h.Turns == 0 && h.Round == 0 && !slices.ContainsFunc(h.Heard, h.said)
}

// said reports whether a message that was heard is in the conversation.
func (h *Head) said(note string) bool {
	return !slices.Contains(h.Notes, note) && (h.Left == nil || !slices.Contains(h.Left.Notes, note))
}

// takesUp reports whether a retry goes on with a call. It does not with a tool that may have run and must not run again, with one that
// nobody could give permission for, nor with an agent that was told that nobody waits: the model calls those again, if it wants to.
func (t *transition) takesUp(c *Call) bool {
	if c.Closed() || c.Status == CallRunning {
		return false
	}
	if request := t.Head.Call(c.Held); c.Held != "" && request.Closed() {
		return false
	}
	callee := t.spec.callee(c)
	return callee == nil || !callee.Agent || !c.Awaited()
}

// leave is what a run that ends for that reason leaves for a retry, or for calls that undo others; nil is nothing.
func (t *transition) leave(reason Reason) *Left {
	h := &t.Head
	if !reason.Retryable() || h.Init.Reply != nil {
		if len(t.spec.Undo) == 0 || len(h.Hooks) == 0 {
			return nil
		}
		return &Left{Hooks: h.Hooks}
	}
	left := Left{Grants: h.Grants, Hooks: h.Hooks, Review: h.Review, Stop: h.Stop}
	if h.stopping() {
		left.Code = h.ReasonCode
	}
	if h.open(t.takesUp) {
		left.Calls = cloneCalls(h.Calls)
	} else if left.Stop == restText {
		left.Stop = ""
	}
	if len(left.Calls) > 0 || h.Unbegun() {
		left.Notes, left.Ahead = h.Notes, h.Ahead
	}
	if len(left.Calls)+len(left.Notes)+len(left.Grants)+len(left.Hooks) == 0 && !left.Review && left.Stop == "" {
		return nil
	}
	return &left
}

// retried takes up the run from where it ended. What has a result keeps it; what the end gave up is asked for again.
func (t *transition) retried(ev Retried) error {
	h := &t.Head
	token := wire.InitToken(ev.Source, ev.ID)
	if h.RetriedBy(token) {
		return ErrStale
	}
	if refusal := h.CheckRetry(); refusal != nil {
		return refusal
	}
	if h.Unbegun() != (ev.Beginning != nil) {
		return violation(h, "a retry with the beginning %v after %d interactions", ev.Beginning, h.Turns)
	}
	t.regenerate(ev.Operation, token)
	if h.Left != nil {
		t.takeUp(*h.Left)
	}
	t.closeSteps()
	if ev.Beginning != nil {
		t.begins(ev.Beginning)
	}
	return t.settle()
}

// regenerate begins the next generation of the run.
func (t *transition) regenerate(by Operation, token string) {
	h := &t.Head
	retry := RetryEvent{ID: by.ID, Source: by.Source, Token: token, Who: by.Who, Turns: h.Turns, Tokens: h.TokensUsed()}
	spent := retry.Tokens
	if before := h.Retry; before != nil {
		retry.Before = append(slices.Clip(before.Before), before.Token)
		spent -= before.Tokens
	}
	if h.Budget > 0 {
		h.Budget = sum(h.Budget, spent)
	}
	h.Retry, h.Deadline = &retry, t.in.At+t.spec.RunDeadline
	h.Status, h.Reason, h.ReasonCode, h.Children = StatusWaiting, "", "", 0
}

// takeUp gives the run back what it had, and asks again whoever was told that nobody waits.
func (t *transition) takeUp(left Left) {
	h := &t.Head
	h.Left, h.Notes, h.Ahead, h.Grants, h.Hooks = nil, left.Notes, left.Ahead, left.Grants, left.Hooks
	h.Review, h.Stop, h.ReasonCode = left.Review, left.Stop, left.Code
	h.Calls, t.calls = cloneCalls(left.Calls), left.Calls
	t.Reopens = len(left.Calls) > 0
	for i := range h.Calls {
		c := &h.Calls[i]
		switch {
		case c.Closed():
		case c.Status == CallRunning:
			c.Status = CallFailed // the end has told that its outcome is unknown
			t.tellLater(c)
		case !t.takesUp(c):
			c.Status, c.Held, c.Reserved, c.RetryAt = CallCancelled, "", 0, 0
			t.tellLater(c)
		case c.Awaited():
			t.repeat(c)
		}
		if callee := t.spec.tool(c.Tool); callee != nil && c.ofModel() && !c.Closed() {
			t.countChild(callee)
		}
	}
}

// repeat makes the next attempt at a call whose attempts were given up: their answers do not count any more.
func (t *transition) repeat(c *Call) {
	if c.Kind == CallQuestion && c.Origin == 0 {
		c.Origin = c.Sent
	}
	c.Voided, c.Due = c.attempt(), 0
	c.Repeated++
	t.resend(c)
}
