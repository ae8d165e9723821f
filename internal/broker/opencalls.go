package broker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// OpenCall is a call that nobody has answered, as far as the streams tell.
type OpenCall struct {
	// Call is the call's id, which all its events share; Event is the one that was published last.
	Call  string
	Event wire.Event
	// Address is where Event is.
	Address wire.CallAddress
}

// OpenCalls lists the calls of a contract type with that dataschema that are not due yet and have neither an answer nor a
// void, in the order of their publication. A call that is not due and was answered before the oldest answer that is still kept
// (provision.Plan.AnswersKept) is listed too.
func (c *Conn) OpenCalls(ctx context.Context, contractType, dataschema string) ([]OpenCall, error) {
	token := wire.NameToken(contractType)
	root := c.subjects.Root()
	closed := map[string]bool{} // by the id of the event
	closes := func(m jetstream.Msg) {
		if a, err := c.subjects.Parse(m.Subject()); err == nil {
			closed[a.Call.Call] = true
		}
	}
	filter := func(kind wire.Kind) string { return root + "." + string(kind) + ".*." + token + ".>" }
	if err := c.upToNow(ctx, streams.In, filter(wire.KindIn), true, closes); err != nil {
		return nil, err
	}
	if err := c.upToNow(ctx, streams.Out, filter(wire.KindVoid), true, closes); err != nil {
		return nil, err
	}
	var calls []OpenCall
	places := map[string]int{} // in calls, by the call's id
	err := c.upToNow(ctx, streams.Out, filter(wire.KindOut), false, func(m jetstream.Msg) {
		event, err := wire.DecodeEvent(m.Headers(), m.Data())
		if err != nil || !wire.SameURI(event.DataSchema, dataschema) || closed[event.ID] || c.overdue(event) {
			return
		}
		ref, ok := wire.ParseCallRef(event.ID)
		address, err := c.subjects.Parse(m.Subject())
		if !ok || err != nil {
			return
		}
		call := OpenCall{Call: ref.ID, Event: event, Address: address.Call}
		if i, known := places[ref.ID]; known {
			calls[i] = call
			return
		}
		places[ref.ID] = len(calls)
		calls = append(calls, call)
	})
	return calls, err
}

func (c *Conn) overdue(event wire.Event) bool {
	text, _ := event.Extensions[wire.ExpiryTime].(string)
	due, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && c.Now() > due.UnixMilli()
}

// upToNow calls handle with the messages on a filter that a zone has now, in the order of each stream.
func (c *Conn) upToNow(ctx context.Context, z streams.Zone, filter string, headersOnly bool, handle func(jetstream.Msg)) error {
	zones, err := c.zones(ctx, z, filter)
	for i := 0; i < len(zones) && err == nil; i++ {
		err = c.read(ctx, streams.Name(c.subjects, zones[i]), jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: headersOnly,
		}, func(left uint64) bool { return left > 0 }, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			handle(m)
			return meta.NumPending > 0
		})
	}
	return err
}
