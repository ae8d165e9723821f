package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
)

// drive does what the run needs until it waits or is done. The first entry of this activation, which made it the driver,
// is already committed after former.
func (a *activation) drive(ctx context.Context, former point, first *core.Entry) (Verdict, error) {
	if err := a.loadState(ctx, former, first); err != nil {
		return a.stopped(ctx, err)
	}
	a.noteDriven(first.At)
	return a.goOn(ctx)
}

// goOn is drive from the state that the activation has.
func (a *activation) goOn(ctx context.Context) (Verdict, error) {
	if err := a.endVoided(ctx); err != nil {
		return a.stopped(ctx, err)
	}
	work, done := a.working.begin(ctx, a.key)
	defer done()
	for stepped := false; ; {
		action := a.next(ctx)
		if _, rest := action.(core.Rest); rest {
			a.leaveState()
			return Verdict{}, nil
		}
		if a.draining.Load() || stepped && a.Isolation.crowded() {
			return a.handBack(ctx)
		}
		if _, asks := action.(core.CallModel); !asks {
			if err := a.write(ctx); err != nil {
				return Verdict{}, err
			}
		}
		event, err := a.act(work, action)
		if errors.Is(err, errSteered) {
			if a.unwritten != nil {
				return Verdict{}, fmt.Errorf("somebody sent a message into run %s: %w", a.key, ErrConflict)
			}
			if err := a.lookAgain(ctx); err != nil {
				return a.stopped(ctx, err)
			}
			continue
		}
		if errors.Is(err, ErrCorrupt) {
			return a.endCorrupt(ctx, err)
		}
		if err != nil {
			return Verdict{}, err
		}
		a.progress()
		if err := a.commit(ctx, event); err != nil {
			return a.stopped(ctx, err)
		}
		stepped = true
		if a.alone { // the entry says that it is not any more
			a.alone = false
			a.Isolation.join(a.pass)
		}
	}
}

// endCorrupt ends a run that cannot go on because something that is stored of it is damaged or gone: reading it again would not help.
func (a *activation) endCorrupt(ctx context.Context, problem error) (Verdict, error) {
	a.Logger.ErrorContext(ctx, "run ends, because what is stored of it cannot be read", "run", a.state.Run, "error", problem)
	if err := a.commit(ctx, core.Ended{Ending: unreadable}); err != nil {
		return a.stopped(ctx, err)
	}
	return reject(sdk.Errorf(sdk.CodeCorrupt, "something that is stored of the run cannot be read").WithCause(problem)), nil
}

// handBack has the message delivered again, to a worker that has the time for it. A run that was never taken has not noticed.
func (a *activation) handBack(ctx context.Context) (Verdict, error) {
	if a.unwritten == nil {
		if err := a.commit(ctx, core.Released{}); err != nil {
			return a.stopped(ctx, err)
		}
	}
	return Verdict{Settlement: Retry}, nil
}

// release hands back the run that this activation drives and could not go on with: the next takeover does not count, and
// any message for the run may bring it. What will fail again at every attempt is not handed back, so that the run does not
// go on failing for ever. core.ErrFenced says that the run is somebody else's.
func (a *activation) release(ctx context.Context, problem error) error {
	if a.unwritten != nil {
		return nil // it was never taken
	}
	if a.state != nil {
		a.head = a.state.Head
	}
	if permanent(problem) || a.head.Status != core.StatusRunning || a.head.Driver.Owner != a.owner {
		return nil
	}
	if a.state != nil {
		return a.commit(ctx, core.Released{})
	}
	for {
		change, err := core.Step(a.agent.Core, a.head, a.in(core.Released{}))
		if err != nil {
			return err
		}
		if _, _, err = a.appendEntry(ctx, a.at, change); !errors.Is(err, ErrConflict) {
			return err
		}
		if err := a.loadHead(ctx); err != nil {
			return err
		}
	}
}

// permanent reports whether an error comes again however often the message is delivered.
func permanent(err error) bool {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Code != sdk.CodeUnavailable && e.Code != sdk.CodeRateLimited
	}
	return errors.Is(err, core.ErrIllegal)
}

// lookAgain reads what others have appended: a message that is not to wait for the model's reply.
func (a *activation) lookAgain(ctx context.Context) error {
	if _, err := a.catchUp(ctx); err != nil {
		return err
	}
	return a.stillDriven()
}

// stopped says what becomes of the message when the run can be driven no further.
func (a *activation) stopped(ctx context.Context, err error) (Verdict, error) {
	if errors.Is(err, core.ErrFenced) {
		return Verdict{Settlement: Leave}, nil
	}
	return a.corrupt(ctx, err)
}

