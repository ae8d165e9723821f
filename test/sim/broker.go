package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"agentd/internal/audit"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The broker's settings, in milliseconds.
const (
	ackWait   = 5_300
	heartbeat = 2_000
	silence   = 60_000
)

// The streams that workers consume, and the one of terminal events.
const (
	streamStart = "AGENTD_START"
	streamIn    = "AGENTD_IN"
	streamOut   = "AGENTD_OUT"
	streamDone  = "AGENTD_DONE"
	streamTimer = "AGENTD_TMR"
)

var streams = map[wire.Kind]string{
	wire.KindStart: streamStart, wire.KindIn: streamIn, wire.KindCtl: streamIn, wire.KindOut: streamOut,
	wire.KindVoid: streamOut, wire.KindDone: streamDone, wire.KindFire: streamTimer,
}

// fakeBroker has the semantics that the protocol relies on: create-if-absent by subject, delivery at least once with
// AckWait, any delivery's ack removing the message (a zombie's too), and one timer per run.
type fakeBroker struct {
	*simulation
	sequences map[string]uint64
	// bySubject are the events that were created, for comparison.
	bySubject map[string][]byte
	// calls are the subjects of each run's calls and voids, and gone those that the stream has forgotten, with when their run ended, in Unix
	// milliseconds.
	calls map[wire.RunKey][]string
	gone  map[string]int64
	// waiting are the messages that workers have not settled, in the order of their arrival.
	waiting []*message
	// removed are those that were acked lately: a restart may bring them back.
	removed []*message
	timers  []timer
	// parked are the runs that are marked as waiting, by what for, in the order in which they were marked.
	parked map[string][]parkedRun

	// Faults that a broker must not have; they prove that the checks can fail.
	acksOnDelivery, dropsFirstPublish, losesTimers bool
	dropped                                        map[string]bool

	forgetful
}

// message is one message of a stream that workers consume.
type message struct {
	stream   string
	sequence uint64
	subject  string
	data     []byte
	received int64
	// stored is at which step of the history the broker stored it.
	stored int
	// due is when it may be delivered next: at once, after a nak's delay, or when its lease ends.
	due       int64
	delivered int
	removed   bool
	// forgotten says that the broker has lost it.
	forgotten bool
}

// timer fires at a time that is mostly the one it is due at.
type timer struct {
	subject string
	due, at int64
}

func newBroker(s *simulation) *fakeBroker {
	return &fakeBroker{
		simulation: s, sequences: map[string]uint64{}, bySubject: map[string][]byte{}, calls: map[wire.RunKey][]string{}, gone: map[string]int64{},
		parked: map[string][]parkedRun{}, dropped: map[string]bool{}, forgetful: forgetful{written: map[string][]written{}, lost: map[string]bool{}, lapse: func() {}},
	}
}

// append stores a message in its subject's stream. event is nil for a timer and for what cannot be decoded.
func (b *fakeBroker) append(address wire.Address, subject string, data []byte, event *wire.Event, due int64) {
	stream := streams[address.Kind]
	b.sequences[stream]++
	m := &message{stream: stream, sequence: b.sequences[stream], subject: subject, data: data, received: b.now, stored: b.steps}
	if b.log != nil {
		b.trace("stored  %s %d: %s", stream, m.sequence, b.tell(address, event))
	}
	_, ours := serves(address.Call.Type)
	input := address.Kind != wire.KindDone && (ours || address.Kind != wire.KindOut && address.Kind != wire.KindVoid)
	b.wrote(stream, func() { b.lose(m, input) })
	if address.Kind == wire.KindStart {
		b.starts = append(b.starts, m)
	}
	if address.Kind == wire.KindOut && !ours {
		b.deliverCall(m, address.Call, *event)
	}
	if !input {
		return
	}
	b.waiting = append(b.waiting, m)
	b.audit.Input(audit.Message{
		Stream: stream, Sequence: m.sequence, Subject: subject, Received: b.now, Event: event, Due: due,
	})
}

// deliverCall brings a call to its service: at once, unless it may be forgotten before.
func (b *fakeBroker) deliverCall(m *message, call wire.CallAddress, event wire.Event) {
	if b.mix[forgets] == 0 || b.pick(2) == 0 {
		b.called(call, event)
		return
	}
	b.later(int64(b.pick(minute)), func() {
		if !m.forgotten {
			b.called(call, event)
		}
	})
}

// send publishes without any condition, as clients and services do.
func (b *fakeBroker) send(subject string, ev wire.Event) {
	data, err := ev.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: event of a client: %v", err))
	}
	b.sendRaw(subject, data, &ev)
}

func (b *fakeBroker) sendRaw(subject string, data []byte, ev *wire.Event) {
	b.append(mustParse(subject), subject, data, ev, 0)
}

func mustParse(subject string) wire.Address {
	address, err := subjects.Parse(subject)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return address
}

// create publishes if nothing is on the subject yet.
func (b *fakeBroker) create(address wire.Address, subject string, event wire.Event) error {
	data, err := event.Encode()
	if err != nil {
		b.violate("publish", "subject %s: %v", subject, err)
		return err
	}
	if b.dropsFirstPublish && !b.dropped[subject] {
		b.dropped[subject] = true
		return nil
	}
	b.forgets(address.Run)
	former, exists := b.bySubject[subject]
	b.audit.Published(subject, event, data)
	switch {
	case exists && !bytes.Equal(former, data):
		return sdk.Errorf(sdk.CodeConflict, "another event is on %s", subject)
	case !exists:
		b.bySubject[subject] = data
		delete(b.gone, subject)
		if address.Kind == wire.KindOut || address.Kind == wire.KindVoid {
			b.calls[address.Run] = append(b.calls[address.Run], subject)
		}
		b.append(address, subject, data, &event, 0)
	}
	return nil
}

