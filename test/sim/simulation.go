package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"agentd/internal/audit"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
)

const (
	// epoch is when histories begin, in Unix milliseconds.
	epoch = 1_700_000_000_000
	// faultySteps is how many steps a history has faults for; maxSteps is how many it may take to come to rest.
	faultySteps = 400
	maxSteps    = 20_000
)

// mix says how likely each fault is, at each point where it can happen. Every history has a mix of its own, in which
// some faults never happen: what hides behind a frequent fault must come out as well.
type mix struct {
	crash, drain, stall, jump            float64
	ambiguous, stale, store              float64
	publish, lostAck, deaf, duplicate    float64
	slow, hang, broken, cancel, mischief float64
	large                                float64
}

func (s *simulation) swarm() mix {
	some := func(most float64) float64 {
		if s.rng.IntN(5) < 2 {
			return 0
		}
		return s.rng.Float64() * most
	}
	large := 0.0
	if s.chance(0.002) { // large histories take long
		large = 0.3
	}
	return mix{
		large: large,
		crash: some(0.03), drain: some(0.005), stall: some(0.03), jump: some(0.03),
		ambiguous: some(0.2), stale: some(0.3), store: some(0.1),
		publish: some(0.3), lostAck: some(0.3), deaf: some(0.5), duplicate: some(0.5),
		slow: some(0.3), hang: some(0.1), broken: some(0.3), cancel: some(0.4), mischief: some(0.5),
	}
}

// simulation is one history in the making.
type simulation struct {
	seed   uint64
	rng    *rand.Rand
	bits   uint64
	now    int64
	mix    mix
	stats  *stats
	log    func(string)
	logger *slog.Logger
	steps  int
	// entries is shared by all workers: decoding is a pure function.
	entries *runner.EntryCache

	audit   *audit.Checker
	found   []string
	broker  *fakeBroker
	store   *fakeStore
	models  *models
	catalog *catalog

	workers      []*worker
	incarnations int
	running      *fiber
	// dying is set while a fiber of a dead worker unwinds: what it logs was never said.
	dying bool
	// agenda holds what clients, services and people will do.
	agenda []appointment
	// Scratch of the scheduler.
	candidates []*message
	runnable   []*fiber
}

// appointment is something that happens outside of the workers at a time.
type appointment struct {
	at int64
	do func()
}

// newSimulation makes the world of a seed. log receives its trace, line by line; nil is none.
func newSimulation(seed uint64, st *stats, log func(string)) *simulation {
	s := &simulation{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), now: epoch, stats: st, log: log, audit: audit.New(subjects),
	}
	s.logger = slog.New(watcher{s})
	s.entries = runner.NewEntryCache(32 << 20)
	s.mix = s.swarm()
	s.broker = newBroker(s)
	s.store = &fakeStore{simulation: s, Store: memory.New(), commits: map[sdk.RunKey]int{}}
	s.models = newModels(s)
	s.catalog = newCatalog(s)
	s.workers = make([]*worker, 2+s.pick(2))
	for i := range s.workers {
		s.start(i)
	}
	s.clients()
	return s
}

// run plays the history and returns what was violated.
func (s *simulation) run() []string {
	for s.steps = 0; s.steps < faultySteps && s.sound(); s.steps++ {
		s.disturb()
		if !s.step() {
			break
		}
	}
	s.trace("calm    no faults from here on")
	s.mix = mix{}
	for i, w := range s.workers {
		w.deaf = false
		s.reap(i)
	}
	for ; s.sound() && s.step(); s.steps++ {
		if s.steps > maxSteps {
			s.violate("I11", "the world does not come to rest")
		}
	}
	violations := s.audit.Violations()
	if s.sound() {
		violations = s.audit.Finish()
	}
	for _, v := range violations {
		s.found = append(s.found, v.String())
	}
	for i := range s.workers {
		s.shut(i)
	}
	s.stats.steps += int64(s.steps)
	return s.found
}

// sound reports whether nothing was violated so far.
func (s *simulation) sound() bool { return len(s.found) == 0 && len(s.audit.Violations()) == 0 }

