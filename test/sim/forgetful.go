package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// syncInterval is how long what a forgetful broker has confirmed may not be on its disk, and repairedFrom how far back entries are looked at
// whose events it may have forgotten, in milliseconds.
const (
	syncInterval = 2 * minute
	repairedFrom = 120 * minute
	// againAfter lies between two passes.
	againAfter = 65_000
)

// forgetful is a broker that confirms calls, terminal events and timers before they are on its disk: a restart forgets an end of each stream.
type forgetful struct {
	// written is what was done to each stream that a restart may forget, in order.
	written map[string][]written
	// lost are the subjects of events that were forgotten.
	lost map[string]bool
	// starts are all init events of clients.
	starts []*message
	// restarts counts the times that something was forgotten; repaired is the one up to which runs are repaired, and since from when on.
	restarts, repaired int
	since              int64
	// removes is up to when runs had ended whose calls may be removed.
	removes int64
	// passes counts those since the last restart: who has a message in hand that is forgotten may take up its run after the first.
	passes int
	// lapse ends the lease of who repairs, with what they are about to do.
	lapse context.CancelFunc
	// neverRepaired is what must not be: nobody repairs anything.
	neverRepaired bool
}

// written is a change of a stream, with how to undo it.
type written struct {
	at   int64
	undo func()
}

// forgetfulStreams are those that journals can fill again.
var forgetfulStreams = [...]string{streamOut, streamDone, streamTimer}

// wrote notes a change of a stream.
func (b *fakeBroker) wrote(stream string, undo func()) {
	if b.mix[forgets] > 0 && slices.Contains(forgetfulStreams[:], stream) {
		b.written[stream] = append(b.written[stream], written{b.now, undo})
	}
}

// forgetEnds forgets an end of each stream.
func (b *fakeBroker) forgetEnds() {
	if !b.strikes(forgets) {
		return
	}
	for _, stream := range forgetfulStreams {
		all := b.written[stream]
		for n := b.pick(min(len(all), 6) + 1); n > 0 && all[len(all)-1].at > b.now-syncInterval; n-- {
			all[len(all)-1].undo()
			all = all[:len(all)-1]
		}
		b.written[stream] = nil // what is left is on the disk by the time that it has started
	}
	b.purged()
	b.restarts++
	b.passes = 0
	b.since = b.now - repairedFrom
	b.tryRepair(b.restarts)
}

// lose forgets a message, and what it had put on its subject.
func (b *fakeBroker) lose(m *message, input bool) {
	b.trace("lost    %s %d: %s", m.stream, m.sequence, m.subject)
	m.forgotten = true
	b.waiting = slices.DeleteFunc(b.waiting, func(o *message) bool { return o == m })
	b.removed = slices.DeleteFunc(b.removed, func(o *message) bool { return o == m })
	if _, there := b.bySubject[m.subject]; there {
		delete(b.bySubject, m.subject)
		b.lost[m.subject] = true
	}
	run := mustParse(m.subject).Run
	b.calls[run] = slices.DeleteFunc(b.calls[run], func(o string) bool { return o == m.subject })
	if input {
		b.audit.Forgotten(m.stream, m.sequence)
	}
}

// tryRepair has a worker repair what a restart forgot, unless it is done or another restart has come, and somebody else do it if that one
// fails or takes too long: its lease has lapsed then.
func (b *fakeBroker) tryRepair(restarts int) {
	b.later(int64(b.pick(10_000)), func() {
		if b.repaired >= restarts || b.restarts != restarts || b.neverRepaired {
			return
		}
		if w := b.workers[b.pick(len(b.workers))]; !w.draining {
			b.lapse()
			var ctx context.Context
			ctx, b.lapse = context.WithCancel(w.ctx)
			w.spawn(w, nil, func() {
				if !w.repair(ctx, b.since) || b.restarts != restarts {
					return
				}
				if b.passes++; b.passes == 2 {
					b.repaired = restarts
				}
			})
		}
		b.later(againAfter, func() { b.tryRepair(restarts) })
	})
}

