package broker

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
)

// ConsumeOptions say what to read and who handles it.
type ConsumeOptions struct {
	Consumers []streams.ConsumerRef
	// Slots is how many deliveries are handled at once, over all consumers; 0 is sdk.DefaultSlots.
	Slots int
	// Handle settles its delivery. Its context ends when the grace period is over.
	Handle func(context.Context, Delivery)
	// Grace is how long running handlers may go on after ctx ended; 0 is 30 s.
	Grace time.Duration
	// Drain is called when ctx ends, before the grace period.
	Drain func()
}

const (
	// patience is how long messages may wait for a slot. It is much shorter than streams.AckWait.
	patience = time.Second
	// mostWaiting is how many messages for each slot may wait, when all consumers deliver at once what they were asked for.
	mostWaiting = 4
	// mostBatch is the most messages that a consumer is asked for at once.
	mostBatch = 256
)

// reading is how a consumer that cannot be read is looked for again: soon, because runs wait for who has been elected to lead it. That it
// cannot is logged at once, and then each sayAgain.
var reading = retry.Pauses{First: 250 * time.Millisecond, Longest: time.Second}

const sayAgain = 5 * time.Second

// Consume reads the consumers until ctx ends, then lets running handlers finish within the grace period. A consumer or a
// server that is away is waited for.
//
// All consumers share the slots, first come, first served. A consumer is asked only while a slot is free, for as many messages
// as there are free slots. When others take the slots meanwhile, its messages wait for a moment and are then given back, and no
// more of them come, so that a busy worker keeps nothing from an idle one.
func (c *Conn) Consume(ctx context.Context, o ConsumeOptions) {
	o.Slots = cmp.Or(o.Slots, sdk.DefaultSlots)
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	var probes []*probe
	for _, ref := range o.Consumers {
		probes = append(probes, c.probeConsumer(ref))
	}
	defer c.stayInContact(probes...)()
	handling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	l := &intake{Conn: c, ConsumeOptions: o, slots: make(chan struct{}, o.Slots), deliveries: make(chan delivery), handling: handling}
	var pullers sync.WaitGroup
	for _, ref := range o.Consumers {
		pullers.Go(func() { l.pull(ctx, ref) })
	}
	<-ctx.Done()
	if o.Drain != nil {
		o.Drain()
	}
	pullers.Wait()
	l.finish()
}

// intake is one Consume.
type intake struct {
	*Conn
	ConsumeOptions
	// slots has a token for each delivery that is handled.
	slots chan struct{}
	// deliveries has what a handler that is done with another is to take on.
	deliveries chan delivery
	handlers   sync.WaitGroup
	// handling is the context of handlers.
	handling context.Context
}

// finish waits for the handlers, and abandons those that take longer than the grace period: their messages are delivered
// again.
func (l *intake) finish() {
	close(l.deliveries)
	done := make(chan struct{})
	go func() {
		l.handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(l.Grace):
		l.log.Warn("handlers did not finish in time; their messages are left to others", "grace", l.Grace)
	}
}

// pull reads one consumer.
func (l *intake) pull(ctx context.Context, ref streams.ConsumerRef) {
	name := streams.Name(l.subjects, ref.Zone) + "/" + ref.Name
	p, err := l.newPuller(ref, max(1, min(mostWaiting*cap(l.slots)/len(l.Consumers), cap(l.slots), mostBatch)))
	if err != nil {
		l.log.Error("consumer cannot be read", "consumer", name, "error", err) // the connection was closed
		return
	}
	defer p.close()
	var said time.Time
	for pauses := reading.Start(); ; {
		err := l.read(ctx, p)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pauses.Reset()
			said = time.Time{}
			continue
		}
		if time.Since(said) >= sayAgain {
			said = time.Now()
			l.log.Warn("consumer cannot be read; trying again", "consumer", name, "error", err)
		}
		if retry.Sleep(ctx, pauses.Next()) != nil {
			return
		}
	}
}

