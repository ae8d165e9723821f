package harness

import (
	"context"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// DeadLetter is a message that could not be handled.
type DeadLetter struct {
	Reason, Detail, Subject string
	Data                    []byte
}

// deadLetter is one that is stored.
type deadLetter struct {
	DeadLetter
	at place
}

func newDeadLetter(d broker.Delivery) deadLetter {
	return deadLetter{DeadLetter{
		Reason: d.Header("agentd-reason"), Detail: d.Header("agentd-detail"), Subject: d.Header("agentd-subject"), Data: d.Data(),
	}, placeOf(d)}
}

func (h *Harness) watchDeadLetters() {
	h.dead = make(chan deadLetter, 256)
	h.background(func(ctx context.Context) error {
		return h.conn.Watch(ctx, streams.DLQ, []string{h.conn.Subjects().All(wire.KindDLQ)}, func(d broker.Delivery) bool {
			h.dead <- newDeadLetter(d)
			return true
		})
	})
}

// DeadLetter waits for the next dead letter.
func (h *Harness) DeadLetter() DeadLetter {
	h.t.Helper()
	select {
	case d := <-h.dead:
		h.returned(d.at)
		return d.DeadLetter
	case <-time.After(h.o.Patience):
		h.t.Fatal("no dead letter came")
	}
	return DeadLetter{}
}

// NoDeadLetter fails if there is a dead letter that DeadLetter has not returned.
func (h *Harness) NoDeadLetter() {
	h.t.Helper()
	if d := h.unseen(streams.DLQ, h.conn.Subjects().All(wire.KindDLQ)); d != nil {
		h.t.Fatalf("dead letter %+v", newDeadLetter(d).DeadLetter)
	}
}
