package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Where an agent's runs go on with a round when any of its calls has its result, or an agent that was called asks something, the calls that
// are open leave the round, and stay in the head: they are carried, with what people are asked of them. The model is shown that they are
// pending, so that its calls and their results stay paired. The result of a carried call waits as a message does, under the call's id, and
// is told once.

// MaxCarried bounds what a run that goes on with a round leaves open: calls, permission requests and questions. With more it waits.
const MaxCarried = 32

func (c *Call) carried() bool { return c.Opened > 0 }

// belongsTo is the id of the call that a permission request or a question is for, or the call's own.
func (c *Call) belongsTo() string {
	if c.Permission != nil {
		return c.Permission.Call
	}
	return cmp.Or(c.Asker(), c.ID)
}

// OpenedBy is the revision of the entry that opened the round of a call.
func (h *Head) OpenedBy(call string) uint64 {
	if c := h.Call(call); c != nil {
		return h.openedBy(c)
	}
	return h.Opened
}

func (h *Head) openedBy(c *Call) uint64 { return cmp.Or(c.Opened, h.Opened) }

// hasRound reports whether a call may be of the round with that number.
func (h *Head) hasRound(c *Call, round int) bool {
	return round == h.Round || c.carried() && round < h.Round
}

// RoundOpen reports whether a round is open: then no model is called.
func (h *Head) RoundOpen() bool {
	return slices.ContainsFunc(h.Calls, func(c Call) bool { return !c.carried() })
}

// openRound reports whether a call of the round has no result yet.
func (h *Head) openRound() bool { return h.open(func(c *Call) bool { return !c.carried() }) }

// carries reports whether calls of rounds before are open, or have results that were not told.
func (h *Head) carries() bool {
	return slices.ContainsFunc(h.Calls, func(c Call) bool { return c.carried() })
}

// roundCalls are those of the open round.
func (h *Head) roundCalls() []Call {
	return slices.DeleteFunc(slices.Clone(h.Calls), func(c Call) bool { return c.carried() })
}

// awaitsCalls reports whether the run has nothing to do before somebody else has answered.
func (h *Head) awaitsCalls() bool {
	if !h.openAny() || h.openInline() {
		return false
	}
	rests := h.Stop == restText && len(h.Notes) == 0
	return h.RoundOpen() || rests || h.stopping() && h.Stop != restText
}

// goesOn reports whether the run goes on with the open round, although calls of it are open: there is something that the model has not seen,
// which its agent does not leave until the round is complete, or which somebody waits for.
func (t *transition) goesOn() bool {
	h := &t.Head
	if !t.spec.Continues && !h.hasQuestion() || len(h.Undo) > 0 || h.stopping() || h.openInline() {
		return false
	}
	news, open := slices.ContainsFunc(h.Notes, isCall) || h.hasQuestion(), 0
	for i := range h.Calls {
		c := &h.Calls[i]
		switch {
		case !c.Closed():
			open++
		case c.ofModel() && !c.carried():
			news = true
		}
		if !c.carried() && (c.Kind == CallTurn || c.Kind == CallContext) {
			return false
		}
	}
	return news && open <= MaxCarried && (h.hasQuestion() || !t.tokensKept())
}

// tokensKept reports whether the model may be called again, and only tokens that agents give back are missing.
func (t *transition) tokensKept() bool {
	return t.Head.turns() < t.spec.MaxTurns && t.Head.tokensKept()
}

// waitsForTokens reports whether the model would be called next, if all tokens that are left were not kept for agents which still work. One
// that has asked something, and waits for the answer, is not waited for.
func (t *transition) waitsForTokens() bool {
	h := &t.Head
	if h.RoundOpen() || h.stopping() || h.Review || len(h.Notes) > 0 || len(h.Undo) > 0 || !t.tokensKept() {
		return false
	}
	return h.open(func(c *Call) bool {
		return c.Reserved > 0 && !slices.ContainsFunc(h.Questions, func(q Question) bool { return q.Call == c.ID && !q.Answered })
	})
}

// carry takes the calls of the round out of the head, but for those that are open.
func (t *transition) carry() {
	h := &t.Head
	live := h.live()
	h.Calls = slices.DeleteFunc(h.Calls, func(c Call) bool { return !c.carried() && !live[c.belongsTo()] })
	for i := range h.Calls {
		h.Calls[i].Opened = h.openedBy(&h.Calls[i])
	}
	if len(h.Calls) == 0 {
		h.Calls = nil
	}
}

// live are the calls that are open, for which people are asked, or whose results are to be told; with those that one event asks for together
// with a request which is open.
func (h *Head) live() map[string]bool {
	live := map[string]bool{}
	for i := range h.Calls {
		c := &h.Calls[i]
		if !c.Closed() || slices.Contains(h.Notes, c.ID) {
			live[c.belongsTo()] = true
		}
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.batched() && h.open(func(o *Call) bool { return o.Event() == c.Event() }) {
			live[c.belongsTo()] = true
		}
	}
	return live
}

// forgetClosed takes carried calls out of the head that have nothing more to tell. While calls are to be ruled on, those stay that people have
// decided on.
func (t *transition) forgetClosed() {
	h := &t.Head
	if !h.carries() || h.openInline() {
		return
	}
	t.checkCalls(h.Calls)
	live := h.live()
	h.Calls = slices.DeleteFunc(h.Calls, func(c Call) bool { return c.carried() && !live[c.belongsTo()] })
	if len(h.Calls) == 0 {
		h.Calls = nil
	}
}

