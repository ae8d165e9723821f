package sim

import (
	"context"
	"iter"
	"runtime/debug"
)

// fiber is a coroutine of a worker. It runs only inside resume and stop.
type fiber struct {
	worker *worker
	parent *fiber
	// children that have not returned yet: the fiber waits for them.
	children int
	// wake is when a sleeping or stalled fiber goes on, in Unix milliseconds; sleeping is the context that ends its
	// sleep early, nil when it does not sleep.
	wake     int64
	sleeping context.Context
	// at names the call that the fiber is about to make.
	at   string
	done bool

	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
}

// killed unwinds a fiber whose worker died. Code that recovers panics, as the runner does around tools, meets it again
// at its next point.
type killed struct{}

// spawn makes a fiber that runs f; the scheduler starts it.
func (s *simulation) spawn(w *worker, parent *fiber, f func()) {
	fb := &fiber{worker: w, parent: parent, at: "begin"}
	fb.next, fb.stop = iter.Pull(func(yield func(struct{}) bool) {
		fb.yield = yield
		defer func() {
			fb.done = true
			p := recover()
			if _, ok := p.(killed); !ok && p != nil {
				s.violate("panic", "%v\n%s", p, debug.Stack())
			}
		}()
		f()
	})
	w.fibers = append(w.fibers, fb)
}

// resume runs a fiber up to its next point or its end.
func (s *simulation) resume(fb *fiber) {
	s.running = fb
	_, more := fb.next()
	s.running = nil
	if !more {
		fb.worker.forget(fb)
	}
}

// pause gives control back to the scheduler. It does not return when the worker was killed meanwhile.
func (s *simulation) pause(at string) {
	fb := s.running
	fb.at = at
	if !fb.yield(struct{}{}) {
		panic(killed{})
	}
}

// kill ends a fiber where it is.
func (s *simulation) kill(fb *fiber) {
	s.running, s.dying = fb, true
	fb.stop()
	s.running, s.dying = nil, false
}

// ready reports whether the fiber can go on at now.
func (fb *fiber) ready(now int64) bool {
	switch {
	case fb.children > 0:
		return false
	case fb.sleeping != nil && fb.sleeping.Err() != nil:
		return true
	}
	return fb.wake <= now
}
