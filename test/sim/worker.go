package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentd/internal/clock"
	"agentd/internal/core"
	"agentd/internal/handler"
	"agentd/internal/runner"
	"agentd/sdk/wire"
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
	// doomed: a run has killed it.
	doomed bool
	// skew is how far its machine's clock is ahead, in milliseconds; clock corrects that.
	skew  int64
	clock clock.Clock
	// version is that of the agents it starts runs with; incomplete: it lacks the code of all others.
	version    int
	incomplete bool
}

// start puts a fresh incarnation at place i.
func (s *simulation) start(i int) {
	s.incarnations++
	w := &worker{simulation: s, name: fmt.Sprintf("w%d.%d", i, s.incarnations), slots: 1 + s.pick(3), version: s.version}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.deaf = s.strikes(deaf)
	w.incomplete = s.strikes(incomplete)
	if s.strikes(skew) {
		w.skew = int64(s.pick(2*mostSkew+1) - mostSkew)
	}
	w.measure()
	cache := 0
	if s.pick(3) == 0 {
		cache = -1
	}
	agents := catalog{s, w}
	w.runner = runner.New(runner.Options{
		Store: s.store, Publisher: publisher{s}, Env: w, Catalog: agents, Subjects: subjects, Logger: s.logger, Cache: cache,
		Entries: s.entries, Outages: outages{w}, Silence: silence * time.Millisecond,
		EarlyDecisions: time.Duration(s.pick(3)) * time.Minute,
	})
	w.handler = handler.New(handler.Options{
		Runner: w.runner, DeadLetters: publisher{s}, Env: w, Subjects: subjects, Logger: s.logger, Services: serves,
		Heartbeat: heartbeat * time.Millisecond, Silence: silence * time.Millisecond,
	})
	s.workers[i] = w
}

// crash kills a worker as kill -9 does, and starts another in its place.
func (s *simulation) crash(i int) {
	w := s.workers[i]
	for _, fb := range w.fibers {
		s.stats.at(fb, killedThere)
		if s.log != nil && fb.at.counted() {
			s.trace("killed  %s, where %s", w.name, places[fb.at].what)
		}
	}
	s.shut(i)
	s.start(i)
}

// doom has the running fiber kill its worker. When it drives its run alone, nothing else may be at work there. One that stood
// still and does not know yet that another drives the run says nothing about who is alone, and nobody waits longer than the
// silence for one to finish.
func (s *simulation) doom() {
	w := s.running.worker
	s.trace("doom    %s", w.name)
	j := s.store.journals[s.poison]
	d := j.decoded[len(j.decoded)-1].Head.Driver
	drives := d != nil && d.Owner == s.running.activation().owner
	waited := s.now-s.running.activation().began > silence
	if drives && d.Suspect() && !d.Alone && !waited && !s.lethal && s.deaths == 0 && !s.gone {
		s.violate("alone", "%s drives a run beside others that %d activations have ended with", w.name, d.Takeovers)
	}
	for _, fb := range w.fibers {
		if beside := fb.at == atModel || fb.at == atModelUnwritten || fb.at == atInTool; beside && fb != s.running && drives && d.Alone && !waited {
			s.violate("alone", "%s works on another run beside one that it drives alone", w.name)
		}
	}
	w.doomed = true
	for {
		s.pause(atModel)
	}
}

// shut ends all fibers of the worker at place i.
func (s *simulation) shut(i int) {
	w := s.workers[i]
	for k := 0; k < len(w.fibers); k++ { // a fiber that dies may make others, when code that recovers panics goes on
		s.kill(w.fibers[k])
	}
	w.fibers = nil
	w.stop()
}

// drain begins a graceful end; reap starts the next incarnation when it is over.
func (w *worker) drain() {
	w.trace("drain   %s", w.name)
	w.draining = true
	w.runner.Drain()
	if w.pick(3) == 0 {
		w.stop() // no time is left
	}
}

func (s *simulation) reap(i int) {
	if w := s.workers[i]; w.draining && len(w.fibers) == 0 {
		w.stop()
		s.start(i)
	}
}

// freeze lets one fiber, or the whole process, stand still, mostly for longer than its leases.
func (w *worker) freeze() {
	until := w.now + int64(w.pick(3*ackWait))
	all := w.pick(2) == 0
	chosen := w.pick(len(w.fibers))
	for k, fb := range w.fibers {
		if (all || k == chosen && fb.sleeping == nil) && fb.wake < until {
			fb.wake = until
			w.stats.at(fb, frozenThere)
		}
	}
	w.trace("freeze  %s until %.3f", w.name, seconds(until))
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
	w.clock.Stored(d.received, w.now+w.skew)
	w.spawn(w, nil, func() {
		w.handler.Handle(w.ctx, d)
		w.busy--
	}).message = core.Cause{Stream: d.stream, Sequence: d.sequence}
}

// woken tells the worker that a run is to end.
func (w *worker) woken(run wire.RunKey) {
	w.spawn(w, nil, func() {
		if err := w.runner.Wake(w.ctx, run); err != nil {
			w.trace("log     wake: %v", err)
		}
	})
}

// mostSkew is how wrong a machine's clock may be; slowest is how long the broker's answer to the question for its clock takes.
const (
	mostSkew = 36_000_000
	slowest  = 10_000
)

// measure measures the broker's clock.
func (w *worker) measure() {
	took, since := 0, 0
	if w.skew != 0 {
		took = w.pick(slowest + 1)
		since = w.pick(took + 1)
	}
	own := w.now + w.skew
	w.clock.Measured(own-int64(took), w.now-int64(since), own)
}

// Now implements runner.Env.
func (w *worker) Now() int64 { return w.clock.Broker(w.now + w.skew) }

// Sleep implements runner.Env.
func (w *worker) Sleep(ctx context.Context, d time.Duration) error {
	fb := w.running
	fb.wake, fb.sleeping = w.now+d.Milliseconds(), ctx
	if t, ok := ctx.(*timeout); ok {
		fb.wake = min(fb.wake, t.due)
	}
	if d == heartbeat*time.Millisecond {
		fb.at = atHeartbeat
	}
	w.yield()
	fb.wake, fb.sleeping = w.now, nil
	return ctx.Err()
}

// Parallel implements runner.Env.
func (w *worker) Parallel(fs ...func()) {
	fb := w.running
	for _, f := range fs {
		fb.children++
		w.spawn(w, fb, f).at = fb.at
	}
	if len(fs) > 0 {
		w.pause(atJoin)
	}
}

// Beat implements runner.Env.
func (w *worker) Beat(f func(), d time.Duration, beat func() bool) {
	beating, stop := context.WithCancel(w.ctx)
	w.Parallel(
		func() {
			defer stop()
			f()
		},
		func() {
			for w.Sleep(beating, d) == nil && beat() {
			}
		},
	)
}

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

// Random implements runner.Env. What an activation asks for first is its name.
func (w *worker) Random() string {
	var b [26]byte
	var bits uint64
	for i := range b {
		if i%12 == 0 {
			bits = w.rng.Uint64()
		}
		b[i] = alphabet[bits&31]
		bits >>= 5
	}
	random := string(b[:])
	if fb := w.running; fb != nil && fb.activation().owner == "" {
		fb.activation().owner = random
	}
	return random
}

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

// enter is the point before a call leaves the worker. Its error is that of a context that ended.
func (s *simulation) enter(ctx context.Context, at point) error {
	s.pause(at)
	return ctx.Err()
}

var subjects = wire.DefaultSubjects()
