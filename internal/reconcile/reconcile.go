// Package reconcile finds what no message of a run would bring back, and repairs it or ends it with a terminal event: runs
// that the store lost, in whole or back to an earlier entry, and events, answers and timers that got lost on the broker.
// It also removes the histories of runs that have been done for long enough.
//
// The protocol loses nothing by itself: what is found here is the work of a store or broker that was wiped, restored from
// a copy or failed over to an older state, or of an operator. Nothing depends on only one process doing this: every effect
// is idempotent, or guarded by the journal's compare-and-set.
package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/index"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Kind says what is wrong.
type Kind string

// The kinds of findings.
const (
	// RunLost: an init event, or a call of an agent, was handled, and there is neither a journal nor a terminal event.
	RunLost Kind = "run_lost"
	// RunStalled: the run is being driven, and the message whose delivery covers it is gone.
	RunStalled Kind = "run_stalled"
	// TimerLost: the timer that the run waits for will not fire.
	TimerLost Kind = "timer_lost"
	// CallLost: a call that the run waits for is not on the broker.
	CallLost Kind = "call_lost"
	// AnswerLost: an answer to a call was handled, and the run does not know it.
	AnswerLost Kind = "answer_lost"
	// TerminalLost: the run is done and its terminal event is not on the broker.
	TerminalLost Kind = "terminal_lost"
	// CallOrphaned: a call that no run waits for has been told to nobody.
	CallOrphaned Kind = "call_orphaned"
	// RunUnreadable: the last entry of a run cannot be read.
	RunUnreadable Kind = "run_unreadable"
	// IndexLost: the index of runs has no document of a run, or an old one; or one of a run whose history is removed.
	IndexLost Kind = "index_lost"
	// CallsKept: the calls of a run that has ended, or timers that have fired, could not be removed.
	CallsKept Kind = "calls_kept"
	// HistoryKept: a history or a tombstone that has outlived its time could not be removed.
	HistoryKept Kind = "history_kept"
	// HistoryHot: a journal could not leave Redis for its archive, or an archive of a purged run could not be deleted.
	HistoryHot Kind = "history_hot"
)

// Finding is something wrong, and what was done about it.
type Finding struct {
	Kind  Kind   `json:"kind"`
	Agent string `json:"agent,omitempty"`
	// Run is the subject of the run, or its key where the subject is not known.
	Run string `json:"run"`
	// What is missing, such as a subject.
	What string `json:"what,omitempty"`
	// Action was taken, or would be in a dry run; empty when there is nothing to do.
	Action string `json:"action,omitempty"`
	// Problem is why the action failed or was not taken.
	Problem string `json:"problem,omitempty"`
}

// Report sums up a pass.
type Report struct {
	// Inits, Runs and Calls were examined.
	Inits int `json:"inits"`
	Runs  int `json:"runs"`
	Calls int `json:"calls"`
	// Found counts findings by kind, Unrepaired those that something is still wrong with.
	Found      map[Kind]int `json:"found"`
	Unrepaired int          `json:"unrepaired"`
	// Purged runs lost their history, Removed ones their tombstone.
	Purged  int `json:"purged"`
	Removed int `json:"removed"`
	// Archived journals were written to their archives, Thinned ones have left Redis.
	Archived int `json:"archived"`
	Thinned  int `json:"thinned"`
	// Cleared runs lost their calls on the broker.
	Cleared int `json:"cleared"`
	// Young runs have not ended, and were left alone because they changed lately.
	Young int `json:"young"`
}

