// Package milestone says what watchers of a run are told of an entry of its journal: a function of the entry and of nothing
// else, so that whoever missed some is given the same again.
package milestone

import (
	"encoding/json"
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Of are the live events of an entry, numbered by its revision and their index (docs/wire.md, "Live events").
func Of(e *core.Entry) []wire.Live {
	var t teller
	for _, part := range e.Parts() {
		t.entry = part
		t.tellAll()
	}
	for i := range t.events {
		t.events[i].Count = len(t.events)
	}
	return t.events
}

// tellAll tells of one part of the entry.
func (t *teller) tellAll() {
	e := t.entry
	t.planned()
	t.said()
	t.asked()
	for i := range e.Results {
		t.result(&e.Results[i])
	}
	for _, g := range e.Guards {
		t.tell(wire.MilestoneGuarded, guarded{Guard: g.Guard, Tool: g.Tool, Call: g.Call, Reason: g.Reason})
	}
	if s := e.Summary; s != nil {
		t.tell(wire.MilestoneCompacted, compacted{Messages: s.Messages, Lined: s.Lined, Evicted: s.Evicted, Files: s.Files})
	}
	if o := e.Offered; o != nil {
		t.tell(wire.MilestoneChosen, chosen{By: o.By, Tools: o.Tools, Degraded: o.Degraded})
	}
	t.stepsEnded()
	t.state()
}

// teller collects the events of an entry, of which entry is the part that is told.
type teller struct {
	entry  *core.Entry
	events []wire.Live
}

// tell adds one event. Its data is built from the entry, so it always encodes.
func (t *teller) tell(kind string, data any) {
	encoded, err := json.Marshal(data) // sorts the keys of maps
	if err != nil {
		encoded = nil
	}
	h := &t.entry.Head
	t.events = append(t.events, wire.Live{
		Run: h.Run, Agent: h.Agent, Revision: t.entry.Rev, Index: len(t.events), Turn: h.Turns, Type: kind,
		Time: t.entry.At, Data: encoded,
	})
}

// said tells what was said: by who started the run, the model, the person it talks to, and who sends messages into the run.
func (t *teller) said() {
	e := t.entry
	switch e.Kind {
	case core.KindStarted:
		t.tell(wire.MilestoneStarted, runStarted{Input: e.Input})
	case core.KindRetried:
		t.tell(wire.MilestoneRetried, runRetried{Event: e.Head.Retry.ID, Who: e.Head.Retry.Who})
	case core.KindUndoAsked:
		t.tell(wire.MilestoneUndoing, runUndoing{Calls: e.Head.Undo, Event: e.Head.Retry.ID, Who: e.Head.Retry.Who})
	}
	for _, m := range e.Messages {
		t.message(m)
	}
	for i := range e.Corrections {
		c := &e.Corrections[i]
		t.tell(wire.MilestoneCorrected, callCorrected{Correction: *c, Tool: toolOf(e, c.Call)})
	}
	for _, n := range e.Notes {
		if n.Event != "" {
			t.tell(wire.MilestoneMessage, runMessage{Message: n.Text, Who: n.Who})
		}
	}
	reminders := e.Head.Progress.Reminders
	if e.Kind == core.KindReplied && e.Head.Lifecycle == sdk.LifecycleReminder && reminders > 0 && e.Terminal == nil {
		t.tell(wire.MilestoneReminded, map[string]any{"reminders": reminders})
	}
	if j := e.Judged; j != nil {
		t.tell(wire.MilestoneJudged, j)
		if len(e.Messages) > 0 && !j.Accepted && e.Terminal == nil {
			t.tell(wire.MilestoneCleared, cleared{Judge: j.Judge})
		}
	}
	if e.Misread != "" {
		t.tell(wire.MilestoneReminded, map[string]any{"reminders": reminders, "class": e.Misread})
	}
}

func (t *teller) message(m sdk.Message) {
	conversing := slices.ContainsFunc(t.entry.Head.Calls, func(c core.Call) bool { return c.Kind == core.CallTurn })
	for _, c := range m.Content {
		switch {
		case c.Kind == sdk.ContentToolUse:
			t.tell(wire.MilestoneCall, callOpened{Args: c.Args, Call: c.CallID, Tool: c.Tool})
		case c.Kind != sdk.ContentText:
		case t.entry.Kind == core.KindRouted: // the steps are told
		case m.Role == sdk.RoleAssistant && conversing:
			t.tell(wire.MilestoneTurn, conversed{Message: c.Text})
		case m.Role == sdk.RoleAssistant:
			t.tell(wire.MilestoneReply, modelReply{Text: c.Text})
		case t.entry.Kind == core.KindAnswered && isTurnAnswer(m):
			told := turnAnswered{Message: c.Text}
			if i := slices.IndexFunc(t.entry.Results, func(r core.Result) bool { return r.Data == nil }); i >= 0 {
				told.Call, told.Event = t.entry.Results[i].Call, t.entry.Results[i].Event
			}
			t.tell(wire.MilestoneAnswer, told)
		}
	}
}

// isTurnAnswer reports whether a message of an answer is what the person said. Others tell the model of decisions, of messages that
// were sent into the run, and of the media of results.
func isTurnAnswer(m sdk.Message) bool { return len(m.Content) == 1 && m.Content[0].CallID == "" }

// asked tells what people and context providers are asked, and what people decided. The question for context is left out: it
// repeats what was told before.
func (t *teller) asked() {
	e := t.entry
	for _, r := range e.Requests {
		request := r.ID
		if c := e.Head.Call(r.ID); c != nil {
			request = c.Event()
		}
		t.tell(wire.MilestoneRequested, map[string]any{"request": request, "asked": r.Data})
	}
	for i, d := range e.Decisions {
		if d.Decision != sdk.DecisionViewed {
			told := decided(&e.Head, d)
			told.More = d.Event != "" && i+1 < len(e.Decisions) && e.Decisions[i+1].Event == d.Event
			if d.Refused == "" {
				told.Args = editOf(e, d.Call)
			}
			t.tell(wire.MilestoneDecided, told)
		}
	}
	for _, a := range e.Asks {
		t.tell(wire.MilestoneAsked, questioned{Question: a.ID, Call: a.Call, Asked: a.Data})
	}
	for _, q := range e.Inquiries {
		t.tell(wire.MilestoneInquired, inquired{Section: q.Section, Call: q.ID})
	}
}

// editOf are the arguments that the entry puts in place of the model's; nil is none.
func editOf(e *core.Entry, call string) json.RawMessage {
	for _, edit := range e.Edits {
		if edit.Call == call {
			return edit.Args
		}
	}
	return nil
}

// decided is a decision with what is still waited for before its call is made.
func decided(h *core.Head, d core.Decision) wire.Decided {
	told := wire.Decided{Decision: d}
	undecided := 0
	for i := range h.Calls {
		c := &h.Calls[i]
		switch {
		case c.Closed():
		case c.ID == d.Request && c.Permission.Quorum > 1:
			told.Allowed, told.Quorum = len(c.Permission.Allowed), c.Permission.Quorum
		case c.Permission != nil:
			undecided++
			if d.Batch != "" && c.Permission.Batch == d.Batch {
				told.Rest++
			}
		case c.ID == d.Call:
			told.Queued = c.Queued && c.Held == ""
		}
	}
	if told.Queued {
		told.Undecided = undecided
	}
	return told
}

// result tells how a call ended: a decided permission request was told as its decision, and a turn's answer as what the person
// said.
func (t *teller) result(r *core.Result) {
	e := t.entry
	if section := sectionOf(e, r.Call); section != "" {
		t.tell(wire.MilestoneInformed, inquired{Section: section, Call: r.Call, Answer: r.Data, Error: r.Error})
		return
	}
	if c := e.Head.Call(r.Call); c != nil && c.Kind == core.CallQuestion {
		t.tell(wire.MilestoneAnswered, questioned{Question: r.Call, Call: c.Tool, Answer: r.Data, Error: r.Error, Event: r.Event})
		return
	}
	decided := slices.ContainsFunc(e.Decisions, func(d core.Decision) bool { return d.Request == r.Call })
	if r.Data == nil || decided {
		return
	}
	tool := toolOf(e, r.Call)
	t.tell(wire.MilestoneResult, callResult{Call: r.Call, Data: r.Data, Error: r.Error, Event: r.Event, Kind: r.Kind, Tool: tool})
	if tool == sdk.ToolUpdatePlan && r.Kind == core.ResultInline && !r.Error {
		t.tell(wire.MilestonePlan, planUpdated{Call: r.Call, Plan: r.Data})
	}
}

// sectionOf is the section of the prompt that a call asks for; empty is a call of another kind.
func sectionOf(e *core.Entry, call string) string {
	for _, q := range e.Inquiries {
		if q.ID == call {
			return q.Section
		}
	}
	if c := e.Head.Call(call); c != nil && c.Kind == core.CallContext {
		return c.Tool
	}
	for _, in := range e.Head.Informed {
		if in.Call == call {
			return in.Section
		}
	}
	return ""
}

// toolOf names the tool of a call. A call that ended with its round is only in the messages.
func toolOf(e *core.Entry, call string) string {
	if c := e.Head.Call(call); c != nil {
		return c.Tool
	}
	for _, m := range e.Messages {
		for _, c := range m.Content {
			if c.CallID == call {
				return c.Tool
			}
		}
	}
	return ""
}

// held tells that the run does nothing for now, and why, or that it may go on.
func (t *teller) held() {
	e, p := t.entry, t.entry.Head.Parked
	switch e.Kind {
	case core.KindParked:
		if p != nil && p.Until > 0 {
			t.tell(wire.MilestoneParked, runParked{
				Code: p.Code, Message: p.Message, Model: p.Model, Since: p.Since, Tries: p.Tries, Until: p.Until, Why: p.Why,
			})
		}
	case core.KindPauseAsked:
		if e.Head.Paused != nil {
			t.tell(wire.MilestonePaused, runPaused{Reason: e.Head.Paused.Reason})
		}
	case core.KindResumeAsked:
		t.tell(wire.MilestoneResumed, struct{}{})
	}
}

// state tells where the run is after the entry: what it has used, and whether it waits or has ended.
func (t *teller) state() {
	e, h := t.entry, &t.entry.Head
	if e.Kind == core.KindReplied {
		t.tell(wire.MilestoneUsage, runUsage{Turns: h.Turns, Total: h.Usage})
	}
	if len(e.Checkpoints) > 0 {
		t.tell(wire.MilestoneCheckpoint, checkpointed{Checkpoints: e.Checkpoints})
	}
	t.held()
	switch h.Status {
	case core.StatusWaiting:
		open := 0
		for i := range h.Calls {
			if !h.Calls[i].Closed() {
				open++
			}
		}
		t.tell(wire.MilestoneSuspended, runSuspended{Calls: open})
	case core.StatusDone:
		if h.Reason == core.ReasonQuota {
			t.tell(wire.MilestoneExhausted, map[string]any{
				"limit": h.ReasonCode, "interactions": h.Turns, "used": h.TokensUsed(),
			})
		}
		if e.Terminal != nil {
			t.tell(wire.MilestoneFinished, runFinished{
				Code: h.ReasonCode, Data: e.Terminal.Data, Reason: h.Reason, Type: e.Terminal.Type,
			})
		}
	case core.StatusRunning:
	}
}
