package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// activation is one worker handling one message for a run. It is used by one goroutine.
type activation struct {
	*Runner
	msg   *Message
	key   wire.RunKey
	owner string

	// trace is the traceparent of a run that the message starts, unless its event has one.
	trace string
	agent *Agent
	head  core.Head
	at    point
	// since is when the last entry was made, in Unix milliseconds.
	since int64
	// known is when the store last confirmed what the activation goes by, by its own clock in Unix milliseconds; 0 is that it has not.
	known int64
	// state is loaded when the run is driven. left says that it is in the cache, and no more than its head is here.
	state *core.State
	left  bool
	// unwritten is what the message does, where that is to be one entry with the model's reply; nil is that all is written. behind is 1 while
	// there is such: state is ahead of the journal by that.
	unwritten *unwritten
	behind    atomic.Uint64
	// overtaken says that others wrote to the run before the activation could write what it had kept.
	overtaken bool
	// entries are the first ones of the journal, as far as they were needed.
	entries []*core.Entry
	tail    []core.Entry // some last ones, where nothing before was needed
	// wrote says that the activation has written to the journal, and unsure that the store may have written what it did not confirm.
	wrote, unsure bool
	// pass is its place at the gate; alone says that it is alone inside, beside that it could not be where it should have been.
	pass          *pass
	alone, beside bool
	// blind says that nothing was read, so it is not known whether the store answers at all.
	blind bool
	// probes says that the run asks a model that was away, as the first to know whether it still is.
	probes bool
	// agentPaused is for how long the run's agent is still paused; 0 is that it is not.
	agentPaused time.Duration
	// heldBack says that it has waited before it takes the run from one that died.
	heldBack bool
	costs    costs
}

func (a *activation) progress() {
	if a.msg.Progress != nil {
		a.msg.Progress()
	}
}

// mostConflicts is how often an activation begins again because the run moved on, before it lets others go first.
const mostConflicts = 100

// process loads the run's head and applies the message to it, again whenever the run moved on meanwhile.
func (a *activation) process(ctx context.Context) (v Verdict, err error) {
	err = a.enter(ctx)
	for range mostConflicts {
		if err == nil {
			v, err = a.attempt(ctx)
		}
		switch {
		case errors.Is(err, errDrained):
			return Verdict{Settlement: Retry}, nil
		case errors.Is(err, errSuspect):
			err = a.enterAlone(ctx)
		case errors.Is(err, errHeldBack):
			err = a.holdBack(ctx)
		case errors.Is(err, ErrConflict):
			if err = nil; a.unwritten != nil {
				a.drop()
			}
		default:
			return v, err
		}
	}
	return Verdict{}, fmt.Errorf("run %s: %w %d times", a.key, ErrConflict, mostConflicts)
}

// attempt applies the message to the run as it is now. ErrConflict says that it moved on meanwhile.
func (a *activation) attempt(ctx context.Context) (Verdict, error) {
	a.entries, a.tail = nil, nil // they may be of a history that a failover forgot
	a.state, a.left = nil, false
	change, v, err := a.consequence(ctx)
	if err != nil || v != nil {
		return settled(v), err
	}
	if a.suspect(change.Head.Driver) {
		return Verdict{}, errSuspect
	}
	if a.keep(ctx, &change) {
		return a.goOn(ctx)
	}
	entry, at, err := a.appendEntry(ctx, a.at, change)
	if tooLarge(err) {
		return a.refuse(ctx, sdk.Errorf(sdk.CodeTooLarge, "what the message adds to the run is too large to be stored").WithCause(err))
	}
	if err != nil {
		return a.corrupt(ctx, err)
	}
	a.ended(ctx, &a.head, entry)
	return a.absorbed(ctx, entry, at)
}

// consequence is what follows from the message: what can be foreseen of the entry after the one that this worker wrote last, or else what
// the run says that is read now. A verdict says that nothing is to be written.
func (a *activation) consequence(ctx context.Context) (core.Change, *Verdict, error) {
	change, ok := a.foresee(ctx)
	a.blind = ok
	if ok {
		return change, nil, nil
	}
	if err := a.loadHead(ctx); err != nil {
		v, err := a.corrupt(ctx, err)
		return core.Change{}, &v, err
	}
	a.progress()
	lost, err := a.displaced(ctx)
	if err != nil {
		v, err := a.corrupt(ctx, err)
		return core.Change{}, &v, err
	}
	if lost {
		return core.Change{}, &Verdict{Settlement: Leave}, nil
	}
	if a.covered() && a.head.Driver.Takeovers > 0 && a.head.Driver.Owner != a.owner && !a.heldBack {
		return core.Change{}, nil, errHeldBack
	}
	return a.absorb(ctx)
}

