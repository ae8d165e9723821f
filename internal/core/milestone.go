package core

import (
	"encoding/json"
	"slices"

	"agentd/sdk/wire"

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

// toolKey is the member that names a tool.
const toolKey = "tool"

// limitInteractions names the limit of model calls, and the member that counts them.
const limitInteractions = "interactions"

// Milestones are the live events of an entry, numbered by its revision and their index. They are a pure function of
// the entry, so that whoever missed some can be given the same again from the journal.
func Milestones(e *Entry) []wire.Live {
	m := milestones{entry: e}
	if e.Kind == (Started{}).kind() {
		m.append(MilestoneStarted, runStarted{Input: e.Input})
	}
	for _, msg := range e.Messages {
		m.message(msg)
	}
	for _, n := range e.Notes {
		if n.Event != "" {
			m.append(MilestoneMessage, runMessage{Message: n.Text, Who: n.Who})
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
			m.append(MilestoneResult, callResult{Call: r.Call, Data: r.Data, Error: r.Error, Kind: r.Kind, Tool: toolOf(e, r.Call)})
			m.plan(&r)
		}
	}
	if e.Kind == (Replied{}).kind() {
		m.append(MilestoneUsage, runUsage{Interactions: e.Head.Turns, Total: e.Head.Usage})
	}
	if len(e.Checkpoints) > 0 {
		m.append(MilestoneCheckpoint, checkpointed{Checkpoints: e.Checkpoints})
	}
	switch e.Head.Status {
	case StatusWaiting:
		open := 0
		for i := range e.Head.Calls {
			if !e.Head.Calls[i].Closed() {
				open++
			}
		}
		m.append(MilestoneSuspended, runSuspended{Calls: open})
	case StatusDone:
		if e.Head.Reason == ReasonQuota {
			m.add(MilestoneExhausted, map[string]any{"limit": e.Head.ReasonCode, limitInteractions: e.Head.Turns, "used": e.Head.TokensUsed()})
		}
		if e.Terminal != nil {
			m.append(MilestoneFinished, runFinished{
				Code: e.Head.ReasonCode, Data: e.Terminal.Data, Reason: e.Head.Reason, Type: e.Terminal.Type,
			})
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
		case c.ID == d.Request && c.Permission.Quorum > 1:
			decided.Allowed, decided.Quorum = len(c.Permission.Allowed), c.Permission.Quorum
		case c.Permission != nil:
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
	events []wire.Live
}

// The data of milestones that most runs have. Members are in the order of their names, as those of the others are.
type (
	runStarted struct {
		Input json.RawMessage `json:"input"`
	}
	runMessage struct {
		Message string `json:"message"`
		Who     string `json:"who"`
	}
	modelReply struct {
		Text string `json:"text"`
	}
	conversed struct {
		Message string `json:"message"`
	}
	callOpened struct {
		Args json.RawMessage `json:"args"`
		Call string          `json:"call"`
		Tool string          `json:"tool"`
	}
	callResult struct {
		Call  string          `json:"call"`
		Data  json.RawMessage `json:"data"`
		Error bool            `json:"error"`
		Kind  ResultKind      `json:"kind"`
		Tool  string          `json:"tool"`
	}
	runUsage struct {
		Interactions int       `json:"interactions"`
		Total        sdk.Usage `json:"total"`
	}
	checkpointed struct {
		Checkpoints []Checkpoint `json:"checkpoints"`
	}
	runSuspended struct {
		Calls int `json:"calls"`
	}
	runFinished struct {
		Code   string          `json:"code,omitempty"`
		Data   json.RawMessage `json:"data"`
		Reason Reason          `json:"reason"`
		Type   string          `json:"type"`
	}
)

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
	m.events = append(m.events, wire.Live{
		Run: m.entry.Head.Run, Agent: m.entry.Head.Agent, Revision: m.entry.Rev, Index: len(m.events), Turn: m.entry.Head.Turns,
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
			m.append(MilestoneCall, callOpened{Args: c.Args, Call: c.CallID, Tool: c.Tool})
		case c.Kind != sdk.ContentText:
		case msg.Role == sdk.RoleAssistant && conversing:
			m.append(MilestoneTurn, conversed{Message: c.Text})
		case msg.Role == sdk.RoleAssistant:
			m.append(MilestoneReply, modelReply{Text: c.Text})
		case m.entry.Kind == (Answered{}).kind():
			m.append(MilestoneAnswer, conversed{Message: c.Text})
		}
	}
}
