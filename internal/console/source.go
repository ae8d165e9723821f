package console

import (
	"context"

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
	// AgentState says of each of these agents how it is.
	AgentState(ctx context.Context, agent string) (AgentState, error)
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
	Paused, Drain bool
	// New is how many init events wait, and Unserved that no worker seems to take them.
	New      int
	Unserved bool
}

// Examination is what was looked at and found.
type Examination struct {
	Examined []string
	Findings []Finding
}

// Finding is something that is wrong, and what to do about it.
type Finding struct{ Severity, Code, Message, Remedy string }
