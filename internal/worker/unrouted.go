package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// lookAgain is how often the broker is asked, at most, whether an agent has a consumer.
	lookAgain = time.Second
	// mostWaiting is how many bytes the events that wait for that may have together. What comes beyond is given back for as long.
	mostWaiting = 32 << 20
	// sizeBeside is what an event takes beside its data and headers, about, in bytes.
	sizeBeside = 1 << 10
)

// unrouted answers init events that no agent's consumer will ever deliver, so that whoever sent one does not wait for ever. It
// reads the others too, and only acks them.
//
// What the broker says of an agent's consumer holds for the events that were there when it was asked. So one that comes while the last
// answer is fresh waits for the next, with those of the same agent that come meanwhile, and holds no slot.
type unrouted struct {
	broker  routes
	refuse  func(context.Context, broker.Delivery, wire.Address) error
	logger  *slog.Logger
	mu      sync.Mutex
	waiting map[string][]toRoute // by the agent's token; one that is not there is not looked for
	size    int                  // of what waits or is being settled, in bytes
	looking sync.WaitGroup
}

// routes is what is asked of the broker.
type routes interface {
	HasConsumer(ctx context.Context, ref streams.ConsumerRef) (bool, error)
}

type toRoute struct {
	delivery broker.Delivery
	address  wire.Address
}

func (r toRoute) size() int {
	n := len(r.delivery.Data()) + sizeBeside
	for name, values := range r.delivery.Headers() {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// route settles a delivery, now or later. When ctx ends, what waits is given back.
func (u *unrouted) route(ctx context.Context, d broker.Delivery, address wire.Address) {
	if !u.wait(ctx, toRoute{d, address}) {
		if err := d.Nak(lookAgain); err != nil && ctx.Err() == nil {
			u.logger.Warn("init event could not be given back", "subject", d.Subject(), "error", err)
		}
	}
}

// wait has an event settled by the next look for its agent, if there is room; for one alone there always is.
func (u *unrouted) wait(ctx context.Context, event toRoute) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	size := event.size()
	if u.size > 0 && u.size+size > mostWaiting {
		return false
	}
	u.size += size
	agent := event.address.Agent
	_, looking := u.waiting[agent]
	u.waiting[agent] = append(u.waiting[agent], event)
	if !looking {
		u.looking.Go(func() { u.look(ctx, agent) })
	}
	return true
}

// look settles what waits for an agent, until nothing has come for a while.
func (u *unrouted) look(ctx context.Context, agent string) {
	pause := time.NewTicker(lookAgain)
	defer pause.Stop()
	for {
		events := u.take(agent)
		if len(events) == 0 {
			return
		}
		routed, err := u.broker.HasConsumer(ctx, streams.InitConsumer(agent))
		for _, e := range events {
			refused := err
			if refused == nil && !routed {
				refused = u.refuse(ctx, e.delivery, e.address)
			}
			u.settle(ctx, e.delivery, refused)
			u.forget(e)
		}
		select {
		case <-pause.C:
		case <-ctx.Done(): // what still comes is given back by the next look, which fails
		}
	}
}

// take takes what waits for an agent. If nothing does, nobody looks for it any more.
func (u *unrouted) take(agent string) []toRoute {
	u.mu.Lock()
	defer u.mu.Unlock()
	events := u.waiting[agent]
	if len(events) == 0 {
		delete(u.waiting, agent)
	} else {
		u.waiting[agent] = nil
	}
	return events
}

func (u *unrouted) forget(event toRoute) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.size -= event.size()
}

// settle gives the delivery back if its event could not be settled. That is told, unless the worker is stopping: then it is what is to be.
func (u *unrouted) settle(ctx context.Context, d broker.Delivery, err error) {
	if err == nil {
		err = d.Ack()
	} else {
		err = errors.Join(err, d.Nak(streams.Heartbeat))
	}
	if err != nil && ctx.Err() == nil {
		u.logger.Warn("init event could not be routed", "subject", d.Subject(), "error", err)
	}
}

// routeInit settles what the consumer of all init events delivers.
func (w *Worker) routeInit(ctx context.Context, d broker.Delivery) {
	address, err := w.Conn.Subjects().Parse(d.Subject())
	if err != nil {
		w.unrouted.settle(ctx, d, w.DeadLetters.DeadLetter(ctx, d, sdk.CodeInvalidEvent, err.Error()))
		return
	}
	w.unrouted.route(ctx, d, address)
}

// refuseUnknown tells whoever sent an init event that nobody serves its agent.
func (w *Worker) refuseUnknown(ctx context.Context, d broker.Delivery, address wire.Address) error {
	event, unread := wire.DecodeEvent(d.Headers(), d.Data())
	if unread != nil {
		if err := w.DeadLetters.DeadLetter(ctx, d, sdk.CodeInvalidEvent, unread.Error()); err != nil {
			return err
		}
		var told bool
		if event, told = wire.Sender(d.Headers(), d.Data()); !told {
			return nil
		}
	}
	return w.refuse(ctx, address, event)
}

// refuse tells the sender of an init event that nobody serves its agent, unless that was told.
func (w *Worker) refuse(ctx context.Context, address wire.Address, event wire.Event) error {
	refusal, err := outbox.RefusalUnknown(w.Conn.Subjects(), address, event)
	if err != nil {
		return err
	}
	w.Logger.Warn("init event for an unknown agent", "agent", address.Agent, "event", event.ID)
	err = w.Publisher.Restore(ctx, refusal.Subject, refusal.Event)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return nil // it was answered otherwise, and this answer is among the dead letters
	}
	return err
}
