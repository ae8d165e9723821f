package console

import (
	"context"
	"time"

	"agentd/internal/core"
	"agentd/internal/show"
	"agentd/sdk"
)

// Source is what a console reads of the store and the broker, and does there beside the clients. Methods are safe for concurrent use.
type Source interface {
	// Last is the last entry of a run, and Part those from a revision on, most of them at most, in order, with the chain of hashes among
	// them checked; there may be none. The error is sdk.CodeUnknownRun for the last entry of a run that nobody knows, and
	// sdk.CodePermissionDenied when the broker does not let this user read it.
	Last(ctx context.Context, run string) (core.Entry, error)
	Part(ctx context.Context, run string, from uint64, most int) ([]core.Entry, error)
	// Letters are the last dead letters that the filter selects, the newest first, and More says that there are others.
	Letters(ctx context.Context, f LetterFilter) (letters []show.Letter, more bool, err error)
	// Letter is one of them without its secrets. Redrive publishes it again and says what was done; Drop deletes it.
	Letter(ctx context.Context, sequence uint64) (show.LetterDetail, error)
	Redrive(ctx context.Context, sequence uint64) (done string, err error)
	Drop(ctx context.Context, sequence uint64) error
	// AgentState says how an agent is. PauseAgent lets no run of it begin, for a time or, with 0, until ResumeAgent, after
	// which the runs that wait because of it are woken one by one; drain lets those go on that have begun.
	AgentState(ctx context.Context, agent string) (AgentState, error)
	PauseAgent(ctx context.Context, agent string, lasting time.Duration, drain bool) error
	ResumeAgent(ctx context.Context, agent string) error
	// Unserved reports whether nobody seems to take the calls of a contract in a domain now.
	Unserved(ctx context.Context, domain, contractType string) (bool, error)
	// Contracts are those of the registry.
	Contracts(ctx context.Context) ([]sdk.Contract, error)
	// Instances are who offers a contract now, by their ids.
	Instances(ctx context.Context, contractType string) ([]string, error)
	// Examine looks for what keeps agentd from keeping its promises.
	Examine(ctx context.Context) (Examination, error)
	// Connected reports whether the broker is there.
	Connected() bool
}

// LetterFilter selects dead letters. Since is in Unix milliseconds; the zero value of each is any.
type LetterFilter struct {
	Reason, Run, Agent string
	Since              int64
	Limit              int
}

// AgentState is how an agent is served.
type AgentState struct {
	// Paused says that an operator paused it; Drain that the runs which have begun go on.
	Paused bool `json:"paused"`
	Drain  bool `json:"drain,omitempty"`
	// New is how many init events wait, and Unserved that no worker seems to take them.
	New      int  `json:"new"`
	Unserved bool `json:"unserved,omitempty"`
}

// Examination is what was looked at and found.
type Examination struct {
	Examined []string  `json:"examined"`
	Findings []Finding `json:"findings"`
	// Streams and Consumers are those that agentd needs, and Workers those that answer. Unseen says why some are not here.
	Streams   []Stream   `json:"streams"`
	Consumers []Consumer `json:"consumers"`
	Workers   []Worker   `json:"workers"`
	Unseen    string     `json:"unseen,omitempty"`
}

// Finding is something that is wrong, and what to do about it.
type Finding struct {
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Remedy   string `json:"remedy"`
}

// Stream is what a stream holds. Leader is the server that answers for it; empty is a server alone.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Subjects uint64 `json:"subjects"`
	Replicas int    `json:"replicas"`
	Leader   string `json:"leader,omitempty"`
}

// Consumer is how far the readers of a consumer are: Pending messages were never delivered, Unacked ones are in hand, Redelivered of them not
// for the first time. Readers are requests that wait for messages, and Delivered is when the last one was, in Unix milliseconds.
type Consumer struct {
	Stream      string `json:"stream"`
	Name        string `json:"name"`
	Pending     int64  `json:"pending"`
	Unacked     int64  `json:"unacked"`
	Redelivered int64  `json:"redelivered"`
	Readers     int64  `json:"readers"`
	Delivered   int64  `json:"delivered,omitempty"`
	Paused      bool   `json:"paused,omitempty"`
}

// Worker is a program that answers for an agent. Ahead is how far its clock is ahead of the broker's, in milliseconds.
type Worker struct {
	ID    string `json:"id"`
	Agent string `json:"agent"`
	Ahead int64  `json:"clock_ahead_ms"`
}
