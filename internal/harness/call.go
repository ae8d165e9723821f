package harness

import (
	"context"
	"encoding/json"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// Call is a call that a test answers by hand, in the place of a service or a person.
type Call struct {
	h *Harness
	// Event is the call, Subject where it was delivered.
	Event   wire.Event
	Subject string
	at      place
}

// Call waits for the next call of a contract type, in the order of publication. Every call is seen once.
func (h *Harness) Call(contractType string) *Call {
	h.t.Helper()
	select {
	case c := <-h.callsOf(contractType):
		h.returned(c.at)
		return c
	case <-time.After(h.o.Patience):
		h.t.Fatalf("no call of %s came", contractType)
	}
	return nil
}

// NoCall fails if a call of the contract type has been published that Call has not returned. It is meant for the end of
// a test, when the run is done.
func (h *Harness) NoCall(contractType string) {
	h.t.Helper()
	if d := h.unseen(streams.Out, h.callFilter(contractType)); d != nil {
		h.t.Fatalf("unexpected call of %s on %s", contractType, d.Subject())
	}
}

func (h *Harness) callFilter(contractType string) string {
	return h.conn.Subjects().Root() + ".out.*." + wire.NameToken(contractType) + ".>"
}

func (h *Harness) callsOf(contractType string) chan *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.calls[contractType]; ok {
		return c
	}
	calls := make(chan *Call, 1024)
	h.calls[contractType] = calls
	filter := h.callFilter(contractType)
	h.background(func(ctx context.Context) error {
		return h.conn.Watch(ctx, streams.Out, []string{filter}, func(d broker.Delivery) bool {
			event, err := wire.DecodeEvent(d.Headers(), d.Data())
			if err != nil {
				h.t.Errorf("call on %s: %v", d.Subject(), err)
				return true
			}
			calls <- &Call{h: h, Event: event, Subject: d.Subject(), at: placeOf(d)}
			return true
		})
	})
	return calls
}

// Data decodes the call's data.
func (c *Call) Data() map[string]any {
	c.h.t.Helper()
	var data map[string]any
	c.h.check("decode call", json.Unmarshal(c.Event.Data, &data))
	return data
}

// Response is an answer of the given type, ready to be sent or changed.
func (c *Call) Response(eventType string, data any) wire.Event {
	c.h.t.Helper()
	encoded, err := json.Marshal(data)
	c.h.check("encode answer", err)
	return wire.Event{
		ID: "answer-" + c.Event.ID, Source: c.Event.Type, Type: eventType, Subject: c.Event.Subject,
		Time: time.UnixMilli(1_790_000_000_000), DataSchema: c.Event.DataSchema, To: c.Event.RedirectTo,
		ParentID: c.Event.ID, Data: encoded,
	}
}

// Answer answers with an event of that type.
func (c *Call) Answer(eventType string, data any) {
	c.h.t.Helper()
	c.Send(c.Response(eventType, data))
}

// Fail answers with the system error of the call's contract.
func (c *Call) Fail(p wire.Problem) {
	c.h.t.Helper()
	response := c.Response(wire.ErrorType(c.Event.Type), p)
	response.DataSchema = ""
	c.Send(response)
}

// Send publishes an event on the call's reply subject. Sending another event there afterwards fails the test, because
// services create their answers; see PublishAgain.
func (c *Call) Send(event wire.Event) {
	c.h.t.Helper()
	ctx, cancel := c.h.context()
	defer cancel()
	c.h.check("answer "+c.Event.ID, c.h.conn.Publish(ctx, c.reply(), event))
}

func (c *Call) reply() string {
	c.h.t.Helper()
	reply, ok := c.h.conn.ReplySubject(c.Subject)
	if !ok {
		c.h.t.Fatalf("%s is not a call", c.Subject)
	}
	return reply
}

// PublishAgain publishes an event on the call's reply subject whether or not something is there: what an unruly service
// may do.
func (h *Harness) PublishAgain(c *Call, event wire.Event) {
	h.t.Helper()
	h.Publish(c.reply(), event)
}

// PublishAs is PublishAgain as a principal, as if the broker had enforced it.
func (h *Harness) PublishAs(principal string, c *Call, event wire.Event) {
	h.t.Helper()
	h.Publish(c.reply()+"."+principal, event)
}

// Publish publishes an event on a subject of a stream, whether or not something is there.
func (h *Harness) Publish(subject string, event wire.Event) {
	h.t.Helper()
	data, err := event.Encode()
	h.check("encode event "+event.ID, err)
	h.PublishRaw(subject, data)
}

// PublishRaw publishes bytes without any header.
func (h *Harness) PublishRaw(subject string, data []byte) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	_, err := h.conn.JetStream().Publish(ctx, subject, data)
	h.check("publish "+subject, err)
}

// Void waits until a call of the contract type is voided.
func (h *Harness) Void(contractType string) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	filter := h.conn.Subjects().Root() + ".void.*." + wire.NameToken(contractType) + ".>"
	h.check("wait for a void of "+contractType, h.conn.Watch(ctx, streams.Out, []string{filter},
		func(broker.Delivery) bool { return false }))
}
