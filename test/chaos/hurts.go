package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// hurts are the times at which something was done to the cluster, and what it cost. Safe for concurrent use.
type hurts struct {
	mu   sync.Mutex
	list []hurt
	// absences are when something else was away that runs need.
	absences []hurt
	// ends are when runs ended; asked is how long commands took, by when they began.
	ends  []time.Time
	asked []asked
	// waits are what the driver's requests waited for.
	waits []wait
	// delays are when the machine itself was slow.
	delays []delay
}

// hurt is something that was done, from when until when.
type hurt struct {
	name        string
	from, until time.Time
}

func (h hurt) lasted() time.Duration { return h.until.Sub(h.from) }

type asked struct {
	at   time.Time
	took time.Duration
	err  error
}

// wait is that a request had waited for a second, for what and why.
type wait struct {
	at   time.Time
	what string
	err  error
}

func (h *hurts) waited(what string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits = append(h.waits, wait{time.Now(), what, err})
}

func (h *hurts) note(name string, from, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, hurt{name, from, until})
}

// absent notes that something was away until now.
func (h *hurts) absent(what string, from time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.absences = append(h.absences, hurt{what, from, time.Now()})
}

func (h *hurts) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, time.Now())
}

// settledAfter is how long after a fault commands may still wait: for as long as an election takes.
const settledAfter = 15 * time.Second

// commands has somebody read a stream every half second, as commands do, and notes how long that takes.
func (w *world) commands(ctx context.Context, conn *broker.Conn) {
	for ctx.Err() == nil {
		began := time.Now()
		err := conn.Deliveries(ctx, streams.DLQ, []string{subjects.All(wire.KindDLQ)}, func(broker.Delivery) bool { return false })
		if ctx.Err() != nil {
			return
		}
		w.hurts.mu.Lock()
		w.hurts.asked = append(w.hurts.asked, asked{began, time.Since(began), err})
		w.hurts.mu.Unlock()
		pause(ctx, 500*time.Millisecond)
	}
}

// stall is the longest time without the end of a run between two times.
func (h *hurts) stall(f hurt) hurt {
	longest, last := hurt{f.name, f.from, f.from}, f.from
	for _, at := range h.ends {
		if at.Before(f.from) {
			continue
		}
		if at.Sub(last) > longest.lasted() {
			longest.from, longest.until = last, at
		}
		if last = at; at.After(f.until) {
			break
		}
	}
	return longest
}

// meanwhile says what else was away in a stall, and for how long.
func (h *hurts) meanwhile(stall hurt) string {
	away := map[string]time.Duration{}
	for _, a := range h.absences {
		from, until := later(a.from, stall.from), a.until
		if until.After(stall.until) {
			until = stall.until
		}
		away[a.name] += max(until.Sub(from), 0)
	}
	var parts []string
	for what, d := range away {
		if d > 0 {
			parts = append(parts, fmt.Sprintf("%s away for %s", what, d.Round(100*time.Millisecond)))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// printSlow writes which fault was the last one before a command, and what it may have waited for.
func (h *hurts) printSlow(w *world, a asked) {
	since := func(at time.Time) time.Duration { return at.Sub(w.began).Round(100 * time.Millisecond) }
	w.printf("  a command took %s, from %s on", a.took.Round(time.Millisecond), since(a.at))
	for _, f := range slices.Backward(h.list) {
		if f.from.Before(a.at) {
			w.printf("; before it, until %s: %s", since(f.until), f.name)
			break
		}
	}
	for _, waited := range h.waits {
		if waited.at.After(a.at) && waited.at.Before(a.at.Add(a.took)) {
			w.printf("; %s: %v", waited.what, waited.err)
		}
	}
	w.printf("; %s\n", h.slowness(a.at, a.took))
}

// print writes what each kind of fault cost.
func (h *hurts) print(w *world) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stalls := map[string][]hurt{}
	for _, f := range h.list {
		stalls[f.name] = append(stalls[f.name], h.stall(f))
	}
	w.printf("\nlongest times in which no run ended, from a fault to when all servers were there again\n")
	for _, name := range slices.Sorted(maps.Keys(stalls)) {
		all := stalls[name]
		slices.SortFunc(all, func(a, b hurt) int { return cmp.Compare(a.lasted(), b.lasted()) })
		for _, s := range all {
			text := fmt.Sprintf("  %6s  %s", s.lasted().Round(100*time.Millisecond), name)
			if also := h.meanwhile(s); also != "" {
				text += "; " + also
			}
			w.printf("%s, until %s\n", text, s.until.Sub(w.began).Round(100*time.Millisecond))
		}
	}
	slow, failed, during := 0, 0, 0
	var longest, worst time.Duration
	for _, a := range h.asked {
		hurt := slices.ContainsFunc(h.list, func(f hurt) bool { return a.at.Add(a.took).After(f.from) && a.at.Before(f.until.Add(settledAfter)) })
		switch {
		case hurt:
			during++
			worst = max(worst, a.took)
		case a.took > 2*time.Second:
			slow++
			h.printSlow(w, a)
		}
		if !hurt {
			longest = max(longest, a.took)
		}
		if a.err != nil {
			failed++
			w.printf("  a command failed after %s: %v\n", a.took.Round(time.Millisecond), a.err)
		}
	}
	w.printf("  commands: %d, of which %d failed; %d were during faults and the 15 s after them (longest %s); of the others %d took more than 2 s (longest %s)\n",
		len(h.asked), failed, during, worst.Round(time.Millisecond), slow, longest.Round(time.Millisecond))
}