// displaced reports whether the activation had the run without knowing it, because the store did not confirm that, and another delivery of
// its message has taken it since. It leaves it to that one: both would take it from each other again and again, and each time would count as
// a death.
func (a *activation) displaced(ctx context.Context) (bool, error) {
	if !a.unsure || !a.covered() || a.head.Driver.Owner == "" || a.head.Driver.Owner == a.owner {
		return false, nil
	}
	entries, _, err := a.journal(ctx, point{}, a.at.Rev)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(entries, func(e *core.Entry) bool { return e.Head.Driver != nil && e.Head.Driver.Owner == a.owner }), nil
}

// absorbed carries out what follows from the message, now that the run has it.
func (a *activation) absorbed(ctx context.Context, entry *core.Entry, at point) (Verdict, error) {
	if d := entry.Head.Driver; d != nil && d.Takeovers > 0 {
		a.stats.Takeovers.Add(1)
	}
	former, driver := a.at, a.head.Driver
	ends := entry.Head.Status == core.StatusDone && driver != nil && driver.Owner != "" && driver.Owner != a.owner
	if ends || entry.Head.Cancel != nil || entry.Head.Urgent || entry.Kind == core.KindCallCancelAsked {
		a.Publisher.Wake(entry.Head.Agent, a.key)
	}
	drives := entry.Head.Driver != nil && entry.Head.Driver.Owner == a.owner
	if !drives && a.Index.Wanted() && changesSides(&a.head, &entry.Head) {
		defer a.noteAbsorbed(ctx, entry)
	}
	a.head, a.at = entry.Head, at
	a.announce(entry)
	if err := a.carryOut(ctx, entry, entry.Effects); err != nil {
		return Verdict{}, err
	}
	if driver != nil && (drives || driver.Covers(a.msg.Cause)) { // it may have stopped between an entry and its effects
		v, err := a.relay(ctx, a.msg.Cause, driver.Cause())
		if err != nil || v != nil {
			return settled(v), err
		}
	}
	if p := poison(entry); p != nil {
		return reject(p), nil
	}
	if !drives {
		return Verdict{}, nil
	}
	return a.drive(ctx, former, entry)
}

// pauseBeforeTakeover is how much longer the longest wait becomes with every further takeover without progress, up to longestHolds of
// them. A run waits that long, or half of it, or half of that, and so on: as many lengths as halvings.
const (
	pauseBeforeTakeover = 2 * time.Second
	longestHolds        = 4
	halvings            = 6
)

// errHeldBack says that the activation is to take a run that activations in a row died over, and has not waited before that.
var errHeldBack = errors.New("the takeover is held back")

// holdBack delays the takeover of a run that activations in a row died over, before the takeover counts. Redeliveries
// come a fixed time after a death, so workers that die at a regular pace can be struck at the same moment each time; and the
// runs that one death struck come back together, beside the one that it came from. So each waits a time of its own, outside the
// gate: who must be alone need not wait for it. The time is another one at each delivery, and mostly short: where workers die sooner than
// a run waits, it is not held back until they live longer.
func (a *activation) holdBack(ctx context.Context) error {
	a.heldBack = true
	next := *a.head.Driver
	longest := time.Duration(min(next.Takeovers, longestHolds)) * pauseBeforeTakeover
	a.Isolation.leave(a.pass)
	if err := a.Env.Sleep(ctx, longest>>a.spread(halvings)); err != nil {
		return err
	}
	if next.Owner != "" {
		next.Takeovers++
	}
	a.alone = next.Suspect()
	return a.enter(ctx)
}

// spread is a number below n that differs from run to run, and from delivery to delivery.
func (a *activation) spread(n uint32) uint32 {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, a.key, a.msg.Delivered) // never fails
	return hash.Sum32() % n
}

func settled(v *Verdict) Verdict {
	if v == nil {
		return Verdict{}
	}
	return *v
}

func (a *activation) loadHead(ctx context.Context) error {
	rec, err := a.Store.Head(ctx, a.key)
	if errors.Is(err, ErrNotFound) {
		a.head, a.at, a.since = core.Head{}, point{}, 0
		a.trace = a.Observer.Loaded(ctx, &a.head, 0)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read head of run %s: %w", a.key, err)
	}
	e, digest, err := a.Entries.Decode(rec.Data)
	if err != nil {
		return fmt.Errorf("head of run %s: %w", a.key, err)
	}
	a.head, a.at, a.since = e.Head, point{Version: rec.Version, digest: digest}, e.At
	a.trace = a.Observer.Loaded(ctx, &a.head, e.At)
	return nil
}