// tellLater notes that the result of a carried call is to be told, or what was decided on it. A run that was to rest goes on
// with it.
func (t *transition) tellLater(c *Call) {
	h := &t.Head
	told := c.ofModel() || c.Permission != nil && c.Permission.Told && c.Status != CallCancelled
	if !c.carried() || !told {
		return
	}
	h.Notes = append(slices.Clip(h.Notes), c.ID)
	if h.Stop == restText {
		t.stopOn("", "")
	}
	if tool := t.spec.tool(c.Tool); tool == nil || !tool.ReadOnly {
		h.Guarded.Known = nil
	}
}

// unreviewed are the results of carried calls that came while hooks were shown those in reviewed: they are told after the next review.
func (t *transition) unreviewed(reviewed []string) []string {
	var kept []string
	for _, id := range t.Head.Notes {
		if c := t.Head.Call(id); t.spec.Reviews && c != nil && c.ofModel() && !slices.Contains(reviewed, id) {
			kept = append(kept, id)
		}
	}
	return kept
}

// stopLate has the run stop on the result of a carried call that is told now, where its agent stops on its tool.
func (t *transition) stopLate(kept []string) {
	h := &t.Head
	for _, id := range h.Notes {
		c := h.Call(id)
		if c != nil && c.ofModel() && c.Status == CallSucceeded && !h.stopping() && t.spec.stopsOn(c.Tool) && !slices.Contains(kept, id) {
			t.stopOn(id, stopTool)
		}
	}
}

// isCall reports whether a note is the result of a carried call, or a decision on one.
func isCall(note string) bool {
	_, call := wire.ParseCallRef(note)
	return call
}

// resultOf is what the model is shown of a call when its round is closed.
func resultOf(c *Call) sdk.Content {
	shown := sdk.Content{Kind: sdk.ContentToolResult, CallID: c.ID, Tool: c.Tool, IsError: c.Status != CallSucceeded}
	if !c.Closed() {
		shown.IsError, shown.Pending, shown.Text = false, true, pendingText(c)
	}
	return shown
}

func pendingText(c *Call) string {
	text, err := EncodeJSON(map[string]string{"pending": fmt.Sprintf("call %s of %s has no result yet. The result will come as a message. Do not make the "+
		"call again. Go on with what can be done without it, or say what you wait for", wire.CallPlace(c.ID), c.Tool)})
	if err != nil {
		text = json.RawMessage(`{"pending":"there is no result yet"}`)
	}
	return string(text)
}

// note is the message for a note: what was sent into the run, the result of a carried call, or a decision on one.
func (h *Head) note(id string) sdk.Message {
	m := sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentText, CallID: id}}}
	c := h.Call(id)
	switch {
	case c == nil:
	case !c.ofModel():
		m.Content[0].Tool = c.Tool
	default:
		text := fmt.Sprintf("Call %s of %s, which was pending, has this result:", wire.CallPlace(c.ID), c.Tool)
		late := sdk.Content{Kind: sdk.ContentText, CallID: id, Tool: c.Tool, IsError: c.Status != CallSucceeded, Pending: true}
		m.Content = append([]sdk.Content{{Kind: sdk.ContentText, Text: text}, late}, mediaOf(c)...)
	}
	return m
}

// Untold are the results of carried calls that the model was not told yet.
func (s *State) Untold() []sdk.Content {
	var untold []sdk.Content
	for _, id := range s.Head.Notes {
		c, r := s.Call(id), s.result(id)
		if c != nil && r != nil && c.ofModel() {
			untold = append(untold, sdk.Content{
				Kind: sdk.ContentText, CallID: id, Tool: c.Tool, Text: string(r.Data), IsError: c.Status != CallSucceeded, Pending: true,
			})
		}
	}
	return untold
}

// refusePending refuses calls that are open already: they have results yet to come.
func (p *Admission) refusePending(h *Head) {
	for i := range p.Calls {
		c := &p.Calls[i]
		pending := func(o *Call) bool {
			ref, _ := wire.ParseCallRef(o.ID)
			return o.ofModel() && o.Tool == c.Tool && o.ID == wire.CallID(h.Key(), h.Init.Token, ref.Step, ref.Index, c.Tool, c.Args)
		}
		if c.Refusal == nil && h.open(pending) {
			c.Refusal = sdk.Errorf(sdk.CodeConflict, "the same call of %s is pending; its result will come as a message", c.Tool)
		}
	}
}

// hasLastWord reports whether a text is the run's answer although there is more to tell its model, or results are to come: the model is not
// called any more.
func (t *transition) hasLastWord(ev *Replied) bool {
	h, rule := &t.Head, &t.spec.NoToolCall
	unheard := len(h.Notes) > 0
	if t.spec.Converse || Empty(&ev.Reply) || !ev.Final && rule.Remind && !rule.Accept || !h.carries() && !unheard {
		return false
	}
	return t.spec.exhausted(h) || unheard && over(t.spec, h) || ev.Final && h.carries() && !h.spokenTo()
}

// rest keeps a text, and has the run wait for the calls that are open: then it completes with the text (stopText), or goes on (restText).
func (t *transition) rest(text, stop, code string) error {
	if text != "" {
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, text))
	}
	t.stopOn(stop, code)
	return t.settle()
}

// watchCarried sees that the timer of a run that is driven fires when something is due of a call that is carried.
func (t *transition) watchCarried() {
	h := &t.Head
	if h.Status != StatusRunning || h.Cancel != nil {
		return
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		for _, due := range []int64{c.Due, c.RetryAt} {
			if c.carried() && !c.Closed() && due > 0 {
				t.arm(due)
			}
		}
	}
}