// loadState rebuilds the run's state at a.at or later: from the cache and what came after, else from the whole journal.
// ErrFenced says that the run is somebody else's by then.
func (a *activation) loadState(ctx context.Context, former point, first *core.Entry) error {
	if first.Rev == 1 { // there is nothing else to read
		return a.replay(&core.State{}, []*core.Entry{first})
	}
	c, ok := a.cache.take(a.key)
	if ok && c.at.Etag == former.Etag {
		return a.replay(c.state, []*core.Entry{first})
	}
	if c.at.Rev >= a.at.Rev {
		c = unread() // of entries that the store has lost since
	}
	entries, end, err := a.journal(ctx, c.at, a.at.Rev)
	if errors.Is(err, ErrCorrupt) && c.at.Rev > 0 {
		c = unread() // the journal was rolled back since; it is read from the beginning
		entries, end, err = a.journal(ctx, c.at, a.at.Rev)
	}
	if err != nil {
		return err
	}
	if err := a.replay(c.state, entries); err != nil {
		return err
	}
	if end.Etag != a.at.Etag {
		// What others appended since is part of it, and may let a tool run: it must not be forgotten then.
		a.at = end
		if _, err := a.confirm(ctx); err != nil {
			return err
		}
	}
	return a.stillDriven()
}

// stillDriven returns ErrFenced unless the state names this activation as the driver.
func (a *activation) stillDriven() error {
	if d := a.state.Driver; d == nil || d.Owner != a.owner {
		return core.ErrFenced
	}
	return nil
}

// replay has the activation go by a state, which it takes over, and the entries after it.
func (a *activation) replay(state *core.State, entries []*core.Entry) (err error) {
	if *state, err = fold(*state, entries); err != nil {
		return err
	}
	a.state = state
	return nil
}

// commit applies an outcome to the run and makes it durable, on top of whatever was absorbed meanwhile. One that no store takes ends the
// run. ErrFenced says that the run is somebody else's by now.
func (a *activation) commit(ctx context.Context, event core.Event) error {
	a.costs.told = false
	defer func() { a.counted(event) }()
	if joined, err := a.join(ctx, event); joined || err != nil {
		return err
	}
	for {
		change, err := core.Step(a.agent.Core, a.state.Head, a.asDriver(event))
		if err != nil {
			return err
		}
		entry, at, err := a.appendEntry(ctx, a.at, change)
		if _, ending := event.(core.Ended); tooLarge(err) && !ending {
			event = a.tooMuch(ctx, event, err)
			continue
		}
		if errors.Is(err, ErrConflict) {
			appended, err := a.catchUp(ctx)
			if err != nil {
				return err
			}
			if len(appended) == 0 || appended[0].Etag != entry.Etag {
				continue
			}
			// The store wrote it although it did not say so, and others appended after it: nobody has confirmed it yet.
			a.costs.told = true
			more, err := a.confirm(ctx)
			if err != nil {
				return err
			}
			appended = append(appended, more...)
			a.announce(appended[0])
			if err := a.carryOut(ctx, appended[0], unclosed(appended[0].Effects, waited(appended))); err != nil {
				return err
			}
			return a.stillDriven()
		}
		if err != nil {
			return err
		}
		a.at = at
		if *a.state, err = core.Apply(*a.state, entry); err != nil {
			return err
		}
		a.announce(entry)
		return a.carryOutOwn(ctx, entry)
	}
}

// tooMuch is how the run ends whose step comes to more than can be stored: to do it again would come to the same, and cost as much.
func (a *activation) tooMuch(ctx context.Context, event core.Event, err error) core.Event {
	a.Logger.ErrorContext(ctx, "a step of the run is too large to be stored", "run", a.state.Run, "step", fmt.Sprintf("%T", event), "error", err)
	a.lose(core.Cost(event))
	return core.Ended{Ending: core.Ending{
		Reason: core.ReasonError, Code: sdk.CodeTooLarge,
		Message: "what the run did next is too large to be stored: " + sdk.AsError(err).Message,
	}}
}

// carryOutOwn carries out what follows from an own entry that the state has.
func (a *activation) carryOutOwn(ctx context.Context, entry *core.Entry) error {
	a.noteDriven(entry.At)
	a.leaveState()
	return a.carryOut(ctx, entry, entry.Effects)
}

// leaveState leaves the state of a run that rests to whoever drives it next; only its head stays here. The answer to a call may come while
// the call's other effects are still carried out, and would read the whole journal if it did not find the state.
func (a *activation) leaveState() {
	if a.left || a.state.Status == core.StatusRunning {
		return
	}
	a.left = true
	left := a.state
	a.state = &core.State{Head: left.Head} // first: as soon as it is in the cache it is somebody else's
	a.cache.put(cached{run: a.key, at: a.at, state: left})
}

