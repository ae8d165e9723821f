package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// services answer calls: mostly at once, now and then late, twice with different contents, or never. They are clients of
// the broker and no part of what is tested.
type services struct {
	*world
	mu  sync.Mutex
	rng *rand.Rand
}

// serve answers until ctx ends.
func (s *services) serve(ctx context.Context) {
	refs := []streams.ConsumerRef{
		streams.ServiceConsumer("", bookType), streams.ServiceConsumer("", payType), streams.ServiceConsumer(sdk.HumanDomain, sdk.TypeQuestion),
	}
	for _, domain := range quoteDomains {
		refs = append(refs, streams.ServiceConsumer(domain, quoteType))
	}
	s.conn.Consume(ctx, broker.ConsumeOptions{Consumers: s.layout.Consumers(refs...), Slots: 64, Grace: time.Second, Handle: s.handle})
}

// whim is how a service treats one call.
type whim struct {
	delay         time.Duration
	never, twice  bool
	transient     bool
	nonce, nonce2 uint32
}

func (s *services) whim() whim {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := whim{delay: time.Duration(s.rng.IntN(20)) * time.Millisecond, nonce: s.rng.Uint32(), nonce2: s.rng.Uint32()}
	switch s.rng.IntN(40) {
	case 0:
		h.delay = time.Duration(s.rng.IntN(3000)) * time.Millisecond
	case 1, 2, 3:
		h.twice = true
	case 4:
		h.never = true
	case 5, 6, 7:
		h.transient = true
	}
	return h
}

func (s *services) handle(ctx context.Context, d broker.Delivery) {
	address, err := subjects.Parse(d.Subject())
	if err != nil || address.Kind == wire.KindVoid {
		_ = d.Ack() // a lost ack is another delivery
		return
	}
	call, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		s.record.violate("a call cannot be decoded: %s: %v", d.Subject(), err)
		return
	}
	h := s.whim()
	pause(ctx, h.delay)
	human := call.Type == sdk.TypeQuestion
	reply := subjects.Reply(address.Call)
	if !h.never || human { // people have no deadline here
		answered := answer(call, h.nonce)
		if h.transient && call.Type == bookType {
			answered = busy(answered)
		}
		err = s.conn.Publish(ctx, reply, answered)
	}
	if h.twice {
		s.publish(ctx, reply, answer(call, h.nonce2))
		s.record.count("answers that differ from the first", 1)
	}
	if err == nil || sdk.AsError(err).Code == sdk.CodeConflict { // answered when it was delivered before
		_ = d.Ack() // a lost ack is another delivery
	}
}

func answer(call wire.Event, nonce uint32) wire.Event {
	answer := wire.Event{
		ID: fmt.Sprintf("a-%s-%d", call.ID, nonce), Source: call.Type, Type: call.Type + ".done", Subject: call.Subject,
		ParentID: call.ID, DataSchema: call.DataSchema, Data: json.RawMessage(fmt.Sprintf(`{"answer":"%d"}`, nonce)),
	}
	if call.Type == sdk.TypeQuestion {
		answer.Type = sdk.TypeQuestionAnswered
	}
	return answer
}

// busy is an answer that passes, in the place of another.
func busy(answer wire.Event) wire.Event {
	answer.Type = wire.ErrorType(answer.Source)
	answer.Data = json.RawMessage(`{"errorName":"busy","errorMessage":"busy","errorStack":null,"code":"unavailable","retryable":true}`)
	return answer
}

// publish stores a message without any condition, perhaps twice when the server is away, and says where.
func (w *world) publish(ctx context.Context, subject string, ev wire.Event) (sequence uint64) {
	data, err := ev.Encode()
	if err != nil {
		w.record.violate("event %s cannot be encoded: %v", ev.ID, err)
		return 0
	}
	return w.publishRaw(ctx, subject, data)
}

func (w *world) publishRaw(ctx context.Context, subject string, data []byte) (sequence uint64) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		stored, err := w.conn.JetStream().Publish(attempt, subject, data)
		cancel()
		if err == nil {
			return stored.Sequence
		}
		pause(ctx, 100*time.Millisecond) // the server is away
	}
	return 0
}
