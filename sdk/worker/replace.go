package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"agentd/sdk"
)

// ErrReplaced is why options are not served that others came for in the meantime.
var ErrReplaced = errors.New("other options came before these were served")

// generation is the worker of one state of the options.
type generation struct {
	*serving
	stop context.CancelFunc
	// settled is set by the first of two: the worker, which then serves, and who has it end before that.
	settled atomic.Bool
	// began is closed when it serves, and ended when it has ended, with err.
	began, ended chan struct{}
	err          error
	// toolsets are those of its agents: it closes them when it ends.
	toolsets map[sdk.Toolset]bool
}

// begin starts a worker.
func (s *serving) begin(ctx context.Context) *generation {
	ctx, stop := context.WithCancel(ctx)
	g := &generation{
		serving: s, stop: stop, began: make(chan struct{}), ended: make(chan struct{}), toolsets: map[sdk.Toolset]bool{},
	}
	for _, a := range s.Agents {
		for _, set := range a.Toolsets {
			g.toolsets[set] = true
		}
	}
	tell := s.Serving
	s.Serving = func() {
		if g.settled.Swap(true) {
			return
		}
		close(g.began)
		if tell != nil {
			tell()
		}
	}
	go func() {
		defer close(g.ended)
		g.err = s.run(ctx)
		if ctx.Err() != nil && errors.Is(g.err, ctx.Err()) {
			g.err = nil // it was asked to stop while it waited for a server
		}
	}()
	return g
}

// turns are the workers of one Run.
type turns struct {
	// current serves, or begins to as the first; next is to take its place, nil if nobody is.
	current, next *generation
	// leaving are those that end, and callbacks that may still run.
	leaving sync.WaitGroup
}

// inTurn serves with the options of s, and with those that replace them, until ctx ends or a worker that has no successor does.
func (s *serving) inTurn(ctx context.Context) error {
	t := turns{current: s.begin(ctx)}
	defer t.leaving.Wait()
	serves, replaced := t.current.began, s.Replaced
	for {
		var began, failed chan struct{}
		if t.next != nil {
			began, failed = t.next.began, t.next.ended
		}
		select {
		case <-serves:
			s.health.set(t.current.ready)
			serves = nil
		case <-t.current.ended:
			t.current.stop()
			if t.next == nil {
				return t.current.err
			}
			if t.current.err != nil {
				t.current.Logger.Error("the worker ended; the one that is to replace it goes on", "error", t.current.err)
			}
			t.current, t.next = t.next, nil
			serves = t.current.began
		case <-began:
			serves = t.takeOver()
		case <-failed:
			if serving := t.settle(nil); serving != nil {
				serves = serving
			}
		case o, more := <-replaced:
			if !more {
				replaced = nil
				continue
			}
			other, err := s.other(o, &t)
			if err != nil {
				t.leaving.Go(func() { o.kept(err) })
				continue
			}
			if serving := t.settle(ErrReplaced); serving != nil {
				serves = serving
			}
			t.next = other.begin(ctx)
		}
	}
}

// takeOver has next be current, and returns what says that it serves.
func (t *turns) takeOver() (serves chan struct{}) {
	before := t.current
	t.current, t.next = t.next, nil
	before.settled.Store(true)
	before.stop()
	t.leaving.Go(func() {
		<-before.ended
		if before.err != nil {
			before.Logger.Warn("the worker that was replaced did not end well", "error", before.err)
		}
	})
	return t.current.began
}

// settle decides about next, if there is one: it takes over if it serves by now, else it ends, and hears of its error or of why. It returns
// what takeOver returns, or nil.
func (t *turns) settle(why error) (serves chan struct{}) {
	if t.next == nil {
		return nil
	}
	if t.next.settled.Swap(true) {
		return t.takeOver()
	}
	refused := t.next
	t.next = nil
	refused.stop()
	t.leaving.Go(func() {
		<-refused.ended
		if refused.err != nil {
			why = refused.err
		}
		if why != nil { // nil is that Run ends
			refused.kept(why)
		}
	})
	return nil
}

// other is a worker of other options, if it can be.
func (s *serving) other(o Options, t *turns) (*serving, error) {
	other, err := newServing(o)
	if err != nil {
		return nil, err
	}
	for _, a := range o.Agents {
		for _, set := range a.Toolsets {
			if t.has(set) {
				return nil, sdk.Errorf(sdk.CodeConfig, "agent %s: toolset %s is that of the options before, which close it", a.Spec.Name, set.Name())
			}
		}
	}
	other.health, other.telemetry = s.health, s.telemetry
	return other, nil
}

// has reports whether a toolset is that of who serves or is to.
func (t *turns) has(set sdk.Toolset) bool {
	return t.current.toolsets[set] || t.next != nil && t.next.toolsets[set]
}

func (o *Options) kept(err error) {
	if o.Kept != nil {
		o.Kept(err)
	}
}
