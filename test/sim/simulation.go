package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"agentd/internal/audit"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// epoch is when histories begin, in Unix milliseconds.
	epoch = 1_700_000_000_000
	// faultySteps is how many steps a history has faults for; maxSteps is how many it may take to come to rest.
	faultySteps = 400
	maxSteps    = 20_000
	// together is how far apart the moments are at which things happen together, in milliseconds.
	together = 5_000
)

// simulation is one history in the making.
type simulation struct {
	plan   plan
	rng    *rand.Rand
	now    int64
	mix    mix
	stats  *stats
	pool   *pool
	log    func(string)
	logger *slog.Logger
	steps  int
	// calmSince is when faults ended, 0 before; hung: a model or tool took longer than a worker may be silent.
	calmSince int64
	hung      bool
	// agentsPaused are the agents that are paused, with since when.
	agentsPaused map[string]int64
	// storeAway and brokerAway are until when nothing gets through to them.
	storeAway, brokerAway int64
	// gone: one of them has been away.
	gone bool
	// lethal says that activations may end without giving their runs back, or lose their leases, again and again; deaths
	// counts the other faults that may bring a run's driver to that, each at most once.
	lethal bool
	deaths int
	// poison is the run that kills whoever asks its model; the zero key is none.
	poison wire.RunKey
	// struck counts the faults that were to happen; happened are the numbers of those that did, in a history with a log.
	struck   int
	happened []int
	// entries is shared by all workers: decoding is a pure function.
	entries *runner.EntryCache

	audit  *audit.Checker
	found  []string
	broker *fakeBroker
	store  *fakeStore
	models *models
	hooks  *hooks
	judges *judges
	// manager keeps grants; policies are those of all specs, by digest.
	manager  *manager
	policies map[string]policy
	// agents are the versions of each agent; version is the one that workers get when they start.
	agents map[string][]*runner.Agent
	// made are the calls that the models of runs have asked for, and those that undo others.
	made    map[wire.RunKey][]string
	version int
	// hooked: the agents have a hook; plain: they have services, and nothing else comes between answers and replies.
	hooked, plain bool

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

// newSimulation makes the world of a plan. log receives its trace, line by line; nil is none.
func newSimulation(p plan, in *pool, st *stats, log func(string)) *simulation {
	s := &simulation{
		plan: p, rng: rand.New(rand.NewPCG(p.seed, 0)), now: epoch, stats: st, pool: in, log: log, audit: audit.New(subjects),
		entries: runner.NewEntryCache(64 << 20), agentsPaused: map[string]int64{}, made: map[wire.RunKey][]string{},
	}
	s.logger = slog.New(watcher{s})
	s.swarm()
	s.broker = newBroker(s)
	s.store = newStore(s)
	s.models, s.hooks, s.judges = newModels(s), newHooks(s), newJudges(s)
	s.manager, s.policies = &manager{simulation: s, reserved: map[string]string{}}, map[string]policy{}
	s.audit.Policy(s.ruling)
	s.compile()
	s.workers = make([]*worker, 2+s.pick(2))
	for i := range s.workers {
		s.start(i)
	}
	s.clients()
	if p.variant > 0 {
		s.rng = rand.New(rand.NewPCG(p.seed, p.variant))
	}
	return s
}

// run plays the history and returns what was violated. First there are faults; then they stop, and the world must come to
// rest with every run done.
func (s *simulation) run() []string {
	for s.steps = 0; s.steps < faultySteps && s.sound(); s.steps++ {
		s.disturb()
		if !s.step() {
			break
		}
	}
	s.calm()
	for ; s.sound() && s.step(); s.steps++ {
		if s.steps > maxSteps {
			s.violate("I11", "the world does not come to rest")
		}
	}
	s.broker.tellLost()
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
	s.stats.histories++
	s.stats.steps += int64(s.steps)
	return s.found
}

// calm ends all faults.
func (s *simulation) calm() {
	s.trace("calm    no faults from here on")
	s.mix, s.calmSince, s.storeAway, s.brokerAway = mix{}, s.now, 0, 0
	s.store.settle()
	for i, w := range s.workers {
		w.deaf, w.incomplete = false, false
		s.reap(i)
	}
}

// sound reports whether nothing was violated so far.
func (s *simulation) sound() bool { return len(s.found) == 0 && len(s.audit.Violations()) == 0 }

func (s *simulation) violate(invariant, format string, args ...any) {
	s.found = append(s.found, invariant+": "+fmt.Sprintf(format, args...))
}

// pick returns a number from 0 to n-1.
func (s *simulation) pick(n int) int { return s.rng.IntN(n) }

// later plans something. Half of all that happens outside happens at the same moments as other things: what meets is
// what goes wrong.
func (s *simulation) later(delay int64, do func()) {
	at := s.now + delay
	if s.pick(2) == 0 {
		at -= at % together
	}
	s.agenda = append(s.agenda, appointment{at, do})
}

// disturb lets a fault happen that is nobody's answer.
func (s *simulation) disturb() {
	i := s.pick(len(s.workers))
	w := s.workers[i]
	switch {
	case s.strikes(crash):
		s.crash(i)
	case !w.draining && s.strikes(drain):
		w.drain()
	case len(w.fibers) > 0 && s.strikes(freeze):
		w.freeze()
	// Most failovers come when somebody has read what they forget.
	case len(s.store.unconfirmed) > 0 && (s.store.exposed() || s.pick(3) == 0) && s.strikes(failover):
		s.everywhere(failedOverThere)
		s.store.failover()
		s.stun()
	case s.strikes(outage):
		s.gone = true
		until, which := s.now+int64(s.pick([...]int{4 * minute, 4 * minute, 60 * minute}[s.pick(3)])), s.pick(3)
		if which != 0 {
			s.storeAway = until
		}
		if which != 1 {
			s.brokerAway = until
		}
	case s.strikes(restart):
		s.everywhere(restartedThere)
		s.broker.restart()
	case s.version == 0 && s.strikes(upgrade):
		s.version = 1
		w.drain()
	case s.strikes(jump):
		s.advance()
	}
}

// stun has some stand still after a failover who write to the store, or settle a message by what they have read there: what
// others write in place of what was forgotten is what they do not expect.
func (s *simulation) stun() {
	for _, w := range s.workers {
		for _, fb := range w.fibers {
			switch fb.at {
			case atAbsorbAgain, atAbsorbWritten, atStep, atStepAgain, atStepWritten, atLateAgain, atLateWritten, atReply, atReplyAgain, atReplyWritten,
				atLetter, atLettered, atAck:
				if s.pick(2) == 0 {
					fb.wake = max(fb.wake, s.now+int64(s.pick(3*ackWait)))
				}
			default:
			}
		}
	}
}

// everywhere counts where the fibers are while something happens to all of them.
func (s *simulation) everywhere(k toll) {
	for _, w := range s.workers {
		for _, fb := range w.fibers {
			s.stats.at(fb, k)
		}
	}
}

// step lets one thing happen, and reports false when nothing is left to happen.
func (s *simulation) step() bool {
	s.runnable = s.runnable[:0]
	free := 0
	for i := range s.workers {
		if s.workers[i].doomed {
			s.crash(i)
		}
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
	choices := len(s.runnable)
	if due >= 0 {
		choices++
	}
	if free > 0 && len(messages) > 0 {
		choices++
	}
	if choices == 0 {
		return s.advance()
	}
	switch k := s.pick(choices); {
	case k < len(s.runnable):
		s.resume(s.runnable[k])
	case k == len(s.runnable) && due >= 0:
		do := s.agenda[due].do
		s.agenda = slices.Delete(s.agenda, due, due+1)
		do()
	default:
		s.broker.deliver(s.broker.next(messages), s.freeWorker(s.pick(free)))
	}
	return true
}

// freeWorker is the nth worker with a free slot.
func (s *simulation) freeWorker(nth int) *worker {
	for _, w := range s.workers {
		if w.busy >= w.slots || w.draining {
			continue
		}
		if nth == 0 {
			return w
		}
		nth--
	}
	panic("sim: no worker is free")
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
		at(t.at)
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

var (
	_ runner.Store     = (*fakeStore)(nil)
	_ runner.Publisher = publisher{}
	_ runner.Env       = (*worker)(nil)
	_ runner.Catalog   = catalog{}
	_ sdk.Provider     = (*model)(nil)
)
