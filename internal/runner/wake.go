package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// Why work of a driver is interrupted.
var (
	errWoken   = errors.New("the run is to end")
	errSteered = errors.New("somebody sent a message into the run")
	errGivenUp = errors.New("the call was cancelled")
)

// working are the runs that are driven here, each with what interrupts a model call or tools in flight.
type working struct {
	mu   sync.Mutex
	runs map[wire.RunKey]*work
}

type work struct {
	interrupt context.CancelCauseFunc
	// call interrupts the model call in progress, if there is one; urgent says that the next is not to begin before the driver
	// has looked at the run again.
	call   context.CancelCauseFunc
	urgent bool
	// tools are the inline calls in progress.
	tools []toolAtWork
}

type toolAtWork struct {
	call      string
	interrupt context.CancelCauseFunc
}

// begin returns a context that Wake ends, and what must be called when the work is done. A run has one driver: where two
// activations are at work on it here, the earlier one has lost it and has not noticed yet.
func (w *working) begin(ctx context.Context, run wire.RunKey) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := &work{interrupt: cancel}
	w.runs[run] = mine
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runs[run] == mine {
			delete(w.runs, run)
		}
	}
}

func (w *working) find(run wire.RunKey) *work {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[run]
}

// calling returns a context for a model call, which ends with errSteered when somebody sends a message that is not to wait,
// and what must be called when the call is over.
func (w *working) calling(ctx context.Context, run wire.RunKey) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := w.runs[run]
	if mine == nil {
		return ctx, func() { cancel(nil) }
	}
	mine.call = cancel
	if mine.urgent {
		cancel(errSteered)
	}
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		mine.call, mine.urgent = nil, false
	}
}

// steer interrupts the model call of a run, or keeps the next from beginning.
func (w *working) steer(mine *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mine.call != nil {
		mine.call(errSteered)
		return
	}
	mine.urgent = true
}

// tool returns a context for an inline call, which ends with errGivenUp when the call is cancelled, and what must be called when the
// call is over.
func (w *working) tool(ctx context.Context, run wire.RunKey, call string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := w.runs[run]
	if mine == nil {
		return ctx, func() { cancel(nil) }
	}
	mine.tools = append(mine.tools, toolAtWork{call, cancel})
	return ctx, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		mine.tools = slices.DeleteFunc(mine.tools, func(t toolAtWork) bool { return t.call == call })
	}
}

// giveUp interrupts the tools whose calls have their results in the head: they were cancelled.
func (w *working) giveUp(mine *work, head *core.Head) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range mine.tools {
		if c := head.Call(t.call); c == nil || c.Closed() {
			t.interrupt(errGivenUp)
		}
	}
}

// Wake interrupts what is in flight for a run that is to end, or has, because a cancel must not wait for a model to answer; and a
// model call, when somebody sent a message that is not to wait either, and tools whose calls were cancelled. A run that is not driven here, or goes on, is left
// alone.
func (r *Runner) Wake(ctx context.Context, run wire.RunKey) error {
	driven := r.working.find(run)
	if driven == nil {
		return nil
	}
	rec, err := r.Store.Head(ctx, run)
	if err != nil {
		return fmt.Errorf("read head of run %s: %w", run, err)
	}
	entry, _, err := r.Entries.Decode(rec.Data)
	if err != nil {
		return fmt.Errorf("run %s: %w", run, err)
	}
	if entry.Head.Cancel != nil || entry.Head.Status == core.StatusDone {
		driven.interrupt(errWoken)
		return nil
	}
	r.working.giveUp(driven, &entry.Head)
	if entry.Head.Urgent {
		r.working.steer(driven)
	}
	return nil
}

// woken reports whether the work of ctx was interrupted by Wake.
func woken(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errWoken) }
