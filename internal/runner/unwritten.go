package runner

import (
	"context"
	"fmt"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
)

const (
	// patience is how long a model may take to reply before what it is asked about is written without its reply.
	patience = 500 * time.Millisecond
	// mostJoined is how many bytes of results are written together with a reply, so that the entry is no larger than stores take.
	mostJoined = 32 << 10
)

// unwritten is what the message does to the run, which the activation goes by and has not written, so that it and the model's reply can be
// one entry. Nothing leaves the worker because of it but the model call (R1), and the message is not acked (R3): whoever else writes to
// the run meanwhile makes it void, and it is made anew from the message.
type unwritten struct {
	change core.Change
	// before is the head that the change was made of.
	before core.Head
}

// keep has the activation go by a change that it does not write yet: an answer that a model is asked about at once. It reports false when
// the change is to be written first: where more than a model call would follow from it, where somebody is to learn of it now, where the run
// may be what ended an earlier delivery (the entry counts that), and where the run is not as the activation knows it.
func (a *activation) keep(ctx context.Context, change *core.Change) bool {
	now := a.Env.Now()
	switch {
	case a.Apart, a.overtaken, a.alone, a.msg.Delivered > 1, !change.Joinable(&a.head), joinedSize(change) > mostJoined:
		return false
	case len(a.agent.Phases) > 0: // hooks are shown what is durable
		return false
	case a.head.Timer <= now+2*patience.Milliseconds(): // what is due then comes after what has come before
		return false
	case a.watched(a.head.Agent):
		return false
	}
	if _, asks := core.Next(a.agent.Core, &change.Head, now).(core.CallModel); !asks {
		return false
	}
	state, ok := a.stateBefore(ctx)
	if !ok {
		return false
	}
	var err error
	*state, err = core.Apply(*state, &core.Entry{V: change.Head.V, Rev: a.at.Rev + 1, Cause: a.msg.Cause, At: change.At, Change: *change})
	if err != nil {
		return false
	}
	a.state, a.unwritten = state, &unwritten{change: *change, before: a.head}
	a.head = change.Head
	a.behind.Store(1)
	return true
}

// joinedSize is about how many bytes a change adds to an entry, beside its head; images and sounds are more than any entry is to have.
func joinedSize(change *core.Change) int {
	size := 0
	for i := range change.Results {
		r := &change.Results[i]
		size += len(r.Data) + len(r.Media)*mostJoined
	}
	for i := range change.Messages {
		size += len(change.Messages[i].PlainText())
	}
	return size
}

// stateBefore is the run's state at a.at. It reports false when that cannot be had by one look: whoever writes first finds out why.
func (a *activation) stateBefore(ctx context.Context) (*core.State, bool) {
	c, known := a.cache.take(a.key)
	if known && c.at.Etag == a.at.Etag {
		return c.state, true
	}
	if c.at.Rev >= a.at.Rev {
		c = unread()
	}
	entries, end, err := a.readAfter(ctx, a.key, c.at)
	if err != nil || end.Etag != a.at.Etag {
		if c.at.Rev > 0 {
			a.cache.put(c)
		}
		return nil, false
	}
	*c.state, err = fold(*c.state, entries)
	return c.state, err == nil
}

// write makes durable what is unwritten, if anything is. ErrConflict says that the run moved on, and that it is void.
func (a *activation) write(ctx context.Context) error {
	u := a.unwritten
	if u == nil {
		return nil
	}
	entry, at, err := a.appendEntry(ctx, a.at, u.change)
	if err != nil {
		return err
	}
	a.written(ctx, entry, at)
	a.noteDriven(entry.At)
	return nil
}

// written takes the entry with what was unwritten as the run's last one.
func (a *activation) written(ctx context.Context, e *core.Entry, at point) {
	before := a.unwritten.before
	a.unwritten, a.at = nil, at
	a.behind.Store(0)
	a.ended(ctx, &before, e.Parts()[0])
	a.announce(e)
}

// drop forgets what is unwritten, because the run moved on, and the head with it: whoever went on from that would write a run without what
// led to it. The activation keeps nothing of the kind again: who writes to the run may do so often.
func (a *activation) drop() {
	a.head = a.unwritten.before
	a.unwritten, a.state = nil, nil
	a.behind.Store(0)
	a.overtaken = true
}

// join writes an outcome together with what is unwritten, if the one is a model's reply. It reports false when the outcome is to be written
// by itself; what was unwritten is written then.
func (a *activation) join(ctx context.Context, event core.Event) (bool, error) {
	u := a.unwritten
	if _, replied := event.(core.Replied); u == nil || !replied {
		return false, a.write(ctx)
	}
	change, err := core.Step(a.agent.Core, a.state.Head, a.asDriver(event))
	if err != nil {
		return false, err
	}
	a.blind = false // the reply is worth that the store is asked again
	entry, at, err := a.appendEntry(ctx, a.at, change.After(&u.change))
	if tooLarge(err) {
		return false, a.write(ctx)
	}
	if err != nil {
		return false, err
	}
	a.written(ctx, entry, at)
	if *a.state, err = core.ApplyRest(*a.state, entry); err != nil {
		return false, err
	}
	return true, a.carryOutOwn(ctx, entry)
}

// ask has a model reply. What is unwritten is written when that takes longer than patience; when it cannot be, because the run moved on or
// the store is away, interrupt ends the call, and lost says why: the reply is void.
func (a *activation) ask(
	ctx context.Context, interrupt func(), call func() (sdk.ModelReply, error),
) (reply sdk.ModelReply, err, lost error) {
	if a.unwritten == nil {
		reply, err = guarded(call)
		return reply, err, nil
	}
	a.Env.Beat(func() { reply, err = guarded(call) }, patience, func() bool {
		if ctx.Err() != nil {
			return false
		}
		// It is written to the end, also when the call is interrupted meanwhile.
		if lost = a.write(context.WithoutCancel(ctx)); lost != nil {
			interrupt()
		}
		return false
	})
	if lost != nil {
		lost = fmt.Errorf("write what the model of run %s was asked about: %w", a.key, lost)
	}
	return reply, err, lost
}