// Options are what a pass needs. Conn, Store, Runner, Decode and Document are required.
type Options struct {
	Conn   *broker.Conn
	Store  state.Store
	Runner *runner.Runner
	// Right, unless nil, returns nil when Store is the one that runs are kept in, or why it is not: what another one lacks is not lost.
	Right func(context.Context) error
	// Decode is that of the worker's handler.
	Decode func(broker.Delivery) (runner.Message, error)
	// Agents are those whose runs are examined.
	Agents []sdk.AgentSpec
	// Everything also looks after what belongs to no agent: calls without a run, and retention.
	Everything bool
	// OlderThan is how old something must be before it counts as lost; 0 is sdk.DefaultLostAfter.
	OlderThan time.Duration
	// History is how long a done run keeps its history; 0 is for ever.
	History time.Duration
	// FullInterval is how often one of the passes that Periodic makes looks at all runs, and not at those alone that have changed; 0 is each time.
	FullInterval time.Duration
	// Calls is how long a done run keeps its calls on the broker, at least sdk.LeastCallsKept; 0 is for as long as their stream does.
	Calls time.Duration
	// Hot is how long a done run's journal stays in a store that has archives; 0 is for ever.
	Hot time.Duration
	// Document publishes a document to the index of runs, where there is one.
	Document func(*index.Document) error
	// Refuse tells the sender of an init event that nobody serves its agent, unless that was told; nil is that others see to it.
	Refuse func(context.Context, wire.Address, wire.Event) error
	// DryRun only looks.
	DryRun bool
	// Found is called with every finding, as it is dealt with.
	Found  func(Finding)
	Logger *slog.Logger
	// Now is the Runner's when nil.
	Now func() time.Time

	// byPartition does what is done when streams are too large to be listed at once.
	byPartition bool
}

// right returns nil when the store is the one that runs are kept in. Asked after the store did not have something, it says that the right one
// did not have it.
func (o *Options) right(ctx context.Context) error {
	if o.Right == nil {
		return nil
	}
	return o.Right(ctx)
}

// pass is one examination. It is used by one goroutine.
type pass struct {
	Options
	report   Report
	subjects wire.Subjects
	layout   streams.Layout
	// now is when the pass began, limit what must be older to be examined.
	now, limit time.Time
	// refillFrom is from when on refillAgents looks at the entries of each agent, by its token, in Unix milliseconds; nil is that another pass is made.
	// failed is why not all of an agent was refilled, by the same token.
	refillFrom map[string]int64
	failed     map[string]error
	// refilledTo is up to where streams have been refilled, by the token of the agent; noted says that it is on the broker whose calls this pass
	// removes.
	refilledTo map[string]broker.Refilled
	noted      bool
	// agents are the specs by token; consumers are looked up once a pass.
	agents    map[string]sdk.AgentSpec
	consumers map[streams.ConsumerRef]consumed
	// unsettled are runs without a journal whose init event is not dealt with: their calls are left alone.
	unsettled map[wire.RunKey]bool
	states    map[streams.Zone]broker.ZoneState
	readers   map[streams.Zone][]broker.Reader
	// hot is Hot where archives can be written, else 0.
	hot    time.Duration
	cooled archiving
	// indexes says that there is an index of runs.
	indexes bool
	// since is from when on messages are looked at, in Unix milliseconds; 0 is all that there are.
	since int64
	// seen are runs that a pass of Changed has looked at.
	seen map[wire.RunKey]bool
	// left are the times of the first messages, in Unix milliseconds, that have changed runs so lately that the pass leaves them to the next
	// one, by the token of the agent.
	left map[string]int64
}

type consumed struct {
	broker.Consumed
	known bool
}

// Run makes one pass. It reads streams and store in pages; what is in memory at once is a page, and the names of what one
// partition in 256 has on the broker. The error is that of a broker or store that cannot be read; what concerns one run
// only is a finding.
func Run(ctx context.Context, o Options) (Report, error) {
	p := newPass(o)
	err := p.all(ctx)
	return p.report, err
}

func (p *pass) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.right, p.survey, p.lostRuns, p.lostDelegations, p.archives, p.runs} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("reconcile: %w", err)
		}
	}
	return nil
}

// newPass fills in defaults. The pass begins now.
func newPass(o Options) *pass {
	p := &pass{
		Options: o, subjects: o.Conn.Subjects(), agents: map[string]sdk.AgentSpec{},
		consumers: map[streams.ConsumerRef]consumed{}, unsettled: map[wire.RunKey]bool{}, states: map[streams.Zone]broker.ZoneState{},
		readers: map[streams.Zone][]broker.Reader{}, left: map[string]int64{}, refilledTo: map[string]broker.Refilled{},
	}
	p.report.Found = map[Kind]int{}
	if p.Now == nil {
		p.Now = func() time.Time { return time.UnixMilli(p.Runner.Env.Now()) }
	}
	if p.OlderThan == 0 {
		p.OlderThan = sdk.DefaultLostAfter
	}
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	p.now = p.Now()
	p.limit = p.now.Add(-p.OlderThan)
	for _, a := range p.Agents {
		p.agents[wire.NameToken(a.Name)] = a
	}
	return p
}