// repair carries out again what may be lost, as package reconcile does after a restart. It reports whether all of it is done.
func (w *worker) repair(ctx context.Context, since int64) bool {
	w.trace("repair  by %s", w.name)
	done := true
	runs := slices.SortedFunc(maps.Keys(w.store.journals), func(a, b wire.RunKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, run := range runs {
		done = w.repairRun(ctx, run, since) && done
	}
	for _, m := range slices.Clone(w.broker.starts) {
		if m.removed && m.received >= since {
			done = w.repairRefusal(ctx, m) && done
		}
	}
	return done
}

func (w *worker) repairRun(ctx context.Context, run wire.RunKey, since int64) bool {
	last, restarts := w.store.journals[run].last(), w.broker.restarts
	if last.Rev == 0 {
		return true
	}
	e, err := core.DecodeEntry(last.Data)
	if err != nil || e.At < since {
		return err == nil
	}
	agent := wire.NameToken(e.Head.Agent)
	if err := w.runner.RepairSince(ctx, agent, run, since); err != nil {
		w.trace("log     repair: %v", err)
		return false
	}
	if restarts == w.broker.restarts {
		w.isRepaired(run, last)
	}
	if d := e.Head.Driver; e.Head.Status == core.StatusRunning && w.broker.forgot(d) {
		w.broker.append(wire.Address{Kind: wire.KindFire, Agent: agent, Run: run}, subjects.Fire(e.Head.Agent, run),
			fired(e.Head.Timer), nil, e.Head.Timer)
	}
	return true
}

// forgot reports whether the stream does not have the message any more whose delivery covers a run.
func (b *fakeBroker) forgot(d *core.Driver) bool {
	if !slices.Contains(forgetfulStreams[:], d.Stream) {
		return false
	}
	return !slices.ContainsFunc(b.waiting, func(m *message) bool { return m.stream == d.Stream && m.sequence == d.Sequence })
}

// isRepaired checks that all is there that the run waits for, if nobody has written to its journal meanwhile.
func (w *worker) isRepaired(run wire.RunKey, before runner.Record) {
	j := w.store.journals[run]
	if j.last().Etag != before.Etag || j.durable < len(j.decoded) {
		return
	}
	e := j.decoded[len(j.decoded)-1]
	there := func(subject string) {
		if _, ok := w.broker.bySubject[subject]; !ok && w.broker.lost[subject] {
			w.violate("forgotten", "%s is not there after the repair of its run", subject)
		}
	}
	if generation := e.Head.Generation(); e.Head.Status == core.StatusDone {
		there(outbox.TerminalSubject(subjects, e.Head.Agent, run, &generation))
		return
	}
	for i := range e.Head.Calls {
		if c := &e.Head.Calls[i]; e.Head.Status == core.StatusWaiting && c.Awaited() && c.RetryAt == 0 {
			for _, at := range c.Addresses(&e.Head) {
				there(subjects.Call(at))
			}
		}
	}
}

// repairRefusal handles an init event again whose terminal event is not there.
func (w *worker) repairRefusal(ctx context.Context, m *message) bool {
	read, err := w.handler.Decode(&delivery{fakeBroker: w.broker, message: m, worker: w, number: m.delivered})
	if err != nil {
		return true // a dead letter
	}
	init := core.NewInit(read.Address, read.Event)
	subject := outbox.TerminalSubject(subjects, read.Address.Agent, read.Address.Run, &init)
	if _, there := w.broker.bySubject[subject]; there || !w.broker.lost[subject] {
		return true
	}
	if j := w.store.journals[read.Address.Run]; j.last().Rev > 0 && slices.Contains(j.decoded[len(j.decoded)-1].Head.Generations(), init.Token) {
		return true
	}
	read.Progress = func() {}
	v := w.runner.Process(ctx, &read)
	return v.Settlement != runner.Retry
}

// tellLost tells the audit of what was forgotten and is not there again.
func (b *fakeBroker) tellLost() {
	for subject := range b.lost {
		_, there := b.bySubject[subject]
		if _, gone := b.gone[subject]; !there && !gone {
			b.audit.Unpublished(subject)
		}
	}
}
