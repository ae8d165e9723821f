package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentd/internal/handler"
	"agentd/internal/runner"
	"agentd/sdk"
)

// worker is one incarnation of a worker process: all its memory is here. It is the Env of its runner and handler.
type worker struct {
	*simulation
	name    string
	runner  *runner.Runner
	handler *handler.Handler
	ctx     context.Context
	stop    context.CancelFunc
	fibers  []*fiber
	// busy counts deliveries in hand, of which it takes slots at most.
	busy, slots int
	// deaf: its heartbeats do not reach the broker, though it goes on working.
	deaf, draining bool
}

// start puts a fresh incarnation at place i.
func (s *simulation) start(i int) {
	s.incarnations++
	w := &worker{simulation: s, name: fmt.Sprintf("w%d.%d", i, s.incarnations), slots: 1 + s.pick(3)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.deaf = s.chance(s.mix.deaf)
	cache := 0
	if s.chance(0.3) {
		cache = -1
	}
	w.runner = runner.New(runner.Options{
		Store: s.store, Publisher: publisher{s}, Env: w, Catalog: s.catalog, Subjects: subjects, Logger: s.logger, Cache: cache,
		Entries: s.entries,
	})
	w.handler = handler.New(handler.Options{
		Runner: w.runner, DeadLetters: publisher{s}, Env: w, Subjects: subjects, Logger: s.logger,
		Services:  s.catalog.serves,
		Heartbeat: heartbeat * time.Millisecond, Silence: silence * time.Millisecond,
	})
	s.workers[i] = w
}

// crash kills a worker as kill -9 does, and starts another in its place.
func (s *simulation) crash(i int) {
	w := s.workers[i]
	for _, fb := range w.fibers {
		if !fb.done {
			s.stats.crash(fb.at)
			s.trace("crash   %s at %s", w.name, fb.at)
		}
	}
	s.shut(i)
	s.start(i)
}

// shut ends all fibers of the worker at place i.
func (s *simulation) shut(i int) {
	w := s.workers[i]
	for _, fb := range w.fibers {
		s.kill(fb)
	}
	w.fibers = nil
	w.stop()
}

// drain begins a graceful end; reap starts the next incarnation when it is over.
func (w *worker) drain() {
	w.trace("drain   %s", w.name)
	w.draining = true
	w.runner.Drain()
	if w.chance(0.3) {
		w.stop()
	}
}

func (s *simulation) reap(i int) {
	if w := s.workers[i]; w.draining && len(w.fibers) == 0 {
		w.stop()
		s.start(i)
	}
}

func (w *worker) forget(fb *fiber) {
	w.fibers = slices.DeleteFunc(w.fibers, func(o *fiber) bool { return o == fb })
	if fb.parent != nil {
		fb.parent.children--
	}
}

// take handles a delivery in a fiber of its own.
func (w *worker) take(d *delivery) {
	w.busy++
	w.spawn(w, nil, func() {
		w.handler.Handle(w.ctx, d)
		w.busy--
	})
}

// Now implements runner.Env.
func (w *worker) Now() int64 { return w.now }

// Sleep implements runner.Env.
func (w *worker) Sleep(ctx context.Context, d time.Duration) error {
	fb := w.running
	fb.wake, fb.sleeping = w.now+d.Milliseconds(), ctx
	if t, ok := ctx.(*timeout); ok {
		fb.wake = min(fb.wake, t.due)
	}
	w.pause("sleep")
	fb.sleeping = nil
	return ctx.Err()
}

// Parallel implements runner.Env.
func (w *worker) Parallel(fs ...func()) {
	fb := w.running
	for _, f := range fs {
		fb.children++
		w.spawn(w, fb, f)
	}
	if len(fs) > 0 {
		w.pause("join")
	}
}

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

// Random implements runner.Env.
func (w *worker) Random() string {
	var b [26]byte
	for i := range b {
		if i%12 == 0 {
			w.bits = w.rng.Uint64()
		}
		b[i] = alphabet[w.bits&31]
		w.bits >>= 5
	}
	return string(b[:])
}

// enter is the point before a call leaves the worker. Its error is that of a context that ended.
func (s *simulation) enter(ctx context.Context, at string) error {
	s.pause(at)
	return ctx.Err()
}

var subjects = sdk.DefaultSubjects()

// WithTimeout implements runner.Env.
func (w *worker) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return &timeout{Context: ctx, simulation: w.simulation, due: w.now + d.Milliseconds()}, cancel
}

// timeout is a context that ends on the simulation's clock. Nobody waits for it but Sleep: it closes no channel.
type timeout struct {
	context.Context
	*simulation
	due int64
}

// Err implements context.Context.
func (t *timeout) Err() error {
	if err := t.Context.Err(); err != nil {
		return err
	}
	if t.now >= t.due {
		return context.DeadlineExceeded
	}
	return nil
}
