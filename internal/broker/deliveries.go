package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// LastDelivery returns the last message on a subject as it was delivered, or nil. Settling it means nothing.
func (c *Conn) LastDelivery(ctx context.Context, z streams.Zone, subject string) (Delivery, error) {
	return c.get(ctx, z, subject, leader.Query{LastOn: subject})
}

// NextDelivery returns the first message on a subject from a sequence on, or nil. Settling it means nothing.
func (c *Conn) NextDelivery(ctx context.Context, z streams.Zone, subject string, from uint64) (Delivery, error) {
	return c.get(ctx, z, subject, leader.Query{Sequence: from, NextOn: subject})
}

func (c *Conn) get(ctx context.Context, z streams.Zone, subject string, q leader.Query) (Delivery, error) {
	zones, err := c.zones(ctx, z, subject)
	if err != nil {
		return nil, err
	}
	m, err := c.stored(ctx, streams.Name(c.subjects, zones[0]), q) // one subject is on one stream
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return looked(m), nil
}

// Deliveries calls handle with the messages that a zone has on the filters now, in order, until it returns false. Of a zone that is divided
// it does so for one stream after the other. Settling them means nothing. It keeps a few messages in memory.
func (c *Conn) Deliveries(ctx context.Context, z streams.Zone, filters []string, handle func(Delivery) bool) error {
	return c.DeliveriesSince(ctx, z, filters, time.Unix(0, 0), handle)
}

// DeliveriesSince is Deliveries of the messages that were stored at a time or later.
func (c *Conn) DeliveriesSince(ctx context.Context, z streams.Zone, filters []string, since time.Time, handle func(Delivery) bool) error {
	zones, err := c.zones(ctx, z, filters...)
	for i := 0; i < len(zones) && err == nil; i++ {
		ended := false
		err = c.deliveriesSince(ctx, zones[i], filters, since, func(d Delivery) bool {
			ended = !handle(d)
			return !ended
		})
		if ended {
			break
		}
	}
	return err
}

func (c *Conn) deliveriesSince(ctx context.Context, z streams.Zone, filters []string, since time.Time, handle func(Delivery) bool) error {
	state, err := c.ZoneState(ctx, z)
	if err != nil {
		return err
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: filters, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
	}
	return c.read(ctx, streams.Name(c.subjects, z), config, func(left uint64) bool { return left > 0 },
		func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			return meta.Sequence.Stream <= state.Last && handle(watched(m, meta)) && meta.NumPending > 0
		})
}

// Consumed says how far a consumer's readers have got.
type Consumed struct {
	// Floor is the sequence up to which all is acked, Delivered the last one that was delivered. Between them are Pending
	// messages that are not acked.
	Floor, Delivered uint64
	Pending          int
}

// All reports whether everything up to a sequence, which the consumer reads, is known to be acked.
func (p Consumed) All(sequence uint64) bool {
	return sequence <= p.Floor || p.Pending == 0 && sequence <= p.Delivered
}

// Consumed asks about a consumer; known is false if there is none.
func (c *Conn) Consumed(ctx context.Context, ref streams.ConsumerRef) (p Consumed, known bool, err error) {
	consumer, err := c.js.Consumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return Consumed{}, false, nil
	}
	if err != nil {
		return Consumed{}, false, fmt.Errorf("look at consumer %s: %w", ref.Name, err)
	}
	return consumedOf(consumer.CachedInfo()), true, nil
}

func consumedOf(info *jetstream.ConsumerInfo) Consumed {
	return Consumed{Floor: info.AckFloor.Stream, Delivered: info.Delivered.Stream, Pending: info.NumAckPending}
}

// headerRedelivered marks a message that was delivered again as a copy, with the sequence of the original.
const headerRedelivered = "agentd-redelivered"

// Original is the sequence of the message that d is a copy of, or 0.
func Original(d Delivery) uint64 {
	sequence, err := strconv.ParseUint(d.Header(headerRedelivered), 10, 64)
	if err != nil {
		return 0
	}
	return sequence
}

// Redeliver publishes a message again where it was, so that its consumer delivers it again.
func (c *Conn) Redeliver(ctx context.Context, d Delivery) error {
	m := &nats.Msg{Subject: d.Subject(), Data: d.Data(), Header: nats.Header{}}
	for name, values := range d.Headers() {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") { // instructions to the server are not data
			m.Header[name] = values
		}
	}
	m.Header.Set(headerRedelivered, strconv.FormatUint(d.Sequence(), 10))
	return c.persist(ctx, m.Subject, func(attempt context.Context, stream string) error { return c.publishOn(attempt, stream, m) })
}

// Fire delivers a run's timer at once, as if it had been due. It may be repeated: one that fires for nothing is absorbed.
func (c *Conn) Fire(ctx context.Context, agent string, run wire.RunKey, due int64) error {
	m := &nats.Msg{Subject: c.subjects.Fire(agent, run), Data: timerData(due)}
	return c.persist(ctx, m.Subject, func(attempt context.Context, stream string) error {
		_, err := c.js.PublishMsg(attempt, m, jetstream.WithExpectStream(stream), jetstream.WithMsgTTL(firedTTL))
		return err
	})
}

// Controlled is the id of the last control message of that verb to a run; empty is that there was none, or that it is too long ago.
func (c *Conn) Controlled(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey) (string, error) {
	last, err := c.LastDelivery(ctx, streams.In, c.subjects.Control(verb, agent, run))
	if err != nil || last == nil {
		return "", err
	}
	event, err := wire.DecodeEvent(last.Headers(), last.Data())
	if err != nil {
		return "", nil //nolint:nilerr // whoever wrote it, it is not one of ours
	}
	return event.ID, nil
}
