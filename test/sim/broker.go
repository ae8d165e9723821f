package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker"
	"agentd/sdk"
)

// The broker's settings, in milliseconds.
const (
	ackWait   = 15_000
	heartbeat = 5_000
	silence   = 60_000
)

// The streams that workers consume, and the one of dead letters.
const (
	streamStart = "AGENTD_START"
	streamIn    = "AGENTD_IN"
	streamOut   = "AGENTD_OUT"
	streamDone  = "AGENTD_DONE"
	streamTimer = "AGENTD_TMR"
)

var streams = map[sdk.Kind]string{
	sdk.KindStart: streamStart, sdk.KindIn: streamIn, sdk.KindCtl: streamIn, sdk.KindOut: streamOut,
	sdk.KindVoid: streamOut, sdk.KindDone: streamDone, sdk.KindFire: streamTimer,
}

// fakeBroker has the semantics that the protocol relies on: create-if-absent by subject, delivery at least once with
// AckWait, any delivery's ack removing the message (a zombie's too), and one timer per run.
type fakeBroker struct {
	*simulation
	sequences map[string]uint64
	// bySubject are the events that were created, for comparison.
	bySubject map[string][]byte
	// waiting are the messages that workers have not settled, in the order of their arrival.
	waiting []*message
	timers  []timer
	letters map[string]bool

	// Faults that a broker must not have; they prove that the checks can fail.
	acksOnDelivery, dropsFirstPublish, losesTimers bool
	dropped                                        map[string]bool
}

// message is one message of a stream that workers consume.
type message struct {
	stream   string
	sequence uint64
	subject  string
	data     []byte
	received int64
	// due is when it may be delivered next: at once, after a nak's delay, or when its lease ends.
	due       int64
	delivered int
	removed   bool
}

type timer struct {
	subject string
	due     int64
}

func newBroker(s *simulation) *fakeBroker {
	return &fakeBroker{
		simulation: s, sequences: map[string]uint64{}, bySubject: map[string][]byte{}, letters: map[string]bool{},
		dropped: map[string]bool{},
	}
}

// append stores a message in its subject's stream. event is nil for a timer and for what cannot be decoded.
func (b *fakeBroker) append(address sdk.Address, subject string, data []byte, event *sdk.Event, due int64) {
	stream := streams[address.Kind]
	b.sequences[stream]++
	m := &message{stream: stream, sequence: b.sequences[stream], subject: subject, data: data, received: b.now}
	b.trace("stored  %s %d %s", stream, m.sequence, subject)
	switch address.Kind {
	case sdk.KindOut, sdk.KindVoid:
		if _, ok := b.catalog.serves(address.Call.Type); !ok {
			if address.Kind == sdk.KindOut {
				b.called(address.Call, *event)
			}
			return
		}
	case sdk.KindDone:
		return
	default:
	}
	b.waiting = append(b.waiting, m)
	b.audit.Input(audit.Message{
		Stream: stream, Sequence: m.sequence, Subject: subject, Received: b.now, Event: event, Due: due,
	})
}

// send publishes without any condition, as clients and services do.
func (b *fakeBroker) send(subject string, ev sdk.Event) {
	data, err := ev.Encode()
	if err != nil {
		panic(fmt.Sprintf("sim: event of a client: %v", err))
	}
	b.sendRaw(subject, data, &ev)
}

func (b *fakeBroker) sendRaw(subject string, data []byte, ev *sdk.Event) {
	address, err := subjects.Parse(subject)
	if err != nil {
		panic(fmt.Sprintf("sim: subject of a client: %v", err))
	}
	b.append(address, subject, data, ev, 0)
}

