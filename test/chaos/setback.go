package main

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/setback"
)

// mostSetBack is how much older than the server's death the files are at most that it is given back.
const mostSetBack = 3 * time.Second

// killed ends a server, as the machine under it may: with chance, the NATS server comes back to files of its streams that are older.
func (n *nemesis) killed(s *server, rng *rand.Rand) error {
	if !n.setsBack || s != n.nats || rng.IntN(2) == 0 {
		n.record.fault("SIGKILL to " + s.name)
		s.process().kill()
		return nil
	}
	n.record.fault("SIGKILL to " + s.name + ", and streams set back")
	dir := filepath.Join(n.dir, "nats")
	older := map[streams.Zone]setback.Files{}
	for _, z := range setback.Zones(n.layout) {
		files, err := setback.Take(dir, z)
		if err != nil {
			return err
		}
		older[z] = files
	}
	pause(n.hurting, time.Duration(rng.Int64N(int64(mostSetBack))))
	s.process().kill()
	for z, files := range older {
		if err := setback.Put(dir, z, files); err != nil {
			return err
		}
	}
	return nil
}

// refilled reports whether workers have seen to what the server has forgotten, for all agents and those that nobody serves, unless it forgets
// nothing.
func (w *world) refilled(ctx context.Context) bool {
	if !w.setsBack {
		return true
	}
	tokens := []string{broker.Unserved}
	for _, s := range specs() {
		tokens = append(tokens, wire.NameToken(s.Name))
	}
	for _, token := range tokens {
		seen, err := w.conn.Refilled(ctx, token)
		if err != nil || seen.Server != w.conn.Server() {
			return false
		}
	}
	return true
}

// position is a sequence of a stream.
type position struct {
	stream   string
	sequence uint64
}

// forgotten tells of the positions of which nobody can say for sure what was there: a worker was given something that nobody else has
// read, because it was gone when the reader was back; or the server has forgotten what was there, and may have stored something else.
func (e *evidence) forgotten() {
	known, unsure := map[position]string{}, map[position]bool{}
	for z := range purged() {
		for _, m := range e.heard(z) {
			known[position{m.stream, m.Sequence}] = m.Subject
		}
		if e.setsBack {
			for _, m := range e.gone[z] {
				unsure[position{m.stream, m.Sequence}] = true
			}
		}
		ours := map[string]bool{}
		for _, part := range e.layout.Zones(z) {
			ours[streams.Name(subjects, part)] = true
		}
		for _, n := range e.record.snapshot().notes {
			if at := (position{n.Stream, n.Sequence}); n.Kind == noteDelivered && ours[n.Stream] && known[at] != n.Subject {
				unsure[at] = true
			}
		}
	}
	for at := range unsure {
		e.checker.Forgotten(at.stream, at.sequence)
		e.record.count("positions of which nobody can say what was there: "+at.stream, 1)
	}
}

// heard are the messages of a zone that workers were given, as far as that is sure: where a server forgets, what is gone may have been
// forgotten before anybody was given it.
func (e *evidence) heard(z streams.Zone) []stored {
	if e.setsBack {
		return e.there[z]
	}
	return e.messages[z]
}

// madeAgain finds what the server has forgotten and nobody has made again: terminal events, and voids of calls that services can still be
// given. Workers remove calls of runs that have ended meanwhile, so what is missing is looked for once more.
func (e *evidence) madeAgain(ctx context.Context) {
	there := map[string]bool{}
	for _, z := range streams.Rebuildable {
		for i := range e.there[z] {
			there[e.there[z][i].Subject] = true
		}
	}
	for subject, in := range e.clients.inits { // all have ended, or their number is told
		if !in.ended.IsZero() && !there[subject] {
			e.record.violate("the terminal event of %s was forgotten: %s", in.event.ID, subject)
		}
	}
	for i := range e.gone[streams.Out] {
		address, err := subjects.Parse(e.gone[streams.Out][i].Subject)
		if err != nil || address.Kind != wire.KindVoid {
			continue
		}
		call, void := subjects.Call(address.Call), subjects.Void(address.Call)
		if there[call] && !there[void] && !e.exists(ctx, streams.Out, void) && e.exists(ctx, streams.Out, call) {
			e.record.violate("a call is there whose void was forgotten: %s", call)
		}
	}
}
