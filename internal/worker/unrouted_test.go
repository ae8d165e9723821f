package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// consumers is a broker that has the consumers of some agents.
type consumers struct {
	mu    sync.Mutex
	there map[string]bool
	asked []string
}

func (c *consumers) HasConsumer(ctx context.Context, ref streams.ConsumerRef) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, ref.Name)
	if there, known := c.there[ref.Name]; known {
		return there, ctx.Err()
	}
	return false, errors.New("the broker does not answer")
}

func (c *consumers) set(name string, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.there[name] = there
}

// noted is a delivery that notes what becomes of it.
type noted struct {
	broker.Delivery
	name string
	data []byte
	// header is of 8 bytes with its name.
	header []string
	log    func(string)
}

func (s noted) Subject() string { return s.name }
func (s noted) Data() []byte    { return s.data }
func (s noted) Headers() map[string][]string {
	return map[string][]string{"name": s.header}
}
func (s noted) Ack() error              { s.log(s.name + " acked"); return nil }
func (s noted) Nak(time.Duration) error { s.log(s.name + " given back"); return nil }

// routing is an unrouted with what became of its deliveries.
type routing struct {
	*unrouted
	*consumers
	mu  sync.Mutex
	log []string
}

func newRouting(there map[string]bool) *routing {
	r := &routing{consumers: &consumers{there: there}}
	refuse := func(_ context.Context, d broker.Delivery, _ wire.Address) error {
		r.note(d.Subject() + " refused")
		return nil
	}
	r.unrouted = &unrouted{broker: r.consumers, refuse: refuse, logger: slog.New(warnings{slog.DiscardHandler, r}), waiting: map[string][]toRoute{}}
	return r
}

// warnings notes what is logged as what became of deliveries.
type warnings struct {
	slog.Handler
	routing *routing
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	w.routing.note(r.Level.String() + " " + r.Message)
	return nil
}

func (r *routing) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, what)
}

func (r *routing) send(ctx context.Context, name, agent string) {
	r.route(ctx, noted{name: name, log: r.note}, wire.Address{Agent: agent})
}

// became is what became of deliveries since it was last asked, in order.
func (r *routing) became() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	return log
}

func (r *routing) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.became(); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func TestUnrouted_OneLookIsForAllThatCameBeforeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRouting(map[string]bool{"agent_a": true, "agent_b": true})
		for i := range 1000 {
			r.send(t.Context(), fmt.Sprint(i), "a")
			time.Sleep(10 * time.Millisecond)
		}
		r.send(t.Context(), "other", "b")
		time.Sleep(2 * lookAgain)
		synctest.Wait()
		if got := r.became(); len(got) != 1001 || slices.ContainsFunc(got, func(s string) bool { return s[len(s)-5:] != "acked" }) {
			t.Errorf("%d: %v", len(got), got)
		}
		if n := len(r.asked); n != 12 {
			t.Errorf("asked %d times in ten seconds; want 11 times for a and once for b", n)
		}
		r.looking.Wait()
		if len(r.waiting) != 0 {
			t.Errorf("agents that nobody calls are kept: %v", r.waiting)
		}
	})
}

func TestUnrouted_MoreThanThereIsRoomForIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRouting(map[string]bool{"agent_a": true, "agent_b": true})
		large := make([]byte, 10<<20)
		send := func(name, agent string) {
			r.route(t.Context(), noted{name: name, data: large, log: r.note}, wire.Address{Agent: agent})
		}
		send("first", "a")
		r.expect(t, "first acked")
		for _, name := range []string{"second", "third", "fourth", "fifth"} {
			send(name, "a")
		}
		r.expect(t, "fifth given back")
		time.Sleep(lookAgain)
		r.expect(t, "second acked", "third acked", "fourth acked")
		send("fifth", "a")
		time.Sleep(lookAgain)
		r.expect(t, "fifth acked")
		time.Sleep(lookAgain)
		r.looking.Wait()
		if r.size != 0 {
			t.Errorf("%d bytes are counted of nothing", r.size)
		}
	})
}

func TestUnrouted_AnAgentThatIsGoneIsNotTakenForThereByAnEarlierLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRouting(map[string]bool{"agent_a": true})
		r.send(t.Context(), "first", "a")
		r.expect(t, "first acked")
		r.set("agent_a", false)
		r.send(t.Context(), "second", "a")
		r.expect(t)
		time.Sleep(lookAgain)
		r.expect(t, "second refused", "second acked")
		r.set("agent_a", true)
		r.send(t.Context(), "third", "a")
		time.Sleep(lookAgain)
		r.expect(t, "third acked")
		r.looking.Wait()
	})
}

// Headers count: they may be larger than the data. An event that is larger than all that may wait is settled like any other.
func TestUnrouted_CountsAllOfAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRouting(map[string]bool{"agent_a": true})
		send := func(name string, data, headers int) {
			r.route(t.Context(), noted{name: name, data: make([]byte, data), header: slices.Repeat([]string{"1234"}, headers/8), log: r.note}, wire.Address{Agent: "a"})
		}
		r.send(t.Context(), "first", "a") // the next ones wait until something is asked again
		r.expect(t, "first acked")
		send("with headers", 0, 20<<20)
		send("too much beside it", 0, 20<<20)
		r.expect(t, "too much beside it given back")
		time.Sleep(lookAgain)
		r.expect(t, "with headers acked")
		send("larger than all", 40<<20, 0)
		send("beside it", 1, 0)
		r.expect(t, "beside it given back")
		time.Sleep(lookAgain)
		r.expect(t, "larger than all acked")
		r.looking.Wait()
		if r.size != 0 {
			t.Errorf("%d bytes are counted of nothing", r.size)
		}
	})
}

func TestUnrouted_WhatCannotBeDecidedIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRouting(map[string]bool{})
		ctx, stop := context.WithCancel(t.Context())
		r.send(ctx, "first", "a")
		r.expect(t, "first given back", "WARN init event could not be routed")
		r.set("agent_a", true)
		r.send(ctx, "second", "a")
		r.expect(t)
		stop()
		r.expect(t, "second given back") // without a warning: the worker is stopping
		r.looking.Wait()
	})
}