// confirm makes durable what was read up to a.at, and what others appended meanwhile, which it returns.
func (a *activation) confirm(ctx context.Context) (appended []*core.Entry, err error) {
	for {
		err := a.Store.Barrier(ctx, a.key, a.at.Version)
		if !errors.Is(err, ErrConflict) {
			return appended, err
		}
		more, err := a.catchUp(ctx)
		if err != nil {
			return nil, err
		}
		appended = append(appended, more...)
	}
}

// catchUp applies what was appended since to the state, and returns it. An own entry that was refused although it was written can only be
// the first. One that is gone shows as a journal that does not follow: then the run was rolled back, and this activation has lost it.
func (a *activation) catchUp(ctx context.Context) (appended []*core.Entry, err error) {
	for range mostStaleReads {
		rec, err := a.Store.Head(ctx, a.key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("read head of run %s: %w", a.key, err)
		}
		if rec.Rev <= a.at.Rev {
			if rec.Etag != a.at.Etag {
				return nil, core.ErrFenced
			}
			return nil, a.Env.Sleep(ctx, staleReadDelay)
		}
		entries, end, err := a.journal(ctx, a.at, rec.Rev)
		if errors.Is(err, ErrCorrupt) {
			a.Logger.ErrorContext(ctx, "run is left to whoever reads its journal anew", "run", a.state.Run, "error", err)
			return nil, core.ErrFenced
		}
		if err != nil {
			return nil, err
		}
		if entries[rec.Rev-a.at.Rev-1].Etag == rec.Etag {
			return entries, a.follow(entries, end)
		}
		// It is not the journal, but what a store has that lost a failover: maybe with the entry that was refused.
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("run %s: its entries after %d are not those that its head names", a.key, a.at.Rev)
}

// follow applies entries that were appended since.
func (a *activation) follow(entries []*core.Entry, end point) (err error) {
	if *a.state, err = fold(*a.state, entries); err != nil {
		return err
	}
	a.at = end
	return nil
}

// act carries out one action and returns its outcome.
func (a *activation) act(ctx context.Context, action core.Action) (core.Event, error) {
	switch act := action.(type) {
	case core.AskContext:
		question, err := core.ContextQuestion(a.state)
		return core.Inquired{Question: question}, err
	case core.CallModel:
		return a.callModel(ctx)
	case core.MakePlan:
		return a.makePlan(ctx)
	case core.RouteSteps:
		return a.routeSteps(ctx, act.Steps)
	case core.RunTools:
		return a.runTools(ctx, act)
	case core.Review:
		return a.review(ctx)
	case core.Undo:
		return a.undo(ctx, act.Call)
	case core.Park:
		return a.yield(), nil
	case core.BuildOutput:
		text, err := a.stopText(ctx)
		if err != nil {
			return nil, err
		}
		return a.withOutput(ctx, text, func(o core.Output) core.Event { return core.Built{Output: o} })
	case core.End:
		return core.Ended{Ending: act.Ending}, nil
	}
	return nil, fmt.Errorf("%w: no action %T", core.ErrIllegal, action)
}

// storable replaces bytes that are not UTF-8. The journal cannot hold them, and what is sent now must equal what is
// rebuilt from the journal later. Arguments stay as they are: the core refuses such bytes there.
func storable(reply *sdk.ModelReply) {
	reply.Text = strings.ToValidUTF8(reply.Text, "\uFFFD")
	if reply.Fault != nil {
		reply.Calls = nil
		fault := *reply.Fault
		fault.Message = strings.ToValidUTF8(fault.Message, "\uFFFD")
		reply.Fault = &fault
	}
	calls := slices.Clone(reply.Calls)
	for i := range calls {
		calls[i].Name = strings.ToValidUTF8(calls[i].Name, "\uFFFD")
	}
	reply.Calls = calls
}

// withTimeout bounds work on the run by its deadline as well.
func (a *activation) withTimeout(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	left := time.Duration(max(a.state.Deadline-a.Env.Now(), 0)) * time.Millisecond
	return a.Env.WithTimeout(ctx, min(most, left))
}

// modelFailed is what a failed model call comes to: the run is parked, or ends where waiting would not help, or its time is over.
func (a *activation) modelFailed(ctx context.Context, err error) (core.Event, error) {
	if a.Env.Now() >= a.state.Deadline {
		return core.Ended{Ending: core.DeadlinePassed()}, nil
	}
	if woken(ctx) {
		return core.Ended{Ending: core.Ending{Reason: core.ReasonCancelled, Code: sdk.CodeCancelled, Message: err.Error()}}, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	e := sdk.AsError(err)
	if degraded := a.degraded(ctx, e); degraded != nil {
		return *degraded, nil
	}
	if a.passes(e) {
		return a.park(ctx, e), nil
	}
	a.Logger.ErrorContext(ctx, "model call failed", "run", a.state.Run, "error", err)
	return core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: e.Code, Message: e.Message}}, nil
}
