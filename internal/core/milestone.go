package core

import (
	"encoding/json"
	"slices"

	"agentd/sdk"
)

// The types of milestones.
const (
	MilestoneStarted    = "run.started"
	MilestoneReply      = "model.reply"
	MilestoneCall       = "call.opened"
	MilestoneResult     = "call.result"
	MilestoneTurn       = "conversation.turn"
	MilestoneAnswer     = "conversation.answer"
	MilestoneRequested  = "permission.requested"
	MilestoneDecided    = "permission.decided"
	MilestoneAsked      = "question.asked"
	MilestoneAnswered   = "question.answered"
	MilestoneUsage      = "run.usage"
	MilestoneCheckpoint = "checkpoint"
	MilestoneSuspended  = "run.suspended"
	MilestoneExhausted  = "run.exhausted"
	MilestoneFinished   = "run.finished"
	MilestoneMessage    = "run.message"
	MilestoneReminded   = "model.no_tool_call"
	MilestonePlan       = "plan.updated"
	MilestoneInquired   = "context.asked"
	MilestoneInformed   = "context.answered"
)

// saidKey is the member that has what somebody said.
const saidKey = "message"

// toolKey is the member that names a tool.
const toolKey = "tool"

// limitInteractions names the limit of model calls, and the member that counts them.
const limitInteractions = "interactions"

// Milestones are the live events of an entry, numbered by its revision and their index. They are a pure function of
// the entry, so that whoever missed some can be given the same again from the journal.
func Milestones(e *Entry) []sdk.Live {
	m := milestones{entry: e}
	if e.Kind == (Started{}).kind() {
		m.add(MilestoneStarted, map[string]any{"input": e.Input})
	}
	for _, msg := range e.Messages {
		m.message(msg)
	}
	for _, n := range e.Notes {
		if n.Event != "" {
			m.add(MilestoneMessage, map[string]any{saidKey: n.Text, "who": n.Who})
		}
	}
	if e.Kind == (Replied{}).kind() && e.Head.Lifecycle == sdk.LifecycleReminder && e.Head.Progress.Reminders > 0 && e.Terminal == nil {
		m.add(MilestoneReminded, map[string]any{"reminders": e.Head.Progress.Reminders})
	}
	if e.Misread != "" {
		m.add(MilestoneReminded, map[string]any{"reminders": e.Head.Progress.Reminders, "class": e.Misread})
	}
	for _, r := range e.Requests {
		m.add(MilestoneRequested, map[string]any{"request": r.ID, "asked": r.Data})
	}
	for _, d := range e.Decisions {
		if d.Decision == sdk.DecisionViewed {
			continue
		}
		m.append(MilestoneDecided, decidedIn(e, d))
	}
	for _, a := range e.Asks {
		m.append(MilestoneAsked, questioned{Question: a.ID, Call: a.Call, Asked: a.Data})
	}
	m.inquiries()
	for _, r := range e.Results {
		if section := contextOf(e, r.Call); section != "" {
			m.append(MilestoneInformed, inquired{Section: section, Call: r.Call, Answer: r.Data, Error: r.Error})
			continue
		}
		if i := e.Head.call(r.Call); i >= 0 && e.Head.Calls[i].Kind == CallQuestion {
			m.append(MilestoneAnswered, questioned{Question: r.Call, Call: e.Head.Calls[i].Tool, Answer: r.Data, Error: r.Error})
			continue
		}
		decided := slices.ContainsFunc(e.Decisions, func(d Decision) bool { return d.Request == r.Call })
		if r.Data != nil && !decided {
			m.add(MilestoneResult, map[string]any{
				"call": r.Call, toolKey: toolOf(e, r.Call), "kind": r.Kind, "data": r.Data, "error": r.Error,
			})
			m.plan(&r)
		}
	}
	if e.Kind == (Replied{}).kind() {
		m.add(MilestoneUsage, map[string]any{"total": e.Head.Usage, limitInteractions: e.Head.Interactions})
	}
	if len(e.Checkpoints) > 0 {
		m.add(MilestoneCheckpoint, map[string]any{"checkpoints": e.Checkpoints})
	}
	switch e.Head.Status {
	case StatusWaiting:
		open := 0
		for i := range e.Head.Calls {
			if !e.Head.Calls[i].Closed() {
				open++
			}
		}
		m.add(MilestoneSuspended, map[string]any{"calls": open})
	case StatusDone:
		if e.Head.Reason == ReasonQuota {
			m.add(MilestoneExhausted, map[string]any{"limit": e.Head.ReasonCode, limitInteractions: e.Head.Interactions, "used": e.Head.TokensUsed()})
		}
		if e.Terminal != nil {
			finished := map[string]any{"reason": e.Head.Reason, "type": e.Terminal.Type, "data": e.Terminal.Data}
			if e.Head.ReasonCode != "" {
				finished["code"] = e.Head.ReasonCode
			}
			m.add(MilestoneFinished, finished)
		}
	case StatusRunning:
	}
	for i := range m.events {
		m.events[i].Count = len(m.events)
	}
	return m.events
}