func (s *simulation) violate(invariant, format string, args ...any) {
	s.found = append(s.found, invariant+": "+fmt.Sprintf(format, args...))
}

func (s *simulation) trace(format string, args ...any) {
	if s.log != nil {
		s.log(fmt.Sprintf("%9.3f  ", float64(s.now-epoch)/1000) + fmt.Sprintf(format, args...))
	}
}

func (s *simulation) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// pick returns a number from 0 to n-1.
func (s *simulation) pick(n int) int { return s.rng.IntN(n) }

// once returns 1, or 2 with probability p.
func (s *simulation) once(p float64) int {
	if s.chance(p) {
		return 2
	}
	return 1
}

func (s *simulation) later(delay int64, do func()) {
	s.agenda = append(s.agenda, appointment{s.now + delay, do})
}

// disturb lets a fault happen that is nobody's answer.
func (s *simulation) disturb() {
	i := s.pick(len(s.workers))
	w := s.workers[i]
	switch {
	case s.chance(s.mix.crash):
		s.crash(i)
	case s.chance(s.mix.drain) && !w.draining:
		w.drain()
	case s.chance(s.mix.stall) && len(w.fibers) > 0:
		// One fiber, or the whole process, stands still for longer than its leases.
		until := s.now + int64(s.pick(3*ackWait))
		all := s.chance(0.5)
		chosen := s.pick(len(w.fibers))
		for k, fb := range w.fibers {
			if (all || k == chosen) && fb.sleeping == nil {
				fb.wake = until
			}
		}
		s.trace("stall   %s until %.3f", w.name, float64(until-epoch)/1000)
	case s.chance(s.mix.jump):
		s.advance()
	}
}

// step lets one thing happen, and reports false when nothing is left to happen.
func (s *simulation) step() bool {
	s.runnable = s.runnable[:0]
	free := 0
	for i := range s.workers {
		s.reap(i)
		w := s.workers[i]
		for _, fb := range w.fibers {
			if fb.ready(s.now) {
				s.runnable = append(s.runnable, fb)
			}
		}
		if w.busy < w.slots && !w.draining {
			free++
		}
	}
	s.broker.fire()
	due := s.due()
	messages := s.broker.deliverable()
	kinds := len(s.runnable)
	if due >= 0 {
		kinds++
	}
	if free > 0 && len(messages) > 0 {
		kinds++
	}
	if kinds == 0 {
		return s.advance()
	}
	switch k := s.pick(kinds); {
	case k < len(s.runnable):
		s.resume(s.runnable[k])
	case k == len(s.runnable) && due >= 0:
		do := s.agenda[due].do
		s.agenda = slices.Delete(s.agenda, due, due+1)
		do()
	default:
		s.deliver(messages, free)
	}
	return true
}

// deliver gives one of the first few messages to a worker with a free slot.
func (s *simulation) deliver(messages []*message, free int) {
	nth := s.pick(free)
	for _, w := range s.workers {
		if w.busy >= w.slots || w.draining {
			continue
		}
		if nth == 0 {
			s.broker.deliver(messages[s.pick(min(3, len(messages)))], w)
			return
		}
		nth--
	}
}

// due returns the index of an appointment whose time has come, or -1.
func (s *simulation) due() int {
	for i, a := range s.agenda {
		if a.at <= s.now {
			return i
		}
	}
	return -1
}

// advance moves the clock to the next moment at which something can happen, and reports false when there is none.
func (s *simulation) advance() bool {
	next := int64(-1)
	at := func(t int64) {
		if t > s.now && (next < 0 || t < next) {
			next = t
		}
	}
	for _, w := range s.workers {
		for _, fb := range w.fibers {
			if fb.children == 0 {
				at(fb.wake)
			}
		}
	}
	for _, m := range s.broker.waiting {
		at(m.due)
	}
	for _, t := range s.broker.timers {
		at(t.due)
	}
	for _, a := range s.agenda {
		at(a.at)
	}
	if next < 0 {
		return false
	}
	s.now = next
	return true
}