// forgets removes the calls of a run that has ended, and their voids, when nobody needs them any more: the passes of package reconcile do. It
// is decided when somebody asks for them, and before the run is taken up again: there is nobody else to whom it makes a difference.
func (b *fakeBroker) forgets(run wire.RunKey) {
	j := b.store.journals[run]
	if len(b.calls[run]) == 0 || j == nil || len(j.decoded) == 0 || j.durable < len(j.decoded) {
		return
	}
	last := j.decoded[len(j.decoded)-1]
	if !reconcile.Over(last.Entry, sdk.DefaultCallsKept, b.purged()+sdk.DefaultCallsKept.Milliseconds()) {
		return
	}
	unsettled := slices.ContainsFunc(b.waiting, func(m *message) bool {
		a, err := subjects.Parse(m.subject)
		ours := err == nil && (a.Kind == wire.KindOut || a.Kind == wire.KindVoid) && a.Run == run
		return ours || last.Cause.Stream == m.stream && last.Cause.Sequence == m.sequence
	})
	if unsettled {
		return
	}
	for _, subject := range b.calls[run] {
		delete(b.bySubject, subject)
		b.gone[subject] = last.At
		b.trace("forgotten %s", subject)
	}
	delete(b.calls, run)
}

// purged is up to when runs had ended whose calls may be removed. After a restart that forgot something nobody removes any before that is
// repaired.
func (b *fakeBroker) purged() int64 {
	if b.repaired == b.restarts {
		b.removes = b.now - sdk.DefaultCallsKept.Milliseconds()
	}
	return b.removes
}

// arm puts a timer in place of the one that the run has.
func (b *fakeBroker) arm(subject string, due int64) {
	if b.losesTimers {
		return
	}
	t := timer{subject: subject, due: due, at: due}
	switch {
	case b.strikes(timerLate):
		t.at += int64(b.pick(minute))
	case b.strikes(timerEarly):
		t.at -= int64(b.pick(1000))
	}
	ofRun := func(o timer) bool { return o.subject == subject }
	var before []timer
	if i := slices.IndexFunc(b.timers, ofRun); i >= 0 {
		before = b.timers[i : i+1 : i+1]
	}
	before = slices.Clone(before)
	b.timers = append(slices.DeleteFunc(b.timers, ofRun), t)
	b.wrote(streamTimer, func() { // what it took the place of may be there again, or not
		b.timers = slices.DeleteFunc(b.timers, ofRun)
		if b.pick(2) == 0 {
			b.timers = append(b.timers, before...)
		}
	})
}

// fire stores the messages of the timers whose time has come.
func (b *fakeBroker) fire() {
	for i := 0; i < len(b.timers); {
		t := b.timers[i]
		if t.at > b.now {
			i++
			continue
		}
		b.timers = slices.Delete(b.timers, i, i+1)
		b.wrote(streamTimer, func() {
			if !slices.ContainsFunc(b.timers, func(o timer) bool { return o.subject == t.subject }) {
				b.timers = append(b.timers, t)
			}
		})
		data := fired(t.due)
		for range b.times(timerTwice) {
			b.append(mustParse(t.subject), t.subject, data, nil, t.due)
		}
	}
}

// fired is what a timer that fires says.
func fired(due int64) []byte {
	return append(strconv.AppendInt([]byte(`{"due":`), due, 10), '}')
}

// deliverable returns the messages that may be delivered now.
func (b *fakeBroker) deliverable() []*message {
	list := b.candidates[:0]
	for _, m := range b.waiting {
		if m.due <= b.now {
			list = append(list, m)
		}
	}
	b.candidates = list
	return list
}

// next chooses one of the messages to be delivered: mostly one of the first.
func (b *fakeBroker) next(messages []*message) *message {
	if b.strikes(reorder) {
		return messages[len(messages)-1]
	}
	return messages[b.pick(min(2, len(messages)))]
}

// deliver leases a message to a worker.
func (b *fakeBroker) deliver(m *message, w *worker) {
	m.delivered++
	m.due = b.now + ackWait
	if b.log != nil {
		b.trace("deliver %s %d to %s (delivery %d)", m.stream, m.sequence, w.name, m.delivered)
	}
	if b.acksOnDelivery {
		b.remove(m)
	}
	w.take(&delivery{fakeBroker: b, message: m, worker: w, number: m.delivered})
}

// remembered is how many of the last acks a restart may forget.
const remembered = 4

func (b *fakeBroker) remove(m *message) {
	if m.removed || m.forgotten { // whoever knows that the server is another acks nothing that the one before has delivered
		return
	}
	m.removed = true
	b.waiting = slices.DeleteFunc(b.waiting, func(o *message) bool { return o == m })
	if b.removed = append(b.removed, m); len(b.removed) > remembered {
		b.removed = b.removed[1:]
	}
	b.audit.Removed(m.stream, m.sequence)
}

// restart brings back messages whose acks were not on disk yet, and ends leases.
func (b *fakeBroker) restart() {
	b.trace("restart of the broker")
	b.forgetEnds()
	for _, m := range b.removed {
		if b.pick(2) == 0 {
			m.removed, m.due = false, b.now
			b.waiting = append(b.waiting, m)
			b.trace("back    %s %d", m.stream, m.sequence)
		}
	}
	b.removed = nil
	for _, m := range b.waiting {
		if b.pick(2) == 0 {
			m.due = b.now
		}
	}
}