// absorb says what the message does to the run, or how it is settled without a new entry.
func (a *activation) absorb(ctx context.Context) (core.Change, *Verdict, error) {
	if err := a.findAgent(ctx); err != nil {
		// A run whose agent is not complete here is left to a worker that has it.
		a.Logger.WarnContext(ctx, "run is left to another worker", "run", a.head.Run, "agent", a.msg.Address.Agent, "error", err)
		return core.Change{}, &Verdict{Settlement: Retry, After: retryDelay}, nil
	}
	if settle := a.unheard(); settle != nil {
		v, err := settle(ctx)
		return core.Change{}, &v, err
	}
	refused, err := a.refusedBefore(ctx)
	if err != nil || refused {
		return core.Change{}, &Verdict{}, err
	}
	event, problem, err := a.input(ctx)
	if err != nil {
		v, err := a.corrupt(ctx, err)
		return core.Change{}, &v, err
	}
	if problem != nil {
		v, err := a.refuse(ctx, problem)
		return core.Change{}, &v, err
	}
	change, err := core.Step(a.agent.Core, a.head, a.in(event))
	if err == nil {
		again, v, err := a.takesAgain(ctx, &change.Head)
		if err != nil || v != nil || !again {
			return change, v, err
		}
	}
	switch {
	case err == nil, errors.Is(err, core.ErrStale):
		a.stats.Stale.Add(1)
		v, err := a.repeat(ctx)
		return core.Change{}, &v, err
	case errors.Is(err, core.ErrOrphan):
		v, err := a.unmatched(ctx)
		return core.Change{}, &v, err
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		v, err := a.refuse(ctx, e)
		return core.Change{}, &v, err
	}
	return core.Change{}, nil, err
}

// takesAgain reports whether a message that the run has absorbed before, at an earlier delivery, would give it the run in head. Whoever has
// that delivery may stand still and ack the message at any time, without a look at the run, which nothing would cover then. What the run
// waits for, or its driver's own message, brings it on; one that may have been refused at an earlier delivery is given back until then. It is
// refused if the run still waits when no delivery can be about to have the run hear it. An end is taken up by who takes it up in any case.
// Other messages than timers and control messages are absorbed once, or are the driver's own.
func (a *activation) takesAgain(ctx context.Context, head *core.Head) (bool, *Verdict, error) {
	kind := a.msg.Address.Kind
	if kind != wire.KindFire && kind != wire.KindCtl || a.head.Status == "" || a.covered() || head.Driver == nil || head.Driver.Owner != a.owner {
		return false, nil, nil
	}
	entries, err := a.durable(ctx)
	if err != nil {
		v, err := a.corrupt(ctx, err)
		return false, &v, err
	}
	again := slices.ContainsFunc(entries, func(e *core.Entry) bool { return e.Cause.Is(a.msg.Cause) })
	switch {
	case again || !a.outwaited() || a.head.Status == core.StatusDone:
		return again, nil, nil
	case a.head.Status == core.StatusRunning || a.Env.Now() < a.msg.Received+2*waitForRun.Milliseconds():
		later := a.later()
		return false, &later, nil
	}
	v, err := a.refuse(ctx, sdk.Errorf(sdk.CodeUnknownRun,
		"another worker may have refused the message, because the run's journal came %d minutes after it or later; send it again if it still holds",
		int(waitForRun.Minutes())))
	return false, &v, err
}

// unheard is how a message is settled that does not get as far as its run; nil is that it does.
func (a *activation) unheard() func(context.Context) (Verdict, error) {
	switch {
	case a.msg.Unread != nil:
		return a.refuseUnread
	case a.foreign():
		return a.refuseForeign
	case a.msg.Address.Kind == wire.KindCtl && !a.msg.Address.Verb.Known() && !a.covered():
		return a.unknownVerb
	case a.ahead():
		return a.withoutRun
	}
	return nil
}

// refusedBefore reports whether an init event, or a call, has its terminal event although it has no run: it was refused, by a worker
// that did not know the agent for example, and stays so. Only what may have been handled before is looked up.
func (a *activation) refusedBefore(ctx context.Context) (bool, error) {
	if !a.msg.starts() || a.head.Status != "" || !a.msg.Backlog && a.msg.Delivered <= 1 {
		return false, nil
	}
	init := core.NewInit(a.msg.Address, a.msg.Event)
	refused, err := a.Publisher.Published(ctx, outbox.TerminalSubject(a.Subjects, a.agent.Core.Name, a.key, &init))
	if err != nil {
		return false, fmt.Errorf("look for the terminal event of run %s: %w", a.key, err)
	}
	if refused {
		// Unless a run has begun and ended since its head was read: then the event is that run's, and so is this message.
		if err := a.loadHead(ctx); err != nil {
			return false, err
		}
		if a.head.Status != "" {
			return false, ErrConflict
		}
		a.Logger.InfoContext(ctx, "init event was refused before", "agent", a.agent.Core.Name, "run", a.msg.Run)
	}
	return refused, nil
}

