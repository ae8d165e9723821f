package sim

import (
	"context"
	"iter"
	"runtime/debug"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// fiber is a thread of a worker. It runs only inside resume and kill, on a coroutine.
type fiber struct {
	*coroutine
	worker *worker
	parent *fiber
	job    func()
	// began is when it was made, in Unix milliseconds.
	began int64
	// children that have not returned yet: the fiber waits for them.
	children int
	// wake is when a sleeping or frozen fiber goes on, in Unix milliseconds; sleeping is the context that ends its sleep
	// early, nil when it does not sleep.
	wake     int64
	sleeping context.Context
	// at is where it stands; published counts the events since it last found an entry to be durable.
	at        point
	published int
	// unsure is the etag of an entry that may be written or not.
	unsure string
	// owner is the name that its activation gave itself, "" before it has one and in the fibers that it made.
	owner string
	// knows are the last entries of journals that it has read or written.
	knows map[wire.RunKey]*core.Entry
	// found are the calls, by id, that it has looked for and found in the stream: it may stand still, and publish their voids when
	// they are gone.
	found map[string]bool
	// message is what it handles, and written the runs that it has written an entry of.
	message core.Cause
	written map[wire.RunKey]bool
	// agentPaused says that it does not know otherwise than that its run's agent is paused.
	agentPaused bool

	started, dying, done bool
}

// learns notes that the activation knows an entry to be the last one of a journal.
func (fb *fiber) learns(run wire.RunKey, e *core.Entry) {
	a := fb.activation()
	if a.knows == nil {
		a.knows = map[wire.RunKey]*core.Entry{}
	}
	a.knows[run] = e
}

// wrote notes that the activation has written an entry of a run.
func (fb *fiber) wrote(run wire.RunKey) {
	a := fb.activation()
	if a.written == nil {
		a.written = map[wire.RunKey]bool{}
	}
	a.written[run] = true
}

// knowsPause reports whether a fiber, or who waits for it, knows that the agent is paused.
func (fb *fiber) knowsPause() bool {
	for ; fb != nil; fb = fb.parent {
		if fb.agentPaused {
			return true
		}
	}
	return false
}

// finds notes that the activation has looked for a call and found it in the stream.
func (fb *fiber) finds(address wire.Address) {
	ref, _ := wire.ParseCallRef(address.Call.Call)
	if fb.found == nil {
		fb.found = map[string]bool{}
	}
	fb.found[ref.ID] = true
}

// hasFound reports whether the activation has found the call of an address.
func (fb *fiber) hasFound(address wire.Address) bool {
	ref, ok := wire.ParseCallRef(address.Call.Call)
	return ok && fb.found[ref.ID]
}

// activation is the fiber that handles the message for which fb works.
func (fb *fiber) activation() *fiber {
	for fb.parent != nil {
		fb = fb.parent
	}
	return fb
}

// coroutine runs one fiber after the other: making one is dear, and so is its stack's growth.
type coroutine struct {
	fiber *fiber
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
}

func newCoroutine() *coroutine {
	c := &coroutine{}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		for {
			c.fiber.run()
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return c
}

// pool keeps the coroutines of a goroutine that plays histories. release must be called in the end.
type pool struct{ idle []*coroutine }

func (p *pool) take() *coroutine {
	if len(p.idle) == 0 {
		return newCoroutine()
	}
	c := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return c
}

func (p *pool) put(c *coroutine) {
	c.fiber = nil
	p.idle = append(p.idle, c)
}

func (p *pool) release() {
	for _, c := range p.idle {
		c.stop()
	}
	p.idle = nil
}

// killed unwinds a fiber whose worker died. Code that recovers panics, as the runner does around tools, meets it again
// at its next point.
type killed struct{}

// spawn makes a fiber that runs f; the scheduler starts it.
func (s *simulation) spawn(w *worker, parent *fiber, f func()) *fiber {
	fb := &fiber{coroutine: s.pool.take(), worker: w, parent: parent, job: f, began: s.now}
	fb.fiber = fb
	w.fibers = append(w.fibers, fb)
	return fb
}

// run does the fiber's job to its end, or until it is killed.
func (fb *fiber) run() {
	defer fb.end()
	fb.job()
}

func (fb *fiber) end() {
	fb.done = true
	p := recover()
	if _, ok := p.(killed); !ok && p != nil {
		fb.worker.violate("panic", "%v\n%s", p, debug.Stack())
	}
}

// resume runs a fiber up to its next point or its end.
func (s *simulation) resume(fb *fiber) {
	s.running, fb.started = fb, true
	fb.next()
	s.running = nil
	if fb.done {
		fb.worker.forget(fb)
		s.pool.put(fb.coroutine)
	}
}

// pause gives control back to the scheduler. It does not return when the worker was killed meanwhile.
func (s *simulation) pause(at point) {
	fb := s.running
	fb.at = at
	s.yield()
}

// yield is pause without another place.
func (s *simulation) yield() {
	fb := s.running
	if !fb.dying {
		fb.yield(struct{}{})
	}
	if fb.dying {
		panic(killed{})
	}
}

// kill ends a fiber where it is.
func (s *simulation) kill(fb *fiber) {
	fb.dying = true
	if fb.started && !fb.done {
		s.running, s.dying = fb, true
		fb.next()
		s.running, s.dying = nil, false
	}
	s.pool.put(fb.coroutine)
}

// ready reports whether the fiber can go on at now.
func (fb *fiber) ready(now int64) bool {
	switch {
	case fb.children > 0:
		return false
	case fb.wake <= now:
		return true
	}
	return fb.sleeping != nil && fb.sleeping.Err() != nil
}