// fire delivers the timers that are due.
func (b *fakeBroker) fire() {
	for i := 0; i < len(b.timers); {
		t := b.timers[i]
		if t.due > b.now {
			i++
			continue
		}
		b.timers = slices.Delete(b.timers, i, i+1)
		address, err := subjects.Parse(t.subject)
		if err != nil {
			panic(fmt.Sprintf("sim: fire subject: %v", err))
		}
		data, err := json.Marshal(map[string]int64{"due": t.due})
		if err != nil {
			panic(fmt.Sprintf("sim: timer: %v", err))
		}
		for range b.once(b.mix.duplicate) {
			b.append(address, t.subject, data, nil, t.due)
		}
	}
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

// deliver leases a message to a worker.
func (b *fakeBroker) deliver(m *message, w *worker) {
	m.delivered++
	m.due = b.now + ackWait
	b.trace("deliver %s %d to %s (delivery %d)", m.stream, m.sequence, w.name, m.delivered)
	if b.acksOnDelivery {
		b.remove(m)
	}
	w.take(&delivery{fakeBroker: b, message: m, worker: w, number: m.delivered})
}

func (b *fakeBroker) remove(m *message) {
	if m.removed {
		return
	}
	m.removed = true
	b.waiting = slices.DeleteFunc(b.waiting, func(o *message) bool { return o == m })
	b.audit.Removed(m.stream, m.sequence)
}

// delivery implements broker.Delivery.
type delivery struct {
	*fakeBroker
	*message
	worker *worker
	number int
}

var _ broker.Delivery = (*delivery)(nil)

// Stream implements broker.Delivery, as do the methods that follow.
func (d *delivery) Stream() string               { return d.stream }
func (d *delivery) Consumer() string             { return "workers" }
func (d *delivery) Sequence() uint64             { return d.sequence }
func (d *delivery) Subject() string              { return d.subject }
func (d *delivery) Header(string) string         { return "" }
func (d *delivery) Headers() map[string][]string { return nil }
func (d *delivery) Data() []byte                 { return d.data }
func (d *delivery) Delivered() int               { return d.number }
func (d *delivery) Received() int64              { return d.received }

var errBroker = errors.New("the broker cannot be reached")

func (d *delivery) Ack() error {
	d.pause("ack")
	if d.chance(d.mix.lostAck) {
		d.trace("lost    ack of %s %d by %s", d.stream, d.sequence, d.worker.name)
		return nil
	}
	d.trace("ack     %s %d by %s", d.stream, d.sequence, d.worker.name)
	d.remove(d.message)
	return nil
}

func (d *delivery) Nak(delay time.Duration) error {
	d.pause("nak")
	if d.chance(d.mix.lostAck) {
		return errBroker
	}
	d.trace("nak     %s %d by %s", d.stream, d.sequence, d.worker.name)
	d.due = d.now + delay.Milliseconds()
	return nil
}

func (d *delivery) InProgress() error {
	d.pause("heartbeat")
	if d.worker.deaf {
		return errBroker
	}
	if !d.removed {
		d.due = max(d.due, d.now+ackWait)
	}
	return nil
}

// publisher implements runner.Publisher and handler.DeadLetters.
type publisher struct{ *simulation }

// Publish implements runner.Publisher.
func (p publisher) Publish(ctx context.Context, subject string, event sdk.Event) error {
	address, err := subjects.Parse(subject)
	if err != nil {
		p.violate("publish", "subject %s: %v", subject, err)
		return err
	}
	if err := p.enter(ctx, "publish "+string(address.Kind)); err != nil {
		return err
	}
	if p.chance(p.mix.publish / 2) {
		return errBroker
	}
	if err := p.broker.create(address, subject, event); err != nil {
		return err
	}
	if p.chance(p.mix.publish / 2) {
		p.trace("lost    confirmation of %s", subject)
		return errBroker
	}
	return nil
}

// Published implements runner.Publisher.
func (p publisher) Published(ctx context.Context, subject string) (bool, error) {
	if err := p.enter(ctx, "published"); err != nil {
		return false, err
	}
	_, found := p.broker.bySubject[subject]
	return found, nil
}

// create publishes if nothing is on the subject yet.
func (b *fakeBroker) create(address sdk.Address, subject string, event sdk.Event) error {
	data, err := event.Encode()
	if err != nil {
		b.violate("publish", "subject %s: %v", subject, err)
		return err
	}
	if b.dropsFirstPublish && !b.dropped[subject] {
		b.dropped[subject] = true
		return nil
	}
	if former, ok := b.bySubject[subject]; ok {
		b.audit.Published(subject, event, data)
		if !bytes.Equal(former, data) {
			return sdk.Errorf(sdk.CodeConflict, "another event is on %s", subject)
		}
		return nil
	}
	b.bySubject[subject] = data
	b.audit.Published(subject, event, data)
	b.append(address, subject, data, &event, 0)
	return nil
}

// ArmTimer implements runner.Publisher.
// Wake reaches the workers that are alive, unless it gets lost.
func (p publisher) Wake(string, sdk.RunKey) {}

func (p publisher) ArmTimer(ctx context.Context, agent string, run sdk.RunKey, due int64) error {
	if err := p.enter(ctx, "arm timer"); err != nil {
		return err
	}
	if p.chance(p.mix.publish / 2) {
		return errBroker
	}
	if p.broker.losesTimers {
		return nil
	}
	t := timer{subject: subjects.Fire(agent, run), due: due}
	p.trace("armed   %s for %d", t.subject, due)
	timers := slices.DeleteFunc(p.broker.timers, func(o timer) bool { return o.subject == t.subject })
	p.broker.timers = append(timers, t)
	if p.chance(p.mix.publish / 2) {
		return errBroker
	}
	return nil
}

// Live implements runner.Publisher. Nobody watches.
func (p publisher) Live(sdk.Live) {}

// DeadLetter implements handler.DeadLetters.
func (p publisher) DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error {
	if err := p.enter(ctx, "dead letter"); err != nil {
		return err
	}
	if p.chance(p.mix.publish / 2) {
		return errBroker
	}
	p.trace("dead    %s %d: %s: %s", d.Stream(), d.Sequence(), reason, detail)
	if reason == sdk.CodeInternal {
		p.violate("corrupt", "%s %d: %s", d.Stream(), d.Sequence(), detail)
	}
	p.audit.DeadLettered(d.Stream(), d.Sequence(), reason)
	return nil
}