func (a *activation) in(event core.Event) core.Input {
	return core.Input{At: a.Env.Now(), Cause: a.msg.Cause, Owner: a.owner, Alone: a.alone, Rev: a.at.Rev + 1, Event: event}
}

func (a *activation) findAgent(ctx context.Context) error {
	token := a.msg.Address.Agent
	if a.head.Status == "" || a.foreign() {
		agent, ok := a.Catalog.Current(token)
		if !ok {
			return sdk.Errorf(sdk.CodeUnknownAgent, "agent %q is not known here", token)
		}
		a.agent = agent
		return nil
	}
	agent, err := a.Catalog.Version(ctx, token, a.head.Spec)
	if err != nil {
		return fmt.Errorf("agent %s as of %s: %w", token, a.head.Spec, err)
	}
	a.agent = agent
	return a.awaited()
}

// repeat settles a message that changes nothing: it may be acked once what may be missing outside is there.
func (a *activation) repeat(ctx context.Context) (Verdict, error) {
	if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
		return Verdict{}, fmt.Errorf("confirm run %s: %w", a.key, err)
	}
	if a.firedAfterEnd() {
		return Verdict{}, nil
	}
	v, err := a.relay(ctx, a.msg.Cause)
	if v != nil || err != nil {
		return settled(v), err
	}
	if p := a.poisoned(a.entries); p != nil {
		return reject(p), nil
	}
	if a.lateDecision() {
		return reject(sdk.Errorf(sdk.CodeDecisionRefused, "the request is decided, or nobody waits for it any more")), nil
	}
	return Verdict{}, nil
}

// firedAfterEnd reports whether the message is of a timer that fired when the run had ended, as those of answered calls do: it is the
// cause of nothing. One that is about as old as the end may be, though this is its first delivery: an activation whose entry the store did
// not confirm may read the end that another has made of it, and a broker that has restarted delivers again at once.
func (a *activation) firedAfterEnd() bool {
	return a.head.Status == core.StatusDone && a.msg.Address.Kind == wire.KindFire && a.since+mostAhead.Milliseconds() < a.msg.Received
}

// lateDecision reports whether the message decides a permission request that is closed. Unlike other late answers it is not
// passed over in silence: a person believes that it counts. It did, if an entry names the message.
func (a *activation) lateDecision() bool {
	return core.Decides(a.msg.Address) && !slices.ContainsFunc(a.entries, func(e *core.Entry) bool { return e.Cause.Is(a.msg.Cause) })
}

// relay carries out again what may be missing outside: the effects of every entry with one of the causes, without the calls that the
// journal has closed, and what the run waits for. The verdict is set when the journal cannot be read.
func (a *activation) relay(ctx context.Context, causes ...core.Cause) (*Verdict, error) {
	entries, err := a.durable(ctx)
	if err != nil {
		v, err := a.corrupt(ctx, err)
		return &v, err
	}
	a.entries = entries
	for i, e := range entries {
		if !slices.ContainsFunc(causes, e.Cause.Is) {
			continue
		}
		for _, f := range unclosed(e.Effects, waited(entries[i:])) {
			from := e
			switch f.Kind {
			case core.EffectTimer:
				continue // the head knows which timer is the right one by now
			case core.EffectPark:
				from = entries[len(entries)-1] // and what the run waits for
			default:
			}
			if err := a.carryOutAgain(ctx, from, []core.Effect{f}); err != nil {
				return nil, err
			}
		}
	}
	return nil, a.carryOutstanding(ctx, entries)
}

// carryOutstanding carries out what the run waits for, with the bytes of the entries that asked for it.
func (a *activation) carryOutstanding(ctx context.Context, entries []*core.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	last := entries[len(entries)-1]
	if last.Head.Status == core.StatusDone {
		// All of its last entry, not only the terminal event: whoever made it may have lost its message to an earlier delivery
		// of it, which had found no run yet.
		return a.carryOutAgain(ctx, last, last.Effects)
	}
	for _, awaited := range core.Outstanding(&last.Head) {
		entry, effect := last, awaited.Effect
		if awaited.Rev > 0 && awaited.Rev <= uint64(len(entries)) {
			entry = entries[awaited.Rev-1]
			effect = entry.Effect(effect.Kind, effect.Call)
		}
		if err := a.carryOutAgain(ctx, entry, []core.Effect{effect}); err != nil {
			return err
		}
	}
	return nil
}
