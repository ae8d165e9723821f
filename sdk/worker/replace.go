package worker

import (
	"context"
	"errors"
	"sync"
)

// generation is the worker of one state of the options.
type generation struct {
	*serving
	stop context.CancelFunc
	// began is closed when it serves, and ended when it has ended, with err.
	began, ended chan struct{}
	err          error
}

// begin starts a worker.
func (s *serving) begin(ctx context.Context) *generation {
	ctx, stop := context.WithCancel(ctx)
	g := &generation{serving: s, stop: stop, began: make(chan struct{}), ended: make(chan struct{})}
	tell := s.Serving
	s.Serving = func() {
		if tell != nil {
			tell()
		}
		close(g.began)
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

// end stops a worker and waits for it.
func (g *generation) end() {
	g.stop()
	<-g.ended
}

// turns are the workers of one Run.
type turns struct {
	// current serves, or begins to as the first; next is to take its place, nil if nobody is; former let their activations end.
	current, next *generation
	former        sync.WaitGroup
}

var errOthersCame = errors.New("other options came before these were served")

// inTurn serves with the options of s, and with those that replace them, until ctx ends or a worker that has no successor does.
func (s *serving) inTurn(ctx context.Context) error {
	t := turns{current: s.begin(ctx)}
	defer t.former.Wait()
	defer func() { t.current.end() }()
	replaced := s.Replaced
	for {
		var began, failed <-chan struct{}
		if t.next != nil {
			began, failed = t.next.began, t.next.ended
		}
		select {
		case <-t.current.ended:
			ended := t.current
			if t.conclude(ended.err); t.current == ended {
				return ended.err
			}
		case <-began:
			t.conclude(nil)
		case <-failed:
			t.conclude(nil)
		case o, more := <-replaced:
			if !more {
				replaced = nil
				continue
			}
			t.conclude(errOthersCame)
			t.next = s.successor(ctx, o)
		}
	}
}

// conclude has who is to take over do so, if it serves, or else end, and hear why: for what it failed at, or else for because.
func (t *turns) conclude(because error) {
	next := t.next
	if t.next = nil; next == nil {
		return
	}
	if served(next) {
		before := t.current
		t.current = next
		before.stop()
		t.former.Go(before.leave)
		return
	}
	next.end()
	if next.err != nil {
		because = next.err
	}
	if because != nil {
		next.kept(because)
	}
}

// successor begins to serve with other options. It returns nil if nobody can.
func (s *serving) successor(ctx context.Context, o Options) *generation {
	next, err := newServing(o)
	if err != nil {
		o.kept(err)
		return nil
	}
	next.health, next.telemetry = s.health, s.telemetry
	return next.begin(ctx)
}

func (o *Options) kept(err error) {
	if o.Kept != nil {
		o.Kept(err)
	}
}

func served(g *generation) bool {
	select {
	case <-g.began:
		return true
	default:
		return false
	}
}

// leave waits until a worker that was replaced has ended. What it leaves undone goes on in its successor.
func (g *generation) leave() {
	<-g.ended
	if g.err != nil {
		g.Logger.Warn("the worker that was replaced did not end well", "error", g.err)
	}
}