// read hands out one delivery, if there is one.
func (l *intake) read(ctx context.Context, p *puller) error {
	if len(p.messages) == 0 {
		p.behind = time.Time{}
		if p.left == 0 {
			if err := l.ask(ctx, p); err != nil {
				return err
			}
		}
	}
	m, err := p.next(ctx)
	if err != nil || m == nil {
		return err
	}
	if !l.take(ctx, p) {
		err := p.withdraw() // else what is left of the request would bring the message here again
		p.giveBack(m)
		return err
	}
	meta, err := m.Metadata()
	if err != nil {
		<-l.slots
		return fmt.Errorf("message on %s without metadata: %w", m.Subject, err)
	}
	l.broker.Stored(meta.Timestamp.UnixMilli(), l.own.steady())
	d := delivery{nc: l.nc, msg: m, meta: meta, backlog: p.backlog(ctx, meta)}
	if p.refilled() {
		d.server = l.Server()
	}
	select {
	case l.deliveries <- d:
	default:
		l.handlers.Go(func() { l.handleEach(d) })
	}
	return nil
}

// handleEach handles a delivery, and then others as they come: a goroutine for each would have its stack grown and copied each time, which
// is a fifteenth of a busy worker's time.
func (l *intake) handleEach(d delivery) {
	for more := true; more; d, more = <-l.deliveries {
		l.handle(d)
		<-l.slots
	}
}

// ask asks for messages when a slot is free. None is held for them: another consumer may have one first.
func (l *intake) ask(ctx context.Context, p *puller) error {
	select {
	case l.slots <- struct{}{}:
		<-l.slots
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.ask(ctx, max(1, cap(l.slots)-len(l.slots)))
}

// take takes a slot for a message that is already here. Those that came with it wait meanwhile, and have one patience together.
func (l *intake) take(ctx context.Context, p *puller) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	if p.behind.IsZero() {
		p.behind = time.Now()
	}
	late := time.NewTimer(time.Until(p.behind.Add(patience)))
	defer late.Stop()
	select {
	case l.slots <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// handle keeps a handler's panic from taking the worker down: the message is tried again later.
func (l *intake) handle(d delivery) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("handler panicked", "subject", d.Subject(), "panic", p, "stack", string(debug.Stack()))
			if err := d.Nak(streams.AckWait); err != nil {
				l.log.Warn("delivery could not be settled", "subject", d.Subject(), "error", err)
			}
		}
	}()
	l.Handle(l.handling, d)
}

// What a worker says of a delivery.
const (
	ackDone       = "+ACK"
	ackNak        = "-NAK"
	ackInProgress = "+WPI"
)

// delivery is a Delivery of JetStream.
type delivery struct {
	nc   *nats.Conn
	msg  *nats.Msg
	meta *nats.MsgMetadata
	// backlog is what Backlog says.
	backlog bool
	// server is the process of the server that has delivered it, where another may have forgotten it, and have another message under its
	// sequence.
	server string
}

func (d delivery) Stream() string               { return d.meta.Stream }
func (d delivery) Consumer() string             { return d.meta.Consumer }
func (d delivery) Sequence() uint64             { return d.meta.Sequence.Stream }
func (d delivery) Subject() string              { return d.msg.Subject }
func (d delivery) Header(name string) string    { return header(d.msg.Header, name) }
func (d delivery) Headers() map[string][]string { return d.msg.Header }
func (d delivery) Data() []byte                 { return d.msg.Data }
func (d delivery) Delivered() int               { return int(d.meta.NumDelivered) }
func (d delivery) Backlog() bool                { return d.backlog }
func (d delivery) Received() int64              { return d.meta.Timestamp.UnixMilli() }
func (d delivery) Ack() error                   { return d.settle(ackDone) }
func (d delivery) InProgress() error            { return d.settle(ackInProgress) }

func (d delivery) Nak(delay time.Duration) error {
	if delay == 0 {
		return d.settle(ackNak)
	}
	return d.settle(fmt.Sprintf(`%s {"delay": %d}`, ackNak, delay.Nanoseconds()))
}

func (d delivery) settle(how string) error {
	if d.nc == nil {
		return nil // it was only looked at
	}
	if here := serverOf(d.nc); d.server != "" && here != d.server && (here != "" || how != ackInProgress) {
		return nil // if it is there still, it is delivered again
	}
	return d.nc.Publish(d.msg.Reply, []byte(how))
}

var _ Delivery = delivery{}

// header finds a header by any spelling.
func header(headers map[string][]string, name string) string {
	for have, values := range headers {
		if strings.EqualFold(have, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}
