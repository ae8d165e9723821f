package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentd/sdk"
)

// An announcement that live events are read (Subjects.Watch) is made anew each WatchEvery, and holds for WatchLasts.
const (
	WatchEvery = 5 * time.Second
	WatchLasts = 3 * WatchEvery
)

// LivePrefix begins the CloudEvents types of live events, which contracts do not use.
const LivePrefix = "agentd.live."

// The types of ephemeral live events. LiveDelta holds a Delta.
const (
	LiveTurnStarted = "turn.started"
	LiveDelta       = "model.delta"
	LiveUsage       = "model.usage"
	LiveToolStarted = "tool.started"
	// LiveContextBudget says what the tokens of a prompt are for, before each model call.
	LiveContextBudget = "context.budget"
	// What is told while a conversation is shortened; when that is done, MilestoneCompacted.
	LiveCompacting         = "context.compacting"
	LiveCompactionProgress = "context.compaction_progress"
	LiveCompactionFailed   = "context.compaction_failed"
	// A reply that is being made has thinking, messages and calls, one after the other. LiveCallStarted names the tool of a
	// call long before its arguments are whole.
	LiveThinkingStarted = "thinking.started"
	LiveThinkingEnded   = "thinking.ended"
	LiveMessageStarted  = "message.started"
	LiveMessageEnded    = "message.ended"
	LiveCallStarted     = "call.started"
	LiveCallEnded       = "call.ended"
)

// The types of milestones. docs/wire.md, "Live events", has the data of each.
const (
	MilestoneStarted    = "run.started"
	MilestoneRetried    = "run.retried"
	MilestoneUndoing    = "run.undoing"
	MilestoneReply      = "model.reply"
	MilestoneCall       = "call.opened"
	MilestoneResult     = "call.result"
	MilestoneCorrected  = "call.corrected"
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
	MilestoneJudged     = "answer.judged"
	MilestoneCleared    = "message.cleared"
	MilestonePlan       = "plan.updated"
	MilestoneGuarded    = "model.guarded"
	MilestoneInquired   = "context.asked"
	MilestoneInformed   = "context.answered"
	MilestoneParked     = "run.parked"
	MilestonePaused     = "run.paused"
	MilestoneResumed    = "run.resumed"
	MilestoneCompacted  = "context.compacted"
	MilestoneChosen     = "tools.chosen"
	MilestonePlanned    = "plan.created"
	MilestoneUnplanned  = "plan.abandoned"
	MilestoneStep       = "step.executing"
	MilestoneStepEnded  = "step.completed"
)

// Live is a live event of a run: lossy, for people who watch (docs/wire.md, "Live events"). On the wire it is a CloudEvent.
// Milestones are numbered by Revision and Index; ephemeral ones carry the revision that they come after.
type Live struct {
	Run      string
	Agent    string
	Revision uint64
	Index    int
	// Count is how many milestones that revision has: who has seen them all knows that none is missing.
	Count int
	// Turn counts the run's turns from 1. It is 0 before the first, and in turns that are told before a model is called.
	Turn int
	// Ephemeral events (fragments, progress) are never repaired.
	Ephemeral bool
	// Type is without LivePrefix.
	Type string
	// Time is in Unix milliseconds.
	Time int64
	Data json.RawMessage
	// ID is unique for an ephemeral event, and follows from the numbers for a milestone. Empty is the latter.
	ID string
}

// liveEvent is the envelope. All members but the last are attributes.
type liveEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Agent           string          `json:"agent"`
	Turn            int             `json:"turn"`
	Revision        uint64          `json:"rev"`
	Index           int             `json:"i"`
	Count           int             `json:"count,omitempty"`
	Sequence        string          `json:"sequence"`
	Ephemeral       bool            `json:"ephemeral,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
}

// MarshalJSON encodes the event in structured mode. The attribute sequence orders the events of a run as texts do, by
// CloudEvents' sequence extension; the id of a milestone is the same whenever it is told.
func (l Live) MarshalJSON() ([]byte, error) {
	id := l.ID
	if id == "" {
		id = fmt.Sprintf("%s.%d.%d", NewRunKey(l.Run).Token, l.Revision, l.Index)
	}
	return json.Marshal(liveEvent{
		SpecVersion: SpecVersion, ID: id, Source: "/agentd/" + NameToken(l.Agent), Type: LivePrefix + l.Type, Subject: l.Run,
		Time: time.UnixMilli(l.Time).UTC(), DataContentType: ContentTypeJSON, Agent: l.Agent, Turn: l.Turn,
		Revision: l.Revision, Index: l.Index, Count: l.Count, Sequence: fmt.Sprintf("%010d.%04d", l.Revision, l.Index),
		Ephemeral: l.Ephemeral, Data: l.Data,
	})
}

// UnmarshalJSON decodes what MarshalJSON made. Anything else is CodeInvalidEvent.
func (l *Live) UnmarshalJSON(data []byte) error {
	var e liveEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return sdk.Errorf(sdk.CodeInvalidEvent, "live event cannot be read").WithCause(err)
	}
	kind, ok := strings.CutPrefix(e.Type, LivePrefix)
	if !ok || e.SpecVersion != SpecVersion {
		return sdk.Errorf(sdk.CodeInvalidEvent, "no live event: type %q, specversion %q", e.Type, e.SpecVersion)
	}
	*l = Live{
		Run: e.Subject, Agent: e.Agent, Revision: e.Revision, Index: e.Index, Count: e.Count, Turn: e.Turn, Ephemeral: e.Ephemeral,
		Type: kind, Time: e.Time.UnixMilli(), Data: e.Data,
	}
	if e.Ephemeral {
		l.ID = e.ID
	}
	return nil
}
