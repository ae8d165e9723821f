// Package runner is the shell around the core: it loads a run, lets the core decide, commits the journal entry, and only
// then carries out its effects (docs/architecture.md).
//
// A message is either absorbed (one small entry, no call to anything slow) or, when it makes its run runnable, driven:
// model calls and inline tools until the run waits or is done. An answer that a model replies to at once is one entry with the reply
// (unwritten.go). The rules that everything here obeys:
//
//   - R1: nothing leaves the worker before the entry it follows from is durable;
//   - R2: effects are deterministic and may be repeated;
//   - R3: a message is acked only when its run waits or is done and the effects are out;
//   - R4: a verdict that acks without writing rests on a linearizable read;
//   - R5: who lost the run does nothing: no ack, no nak.
//
// The package starts no goroutine and reads no clock of its own: Env does.
package runner

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"agentd/internal/core"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Message is a decoded delivery for a run.
type Message struct {
	// Address is the parsed subject, which the broker enforced.
	Address wire.Address
	// Event is zero for a fired timer.
	Event wire.Event
	// Unread is why the event could not be decoded; Event is then what wire.Sender reads of it. nil for all others.
	Unread *sdk.Error
	// Run is the CloudEvents subject of the run, for messages that start one.
	Run string
	// Due is what a fired timer was armed for, in Unix milliseconds.
	Due int64
	// Delivered counts the deliveries of the message, from 1. Backlog says that it may be older than the agent's consumer.
	Delivered int
	Backlog   bool
	// Cause identifies the message itself.
	Cause core.Cause
	// Received is when the broker stored it, in Unix milliseconds.
	Received int64
	// Progress is called whenever the activation got somewhere, so that its delivery is extended only while it does.
	Progress func()
}

// Settlement is what becomes of a message.
type Settlement int

// The settlements.
const (
	// Ack: the message is done with.
	Ack Settlement = iota
	// Retry: deliver it again after Verdict.After.
	Retry
	// Leave: neither ack nor nak (R5); the broker delivers it again when the lease ends.
	Leave
	// Reject: dead-letter it with Verdict.Problem, then ack.
	Reject
)

// Verdict is how Process wants its message settled.
type Verdict struct {
	Settlement Settlement
	After      time.Duration
	Problem    *sdk.Error
}

func reject(e *sdk.Error) Verdict { return Verdict{Settlement: Reject, Problem: e} }

// retryDelay is how long a message waits when the store or the broker could not be reached. It doubles with every delivery.
// An activation that wrote nothing did no harm, and its run is to go on soon after the store is back: it waits no longer than
// idleRetryDelay. One that wrote did so in vain, with two entries, and an outage may last: it waits up to longRetryDelay, and
// lastingRetryDelay once there were lastingDeliveries, after about a quarter of an hour.
const (
	retryDelay        = 5 * time.Second
	idleRetryDelay    = 15 * time.Second
	longRetryDelay    = time.Minute
	lastingRetryDelay = 5 * time.Minute
	lastingDeliveries = 20
)

func (a *activation) retryDelay() time.Duration {
	longest := longRetryDelay
	switch {
	case !a.wrote:
		longest = idleRetryDelay
	case a.msg.Delivered > lastingDeliveries:
		return lastingRetryDelay
	}
	return retry.Pauses{First: retryDelay, Longest: longest}.Nth(a.msg.Delivered)
}

// Options are what a Runner is made of; Cache, Entries, Audience, Outages, Gate, Silence and Observer have defaults, all else is required.
type Options struct {
	Store     Store
	Publisher Publisher
	Env       Env
	Catalog   Catalog
	Subjects  wire.Subjects
	Logger    *slog.Logger
	// Cache is how many bytes of the states of runs that were driven here, and wait for services, are kept in memory, and a quarter of that
	// of those that wait for anything else; 0 is 64 MiB, negative is none.
	Cache int
	// Observer is told what happens; nil is nobody.
	Observer Observer
	// Entries may be shared by the runners of a process; nil is one of its own.
	Entries *EntryCache
	// Index is told how runs get on, for the index of runs; nil is nobody.
	Index Indexer
	// Audience is who is told live events; nil is nobody but those of agents that tell always.
	Audience Audience
	// Outages may be shared by the runners of a process; nil knows of none, and parked runs wait for their time.
	Outages Outages
	// Isolation is shared by the runners of a process; nil is for one that is the only one.
	Isolation *Isolation
	// Silence is longer than any step of an activation takes; 0 is 5 min.
	Silence time.Duration
	// Apart says that every change is an entry by itself, as workers of versions before need them.
	Apart bool
	// EarlyDecisions is how long a decision is kept whose request has not come; 0 is not at all.
	EarlyDecisions time.Duration
}

// Runner processes messages of runs. Safe for concurrent use.
type Runner struct {
	Options
	cache    *cache
	recent   recent
	working  working
	draining atomic.Bool
	stats    Stats
}

// Stats count what happened since the start.
type Stats struct {
	// ModelCalls were made; RepeatedModelCalls were made although one for the same turn had been made before.
	ModelCalls, RepeatedModelCalls atomic.Int64
	Entries, Bytes                 atomic.Int64
	Conflicts, Takeovers, Stale    atomic.Int64
}

// New returns a Runner.
func New(o Options) *Runner {
	if o.Cache == 0 {
		o.Cache = defaultCache
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Entries == nil {
		o.Entries = NewEntryCache(defaultEntryBytes)
	}
	if o.Index == nil {
		o.Index = noIndex{}
	}
	if o.Audience == nil {
		o.Audience = nobody{}
	}
	if o.Outages == nil {
		o.Outages = noOutages{}
	}
	if o.Isolation == nil {
		o.Isolation = &Isolation{}
	}
	if o.Silence == 0 {
		o.Silence = 5 * time.Minute
	}
	return &Runner{
		Options: o, cache: newCache(o.Cache), working: working{runs: map[wire.RunKey]*work{}},
		recent: newRecent(),
	}
}

// Stats are the runner's counters.
func (r *Runner) Stats() *Stats { return &r.stats }

// Drain makes activations stop at their next step and hand their message back, so that another worker goes on at once.
// It cancels no run.
func (r *Runner) Drain() { r.draining.Store(true) }

// Process handles one message to the end: until its run waits or is done, or somebody else has it. It keeps m until then.
func (r *Runner) Process(ctx context.Context, m *Message) Verdict {
	a := &activation{Runner: r, msg: m, key: m.Address.Run, owner: r.Env.Random()}
	ctx = r.Observer.Begin(ctx, m)
	defer func() { r.Isolation.leave(a.pass) }() // not before it has handed its run back
	v, err := a.process(ctx)
	v = a.verdict(ctx, v, err)
	r.Observer.End(ctx, v, err)
	return v
}

// verdict is how the message is settled after process ended with v and err.
func (a *activation) verdict(ctx context.Context, v Verdict, err error) Verdict {
	switch {
	case err == nil:
		return v
	case ctx.Err() != nil:
		return Verdict{Settlement: Leave}
	}
	a.Logger.WarnContext(ctx, "message is retried", "run", a.head.Run, "subject", a.msg.Cause.EventID, "error", err)
	pause := a.retryDelay()
	if released := a.release(ctx, err); errors.Is(released, core.ErrFenced) {
		return Verdict{Settlement: Leave}
	}
	if a.state != nil && a.state.Cancel != nil {
		pause = 0 // it was asked for meanwhile
	}
	return Verdict{Settlement: Retry, After: pause}
}
