package sim

import (
	"fmt"
	"slices"
	"strings"
)

// fault is a kind of thing that goes wrong.
type fault int

// The faults. Those up to upgrade happen between two steps, the others where the world is asked for something.
const (
	crash fault = iota
	drain
	freeze
	jump
	failover
	restart
	upgrade
	skew
	incomplete
	storeDown
	storeLost
	storeUnsure
	storeStale
	storeDeposed
	publishLost
	publishUnsure
	ackLost
	deaf
	reorder
	duplicate
	timerTwice
	timerLate
	timerEarly
	wakeLost
	modelSlow
	modelFails
	modelAway
	modelOdd
	unparkLost
	pausedRun
	toolFails
	hang
	serviceSilent
	serviceLate
	serviceTwice
	serviceFails
	serviceForged
	personWrong
	permissionFails
	decisionWrong
	outage
	cancelled
	callCancelled
	disturbed
	begunLate
	spoken
	asks
	shortened
	hookFails
	hookEnds
	large
	poison
	retried
	undone
	forgets
	faults // their number
)

// kinds are the faults' names, what they are, and how likely a history at most makes each, at each point where it can
// happen.
var kinds = [faults]struct {
	name, what string
	most       float64
}{
	crash:           {"crash", "a worker is killed, with all that it does and remembers", 0.05},
	drain:           {"drain", "a worker is asked to end; now and then its grace is over at once", 0.03},
	freeze:          {"freeze", "an activation, or a worker, stands still for up to three leases, and goes on", 0.05},
	jump:            {"jump", "the clock moves on while work is to be done", 0.04},
	failover:        {"failover", "the store forgets entries that it has not confirmed", 0.7},
	restart:         {"restart", "the broker restarts: it forgets some acks, and leases end", 0.015},
	upgrade:         {"upgrade", "an agent changes, and one worker after the other gets the new version", 0.02},
	skew:            {"skew", "the clock of a worker's machine is wrong by up to 10 h, and what it knows of the broker's by up to 10 s", 0.7},
	incomplete:      {"incomplete", "a worker lacks code that former versions of an agent need", 0.5},
	storeDown:       {"store-down", "the store cannot be read", 0.12},
	storeLost:       {"store-lost", "an append is lost, and nobody says so", 0.25},
	storeUnsure:     {"store-unsure", "an append is written, and nobody says so", 0.35},
	storeStale:      {"store-stale", "a journal is read without its last entries", 0.3},
	storeDeposed:    {"store-deposed", "a journal is read from a store that has lost a failover", 0.5},
	publishLost:     {"publish-lost", "a publish is lost", 0.2},
	publishUnsure:   {"publish-unsure", "a publish is carried out, and nobody says so", 0.2},
	ackLost:         {"ack-lost", "an ack or nak is lost", 0.35},
	deaf:            {"deaf", "a worker's heartbeats do not reach the broker", 0.4},
	reorder:         {"reorder", "a message overtakes all others", 0.5},
	duplicate:       {"duplicate", "a client or service publishes twice", 0.4},
	timerTwice:      {"timer-twice", "a timer fires twice", 0.4},
	timerLate:       {"timer-late", "a timer fires up to a minute late", 0.4},
	timerEarly:      {"timer-early", "a timer fires up to a second early", 0.3},
	wakeLost:        {"wake-lost", "a driver is not told that its run is to end", 0.5},
	modelSlow:       {"slow", "a model or tool takes longer than a lease", 0.2},
	modelFails:      {"model-fails", "a model refuses", 0.06},
	modelAway:       {"model-away", "a model cannot be reached", 0.8},
	modelOdd:        {"model-odd", "a model asks for what does not exist, or writes what is not text", 0.2},
	unparkLost:      {"unpark-lost", "a model answers again, and who waits for it is not told", 0.4},
	pausedRun:       {"paused", "an operator pauses runs, resumes them, or has them tried again", 0.6},
	toolFails:       {"tool-fails", "a tool fails, panics, or returns no JSON", 0.3},
	hang:            {"hang", "a model or tool runs into its timeout, or does not even notice it", 0.08},
	serviceSilent:   {"service-silent", "a service never answers", 0.2},
	serviceLate:     {"service-late", "a service answers up to ten minutes late", 0.3},
	serviceTwice:    {"service-twice", "a service answers twice, in different words", 0.4},
	serviceFails:    {"service-fails", "a service answers with an error", 0.4},
	serviceForged:   {"service-forged", "an answer comes from where none is due, or for another call", 0.3},
	personWrong:     {"person-wrong", "a person answers with what the contract forbids", 0.3},
	permissionFails: {"permission-fails", "a permission cannot be checked, or a grant not be kept", 0.15},
	decisionWrong:   {"decision-wrong", "somebody decides what they may not, or on other arguments", 0.4},
	outage:          {"outage", "store, broker or both are away for up to four minutes, now and then an hour", 0.01},
	cancelled:       {"cancel", "a client cancels a run, now and then again", 0.5},
	callCancelled:   {"cancel-call", "somebody cancels a call, at once or later", 0.3},
	disturbed:       {"disturbed", "a client sends an init event that must be refused", 0.6},
	begunLate:       {"late", "a client starts a run minutes after it has sent something into it", 0.4},
	spoken:          {"message", "a client sends messages into a run", 0.7},
	asks:            {"asks", "a tool asks a person something, once or again", 0.5},
	shortened:       {"shortened", "a conversation is made shorter before a model call", 0.4},
	hookFails:       {"hook-fails", "a hook fails or panics", 0.1},
	hookEnds:        {"hook-ends", "a hook ends the run", 0.1},
	poison:          {"poison", "a run kills whoever drives it, again and again", 0.5},
	retried:         {"retry", "an operator retries a run that has ended, now and then again, or one that cannot be retried", 0.7},
	undone:          {"undo", "an operator has calls of a run undone that has ended, now and then again, or what cannot be", 0.7},
	forgets:         {"forgets", "a broker that restarts has forgotten the last calls, terminal events or timers that it confirmed", 0.7},
	large:           {"large", "a text is larger than an entry may be", 0.3},
}