// Decided is the data of MilestoneDecided: a decision, and what is still waited for before its call is made.
type Decided struct {
	Decision Decision `json:"decision"`
	// Allowed and Quorum are set while the request needs further approvals: how many there are, and how many it needs.
	Allowed int `json:"allowed,omitempty"`
	Quorum  int `json:"quorum,omitempty"`
	// Queued says that the call is allowed and waits for its turn in the round, Undecided how many requests of the round are
	// open then.
	Queued    bool `json:"queued,omitempty"`
	Undecided int  `json:"undecided,omitempty"`
}

func decidedIn(e *Entry, d Decision) Decided {
	decided := Decided{Decision: d}
	undecided := 0
	for i := range e.Head.Calls {
		c := &e.Head.Calls[i]
		switch {
		case c.Closed():
		case c.ID == d.Request && c.Gate.Quorum > 1:
			decided.Allowed, decided.Quorum = len(c.Gate.Allowed), c.Gate.Quorum
		case c.Gate != nil:
			undecided++
		case c.ID == d.Call:
			decided.Queued = c.Queued && c.Held == ""
		}
	}
	if decided.Queued {
		decided.Undecided = undecided
	}
	return decided
}

// toolOf names the tool of a call. A call that ended with its round is only in the messages.
func toolOf(e *Entry, call string) string {
	for i := range e.Head.Calls {
		if e.Head.Calls[i].ID == call {
			return e.Head.Calls[i].Tool
		}
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

type milestones struct {
	entry  *Entry
	events []sdk.Live
}

// questioned is what an inline tool asked a person, or what became of it.
type questioned struct {
	Question string          `json:"question"`
	Call     string          `json:"call"`
	Asked    json.RawMessage `json:"asked,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    bool            `json:"error,omitempty"`
}

func (m *milestones) add(kind string, data map[string]any) { m.append(kind, data) }

// append adds one event. Its data is built from the entry, so it always encodes.
func (m *milestones) append(kind string, data any) {
	encoded, err := json.Marshal(data) // sorts the keys
	if err != nil {
		encoded = nil
	}
	m.events = append(m.events, sdk.Live{
		Run: m.entry.Head.Run, Agent: m.entry.Head.Agent, Revision: m.entry.Rev, Index: len(m.events), Turn: m.entry.Head.Interactions,
		Type: kind, Time: m.entry.At, Data: encoded,
	})
}

func (m *milestones) message(msg sdk.Message) {
	conversing := false
	for i := range m.entry.Head.Calls {
		conversing = conversing || m.entry.Head.Calls[i].Kind == CallTurn
	}
	for _, c := range msg.Content {
		switch {
		case c.Kind == sdk.ContentToolUse:
			m.add(MilestoneCall, map[string]any{"call": c.CallID, toolKey: c.Tool, "args": c.Args})
		case c.Kind != sdk.ContentText:
		case msg.Role == sdk.RoleAssistant && conversing:
			m.add(MilestoneTurn, map[string]any{saidKey: c.Text})
		case msg.Role == sdk.RoleAssistant:
			m.add(MilestoneReply, map[string]any{"text": c.Text})
		case m.entry.Kind == (Answered{}).kind():
			m.add(MilestoneAnswer, map[string]any{saidKey: c.Text})
		}
	}
}
