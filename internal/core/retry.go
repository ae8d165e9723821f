package core

import (
	"cmp"
	"hash/fnv"
	"slices"

	"agentd/sdk"
)

// refused absorbs an error that may pass. RetryAt is set when another attempt is to be made; if not, the error is the
// call's result. An error of an attempt that already has a successor is stale.
func (t *transition) refused(c *Call, attempt int) error {
	if attempt < c.attempt() || slices.Contains(c.Refused, attempt) {
		return ErrStale
	}
	if t.retryLater(c) {
		c.Refused = append(slices.Clip(c.Refused), attempt)
	}
	return nil
}

// retryLater plans the next attempt, unless the call has had all of them.
func (t *transition) retryLater(c *Call) bool {
	tool, attempts := t.spec.callee(c), c.attempt()-c.Voided
	if c.Kind != CallService && c.Kind != CallContext || tool == nil || attempts >= tool.Retry.Attempts {
		return false
	}
	c.RetryAt, c.Due = t.in.At+tool.Retry.pause(c.ID, attempts, 0), 0
	return true
}

// pause is how long after that attempt the next one follows, at least so many milliseconds. Up to a quarter more of it, or of Longest,
// is added by the id of who pauses, so that those which an outage refused together do not all come back together.
func (r Retry) pause(id string, attempt int, least int64) int64 {
	pause := max(r.Pause, 1)
	for range attempt - 1 {
		if pause = 2 * pause; r.Longest > 0 && pause >= r.Longest {
			pause = r.Longest
			break
		}
	}
	pause = max(pause, least)
	added := pause
	if r.Longest > 0 {
		added = min(pause, r.Longest)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // never fails
	return pause + added/4*int64(hash.Sum32()%1000)/1000
}

// resend makes the next attempt at c. The attempts before stay valid: the first answer to any is the result.
func (t *transition) resend(c *Call) {
	tool := t.spec.callee(c)
	if tool == nil {
		t.close(c, failure(c.ID, ResultTimeout, missing(c.Tool)))
		return
	}
	c.Attempt, c.Sent, c.RetryAt = c.attempt()+1, t.in.Rev, 0
	if tool.Timeout > 0 {
		c.Due = t.in.At + tool.Timeout
	}
	t.emit(Effect{
		Kind: EffectCall, Call: c.Event(), Attempt: c.Attempt, Repeated: c.Repeated, Opened: cmp.Or(c.Origin, c.Edited, t.Head.openedBy(c)),
		Type: c.Type, Domains: c.Domains, Schema: tool.Schema, ParentSubject: tool.ParentSubject,
		Caller: t.spec.callerType(tool),
	})
}

// missing says that the agent no longer has a tool that a call waits for: its code is gone, or its contract.
func missing(tool string) *sdk.Error {
	return sdk.Errorf(sdk.CodeContractMissing, "the agent no longer has %s", tool)
}

// timedOut gives up an attempt at c that nobody answered in time.
func (t *transition) timedOut(c *Call) {
	if t.retryLater(c) {
		return
	}
	t.void(c)
	t.account(c, -1)
	t.close(c, failure(c.ID, ResultTimeout, sdk.Errorf(sdk.CodeDeadline, "%s did not answer in time", c.Tool)))
}

// voidOthers says of every attempt at c but the answered ones that nobody waits any more.
func (t *transition) voidOthers(c *Call, answered int) {
	for attempt := c.Voided + 1; attempt <= c.attempt(); attempt++ {
		if attempt == answered || slices.Contains(c.Refused, attempt) || t.Head.sharesAttempt(c, attempt) {
			continue
		}
		f := Effect{Kind: EffectVoid, Call: c.Event(), Type: c.Type, Domains: c.Domains}
		if attempt > 1 {
			f.Attempt = attempt
		}
		t.Effects = append(t.Effects, f)
	}
}

// Cost is what the model calls cost that an event is the outcome of.
func Cost(ev Event) sdk.ModelReply {
	switch ev := ev.(type) {
	case Replied:
		return ev.Reply
	case Planned:
		return ev.Reply
	case Routed:
		return ev.Reply
	case Compacted:
		return ev.Reply
	}
	return sdk.ModelReply{}
}

// interrupted ends a run that was cancelled while its driver worked. What the work cost and did is kept.
func (t *transition) interrupted(e Ending) error {
	switch ev := t.in.Event.(type) {
	case Replied:
		t.count(ev.Reply)
		t.keep(ev.Hooks)
	case Planned:
		if ev.Asked {
			t.count(ev.Reply)
		}
		t.keep(ev.Hooks)
	case Routed:
		if !ev.Unasked {
			t.count(ev.Reply)
		}
		t.keep(ev.Hooks)
	case Compacted:
		t.cost(ev.Reply)
	case Ended:
		t.keep(ev.Hooks)
	case Reviewed:
		t.keep(ev.Hooks)
	case Returned:
		if err := t.record(ev.Results); err != nil {
			return err
		}
		t.keep(ev.Hooks)
	}
	return t.finish(e)
}