// mix is how likely each fault is. Every history has a mix of its own, in which most faults never happen: what hides
// behind a frequent fault must come out as well.
type mix [faults]float64

// themes are faults of which each alone is harmless; half of the histories have those of one theme, and often.
var themes = [...][]fault{
	{freeze, drain, reorder, duplicate, begunLate, cancelled, spoken},                         // messages that are older than their runs
	{modelAway, pausedRun, unparkLost, crash, failover, freeze, drain, publishUnsure, spoken}, // runs that wait for their model, or are paused
	{failover, storeDeposed, storeUnsure, serviceTwice, duplicate, freeze, cancelled, spoken}, // histories that a failover forgot
	{retried, undone, freeze, restart, storeUnsure, ackLost, reorder, duplicate},              // messages for an end that is not the last one
}

// swarm draws the mix of a history.
func (s *simulation) swarm() {
	share := [...]float64{0.2, 0.4, 0.7}[s.pick(3)]
	for f := range forgets { // which the seed chooses: see forgetful
		chosen, likely := s.rng.Float64() < share, s.rng.Float64()
		if chosen {
			s.mix[f] = likely * kinds[f].most
		}
	}
	if theme := s.pick(8); theme < len(themes) {
		for _, f := range themes[theme] {
			s.mix[f] = kinds[f].most
		}
	}
	for _, f := range [...]fault{deaf, modelSlow, hang} {
		s.lethal = s.lethal || s.mix[f] > 0
	}
	if s.plan.seed%4 == 0 { // a quarter have a broker that writes to its disk later
		s.mix[forgets], s.mix[restart] = kinds[forgets].most, max(s.mix[restart], kinds[restart].most)
	}
	if s.rng.Float64() > 0.01 { // large histories take long
		s.mix[large] = 0
	}
}

// strikes reports whether a fault happens here and now.
func (s *simulation) strikes(f fault) bool {
	if s.mix[f] == 0 || s.rng.Float64() >= s.mix[f] {
		return false
	}
	s.struck++
	if s.plan.without[f] || s.plan.only != nil && !slices.Contains(s.plan.only, s.struck) {
		return false
	}
	s.stats.faults[f]++
	switch f {
	case crash, drain, freeze, jump, restart, upgrade:
		s.deaths++
	default:
	}
	if s.log != nil {
		s.happened = append(s.happened, s.struck)
		s.trace("FAULT   %d: %s", s.struck, kinds[f].name)
	}
	return true
}

// times returns 1, or 2 when the fault happens.
func (s *simulation) times(f fault) int {
	if s.strikes(f) {
		return 2
	}
	return 1
}

// plan says which history to play: that of a seed, without some of its faults.
type plan struct {
	seed    uint64
	without [faults]bool
	// variant is another course of events in the same world: same agents, same likelihood of faults.
	variant uint64
	// clients bounds how many runs clients start; 0 is unbounded.
	clients int
	// only lists the faults that happen, by their number in the history; nil is all, empty is none.
	only []int
}

// arguments are the flags that play the plan again.
func (p plan) arguments() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-sim.seed=%d", p.seed)
	var names []string
	for f, left := range p.without {
		if left {
			names = append(names, kinds[f].name)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, " -sim.without=%s", strings.Join(names, ","))
	}
	if p.variant > 0 {
		fmt.Fprintf(&b, " -sim.variant=%d", p.variant)
	}
	if p.clients > 0 {
		fmt.Fprintf(&b, " -sim.clients=%d", p.clients)
	}
	if p.only != nil {
		fmt.Fprintf(&b, " -sim.only=%s", strings.Trim(strings.ReplaceAll(fmt.Sprint(p.only), " ", ","), "[]"))
		if len(p.only) == 0 {
			b.WriteString("0") // faults count from 1
		}
	}
	return b.String()
}