// survey looks at the streams.
func (p *pass) survey(ctx context.Context) (err error) {
	if p.layout, err = p.Conn.Layout(ctx); err != nil {
		return err
	}
	for _, whole := range []streams.Zone{
		streams.Start, streams.In, streams.Out, streams.Done, streams.Timer, streams.DLQ,
	} {
		for _, z := range p.layout.Zones(whole) {
			if p.states[z], err = p.Conn.ZoneState(ctx, z); err != nil {
				return err
			}
		}
	}
	p.indexes, err = p.Conn.Indexes(ctx)
	return err
}

// deal reports a finding after doing about it what there is to do.
func (p *pass) deal(ctx context.Context, f Finding, do func(context.Context) error) error {
	if !p.DryRun && do != nil {
		if err := do(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.Problem = err.Error()
		}
	}
	p.report.Found[f.Kind]++
	if f.Problem != "" || do == nil || p.DryRun {
		p.report.Unrepaired++
	}
	if p.Found != nil {
		p.Found(f)
	}
	return nil
}

// young reports whether a time in Unix milliseconds is too recent for anything to be lost.
func (p *pass) young(at int64) bool { return at > p.limit.UnixMilli() }

// kept reports whether a stream still keeps what was stored at a time in Unix milliseconds, with a margin.
func (p *pass) kept(z streams.Zone, at int64) bool {
	age := p.age(z)
	return age == 0 || p.now.Add(-age).Add(p.OlderThan).UnixMilli() < at
}

// age is how long the streams of a zone keep messages: as long as the one that does so for the shortest time.
func (p *pass) age(z streams.Zone) time.Duration {
	var shortest time.Duration
	for _, part := range p.layout.Zones(z) {
		if age := p.states[part].MaxAge; age != 0 && (shortest == 0 || age < shortest) {
			shortest = age
		}
	}
	return shortest
}

// settledAfter is how long a message may be in the hands of workers. One that was delivered longer ago and is not acked is
// taken for handled: where others are not acked either, the broker does not say which.
const settledAfter = 24 * time.Hour

// handled reports whether workers are done with a message of an agent's consumer, or will never be.
func (p *pass) handled(ctx context.Context, z streams.Zone, agent string, sequence uint64, received int64) (bool, error) {
	c, err := p.consumed(ctx, z, agent)
	if err != nil || !c.known {
		return false, err
	}
	stale := sequence <= c.Delivered && received < p.now.Add(-settledAfter).UnixMilli()
	return c.All(sequence) || stale, nil
}

// handledDelivery is handled, of a message that was looked at.
func (p *pass) handledDelivery(ctx context.Context, agent string, d broker.Delivery) (bool, error) {
	z, ok := p.zoneOf(d.Stream())
	if !ok {
		return false, nil
	}
	return p.handled(ctx, z, agent, d.Sequence(), d.Received())
}

func (p *pass) consumed(ctx context.Context, z streams.Zone, agent string) (consumed, error) {
	for _, ref := range p.layout.Consumers(streams.AgentConsumers(agent)...) {
		if ref.Zone != z {
			continue
		}
		c, ok := p.consumers[ref]
		if !ok {
			var err error
			if c.Consumed, c.known, err = p.Conn.Consumed(ctx, ref); err != nil {
				return consumed{}, err
			}
			p.consumers[ref] = c
		}
		return c, nil
	}
	return consumed{}, nil
}

// deadLettered reports whether a message is among the dead letters: it was dealt with.
func (p *pass) deadLettered(ctx context.Context, d broker.Delivery) (bool, error) {
	subject := p.subjects.DeadLetter("*", d.Stream(), d.Sequence())
	letters, err := p.Conn.SubjectsUnder(ctx, streams.DLQ, subject)
	return len(letters) > 0, err
}
