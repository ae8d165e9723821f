package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// callsKept is for how long runs that have ended keep their calls: the least that there is.
	callsKept = sdk.LeastCallsKept
	// clearing is how often workers remove them, four times in it, so that many die of it.
	clearing = 8 * time.Second
)

// seen are the messages of the zones from which workers remove some, as they came. Safe for concurrent use.
type seen struct {
	mu sync.Mutex
	by map[streams.Zone]map[storage]stored
}

// storage is when a message was stored, and where: a server that has forgotten one stores another there later.
type storage struct {
	stream   string
	sequence uint64
	at       int64
}

func (m *stored) storage() storage { return storage{m.stream, m.Sequence, m.Time.UnixMilli()} }

// purged are the zones from which workers remove what nobody needs any more, each with what is looked at there.
func purged() map[streams.Zone]string {
	return map[streams.Zone]string{streams.Out: ">", streams.Timer: subjects.All(wire.KindFire)}
}

// see keeps all messages of a zone until ctx ends, also those that are removed later.
func (w *world) see(ctx context.Context, z streams.Zone, filter string) {
	for ctx.Err() == nil {
		err := w.conn.Watch(ctx, z, []string{filter}, func(d broker.Delivery) bool {
			w.seen.add(z, stored{
				Subject: d.Subject(), Sequence: d.Sequence(), Data: d.Data(), Time: time.UnixMilli(d.Received()), stream: d.Stream(), read: d.Headers(),
			})
			return true
		})
		if ctx.Err() == nil && err != nil {
			pause(ctx, 200*time.Millisecond) // the server is away
		}
	}
}

func (s *seen) add(z streams.Zone, m stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[streams.Zone]map[storage]stored{}
	}
	if s.by[z] == nil {
		s.by[z] = map[storage]stored{}
	}
	s.by[z][m.storage()] = m
}

// with returns the messages of a zone that were seen, with those that are there, in order, and which of them are gone.
func (s *seen) with(z streams.Zone, there []stored) (all, gone []stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := maps.Clone(s.by[z])
	for i := range there {
		delete(by, there[i].storage())
	}
	bySequence := func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.Sequence, b.Sequence))
	}
	gone = slices.SortedFunc(maps.Values(by), bySequence)
	all = slices.SortedFunc(slices.Values(slices.Concat(there, gone)), bySequence)
	return all, gone
}

// removals finds messages that were removed before nobody needed them, and calls that were made again after that. Where the server forgets
// messages, nobody can tell.
func (e *evidence) removals() {
	if e.setsBack {
		return
	}
	for z := range purged() {
		for i := range e.gone[z] {
			m := &e.gone[z][i]
			address, err := subjects.Parse(m.Subject)
			if err != nil || e.clients.forgotten(address.Run) {
				continue
			}
			journal := e.journals[address.Run]
			if z == streams.Timer {
				continue // it is gone once it was handled
			}
			if len(journal) == 0 || journal[len(journal)-1].Head.Status != core.StatusDone {
				e.record.violate("what a run needs that has not ended was removed: %s", m.Subject)
				continue
			}
			if ended := time.UnixMilli(journal[len(journal)-1].At); time.Since(ended) < callsKept {
				e.record.violate("%s was removed %s after the end of its run", m.Subject, time.Since(ended))
			}
		}
		e.record.count("messages that nobody needed any more removed: "+string(z), len(e.gone[z]))
	}
	first := map[string]uint64{}
	for i := range e.messages[streams.Out] {
		m := &e.messages[streams.Out][i]
		if at, twice := first[m.Subject]; twice {
			e.record.violate("%s was published at %d and again at %d", m.Subject, at, m.Sequence)
		}
		first[m.Subject] = m.Sequence
	}
}
