package bench

import (
	"fmt"
	"slices"
)

const (
	// full is the part of processors or of a disk from which on they are what limits: what is left are moments in which nobody asks.
	full = 0.8
	// fullDisk is lower: writes of runs are on several streams, which wait for each other less than those of the probe.
	fullDisk = 0.6
)

// judge finds out what limits.
func (r *Report) judge() {
	s := &r.Setting
	r.Limits = []Limit{}
	add := func(what string, used float64, advice string) {
		r.Limits = append(r.Limits, Limit{what, min(used, 1), advice})
	}
	switch {
	case r.Busy >= full && s.Embedded != "":
		add("the processors of this machine, which workers, service, clients and the NATS server share in one process", r.Busy,
			"a server of its own takes its part away (--nats); each further machine with a worker adds to the rest")
	case r.Busy >= full:
		add("the processors of this machine, which workers, service and clients share in one process", r.Busy,
			"servers have room; start workers on further machines (agentd serve), and count on what this one does for each")
	case r.MachineBusy >= full:
		add(fmt.Sprintf("the processors of this machine, of which this process has only %.0f %%", 100*r.Busy), r.MachineBusy,
			"what else runs here, maybe the servers, takes the rest; measure from another machine")
	}
	if s.NATSCores > 0 && s.NATSProcessors >= full*float64(s.NATSCores) {
		add(fmt.Sprintf("the processors of the NATS server: %.1f of %d", s.NATSProcessors, s.NATSCores), s.NATSProcessors/float64(s.NATSCores),
			"a larger machine for it, or several servers with the leaders of the streams apart")
	}
	if p := r.Probe.WritesPerSecond; p > 0 {
		if used := r.Awaited * r.RunsPerSecond / p; used >= fullDisk {
			add(fmt.Sprintf("the disk of the NATS servers: %.0f stored messages a second, where one stream took %.0f with nothing else to do", r.Awaited*r.RunsPerSecond, p),
				used, "a disk that syncs faster, several NATS servers with the leaders of the streams apart, or Redis for the journals if JetStream has them")
		}
	}
	if slots := s.Workers * s.Slots; s.Clients > slots && s.ModelLatencyMS > 0 {
		add(fmt.Sprintf("slots of workers: %d for %d runs at a time", slots, s.Clients), 1, "more slots (slots in agentd.yaml), or more workers")
	}
	if model := float64(s.Turns+1) * s.ModelLatencyMS; model >= r.Run.P50/2 && model > 0 {
		add(fmt.Sprintf("the model: %.0f of %.0f ms of a run", model, r.Run.P50), model/r.Run.P50, "a faster model, or more clients: a run that waits for its model takes nothing but a slot")
	}
	if len(r.Limits) == 0 {
		r.Limits = append(r.Limits, r.waits())
	}
	slices.SortStableFunc(r.Limits, func(a, b Limit) int {
		switch {
		case a.Used > b.Used:
			return -1
		case a.Used < b.Used:
			return 1
		}
		return 0
	})
}

// waits is what limits where nothing is used up: each step of a run waits for writes, one after the other.
func (r *Report) waits() Limit {
	l := Limit{
		What: fmt.Sprintf("waiting: a run alone takes %.1f ms, in which it waits for about %.0f writes of %.2f ms one after the other", r.Alone.P50, r.inARow(), r.writeMS()),
		Used: min(1, r.inARow()*r.writeMS()/max(r.Alone.P50, 0.001)),
	}
	switch reach := float64(r.Setting.Clients) / max(r.Alone.P50, 0.001) * 1000; {
	case r.RunsPerSecond >= full*reach:
		l.Advice = fmt.Sprintf("nothing is used up: more at a time gives more (--clients %d)", 2*r.Setting.Clients)
	default:
		l.Advice = "neither this machine nor the disk is used up, and more clients hardly give more: look at the servers' processors (agentd bench --monitor, INFO cpu of Redis)"
	}
	return l
}

// inARow is how many writes of a run wait for each other: its start, and for each turn an entry, the call, and its answer; and the end. Calls and
// the end that the server confirms before it has written them are not among them.
func (r *Report) inARow() float64 {
	if r.Awaited < r.Stored {
		return float64(2 + 2*r.Setting.Turns)
	}
	return float64(3 + 3*r.Setting.Turns)
}

// writeMS is one of these writes.
func (r *Report) writeMS() float64 { return max(r.Probe.WriteMS, r.Probe.RoundTripMS) }
