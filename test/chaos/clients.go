package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// clients start runs and wait for their terminal events.
type clients struct {
	*world
	slots chan struct{}

	mu  sync.Mutex
	rng *rand.Rand
	// inits are the init events by the subject of the terminal event that each must get.
	inits map[string]*initEvent
	next  int
	// lost are the runs whose journal was deleted.
	lost map[wire.RunKey]bool
}

// initEvent is an init event and its end.
type initEvent struct {
	agent    string
	event    wire.Event
	scenario *scenario
	// fails are codes that its terminal event may have.
	fails []sdk.Code
	begun time.Time
	// ended is set with the first terminal event. terminals counts them by sequence in the stream, or by content where the server forgets
	// some, which come again.
	ended     time.Time
	code      sdk.Code
	terminals map[string]bool
	slot      bool
	// sequence is that of the event in its stream.
	sequence uint64
}

func newClients(w *world) *clients {
	return &clients{
		world: w, slots: make(chan struct{}, w.running), rng: w.rng(2), inits: map[string]*initEvent{}, lost: map[wire.RunKey]bool{},
	}
}

// work starts runs until ctx ends. Trailing work of its goroutines goes on until all have ended.
func (c *clients) work(ctx, all context.Context, background *sync.WaitGroup) {
	list := scenarios()
	for ctx.Err() == nil {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		s := choose(c.rng, list)
		whim := c.rng.IntN(100)
		wait := time.Duration(c.rng.IntN(1200)) * time.Millisecond
		c.mu.Unlock()
		in := c.begin(all, start{agent: s.agent, scenario: s, fails: s.fails, slot: true})
		switch {
		case s.name == cancelScenario:
			background.Go(func() { c.cancel(all, in, wait) })
		case whim < 3: // the same init event again
			background.Go(func() {
				pause(all, wait)
				c.publish(all, subjects.Start(in.agent), in.event)
				c.record.count("init events sent twice", 1)
			})
		case whim < 5: // another init event for the same run: one of them is refused
			in.fails = append(slices.Clone(in.fails), sdk.CodeRunExists)
			background.Go(func() { c.begin(all, start{agent: s.agent, subject: in.event.Subject, scenario: s, fails: in.fails}) })
		case whim < 6:
			background.Go(func() { c.begin(all, start{agent: "nobody", scenario: s, fails: []sdk.Code{sdk.CodeUnknownAgent}}) })
		case whim < 8:
			background.Go(func() { c.litter(all) })
		case whim < 10:
			background.Go(func() { c.amnesia(all, &list[len(list)-1]) })
		}
	}
}

// start is an init event that is to be published.
type start struct {
	agent string
	// subject is empty for a run of its own.
	subject  string
	scenario *scenario
	// fails are the errors that it may end with, and slot says that it keeps one of the clients' until then.
	fails []sdk.Code
	slot  bool
}

// begin publishes an init event until the broker has it.
func (c *clients) begin(ctx context.Context, s start) *initEvent {
	c.mu.Lock()
	c.next++
	id := fmt.Sprintf("%s-%d", s.scenario.name, c.next)
	subject := cmp.Or(s.subject, id)
	in := &initEvent{
		agent: s.agent, scenario: s.scenario, fails: s.fails, begun: time.Now(), terminals: map[string]bool{}, slot: s.slot,
		event: wire.Event{
			ID: id, Source: "chaos", Type: "shop." + s.agent, Subject: subject, Data: json.RawMessage(fmt.Sprintf(`{"message":%q}`, s.scenario.name)),
		},
	}
	c.inits[subjects.Done(s.agent, wire.NewRunKey(subject), wire.InitToken(in.event.Source, id))] = in
	c.mu.Unlock()
	in.sequence = c.publish(ctx, subjects.Start(s.agent), in.event)
	return in
}

func (c *clients) cancel(ctx context.Context, in *initEvent, wait time.Duration) {
	pause(ctx, wait)
	ev := wire.Event{
		ID: "cancel-" + in.event.ID, Source: "chaos", Type: "agentd.cancel", Subject: in.event.Subject,
		Data: json.RawMessage(`{"reason":"enough"}`),
	}
	subject := subjects.Control(wire.ControlCancel, in.agent, wire.NewRunKey(in.event.Subject))
	for {
		c.publish(ctx, subject, ev)
		// A run that begins more than a minute later does not hear it, so it is sent until it was of use.
		pause(ctx, 2*time.Second)
		c.mu.Lock()
		ended := !in.ended.IsZero()
		c.mu.Unlock()
		if ended || ctx.Err() != nil {
			return
		}
	}
}

// litter sends what nobody understands: it must end as a dead letter and harm nothing.
func (c *clients) litter(ctx context.Context) {
	c.mu.Lock()
	c.next++
	n := c.next
	c.mu.Unlock()
	run := wire.NewRunKey(fmt.Sprint("nobody-", n))
	c.publishRaw(ctx, subjects.Start(deskAgent), []byte(`{"id":1}`))
	nobody := wire.CallAddress{
		Domain: wire.LocalDomain, Type: "nothing", Agent: deskAgent, Run: run, Call: wire.CallID(run, "", 1, 0, "nothing", nil),
	}
	c.publish(ctx, subjects.Reply(nobody), wire.Event{
		ID: fmt.Sprint("stray-", n), Source: "chaos", Type: "nothing.done", Data: json.RawMessage(`{}`),
	})
}

// amnesia has the store lose the journal of a waiting run. An answer to its call must become a dead letter; the init event,
// sent again, begins the run anew, and it still gets one terminal event. The journal is lost when the init event is acked
// for good: the ack of an activation that belongs to the lost journal would remove the message that drives the new one.
func (c *clients) amnesia(ctx context.Context, s *scenario) {
	in := c.begin(ctx, start{agent: s.agent, scenario: s, fails: s.fails})
	key := wire.NewRunKey(in.event.Subject)
	c.mu.Lock()
	c.lost[key] = true
	c.mu.Unlock()
	head, ok := c.awaitWaiting(ctx, key)
	if !ok || !c.awaitAcked(ctx, in) {
		return
	}
	c.model.forget(in.event.Subject)
	for !c.forgets(ctx, key) {
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return
		}
	}
	c.record.cover("C27", 1)
	call := head.Calls[0]
	address := wire.CallAddress{Domain: wire.LocalDomain, Type: wire.NameToken(call.Type), Agent: head.Agent, Run: key, Call: call.ID}
	sequence := c.publish(ctx, subjects.Reply(address), wire.Event{
		ID: "a-" + call.ID, Source: call.Type, Type: call.Type + ".done", Subject: head.Run, ParentID: call.ID, Data: json.RawMessage(`{}`),
	})
	stream := streams.Name(subjects, c.layout.OfRun(streams.In, key))
	letter := subjects.DeadLetter(sdk.CodeUnknownRun, stream, sequence)
	for !c.exists(ctx, streams.DLQ, letter) {
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			c.record.violate("the answer to lost run %s is not a dead letter: %s", in.event.Subject, letter)
			return
		}
	}
	c.publish(ctx, subjects.Start(in.agent), in.event)
}

// forgets has the store lose the journal of a run, and reports whether nothing of it is left: servers of a cluster store an entry that was on its
// way while they purged those before it.
func (c *clients) forgets(ctx context.Context, key wire.RunKey) bool {
	if err := c.forget(ctx, key); err != nil {
		return false
	}
	_, err := c.store.Head(ctx, key)
	return errors.Is(err, runner.ErrNotFound)
}

// awaitWaiting waits until a run waits for a call.
func (c *clients) awaitWaiting(ctx context.Context, key wire.RunKey) (core.Head, bool) {
	for ctx.Err() == nil {
		rec, err := c.store.Head(ctx, key)
		if err == nil {
			entry, err := core.DecodeEntry(rec.Data)
			if err != nil {
				c.record.violate("run %s: %v", key, err)
				return core.Head{}, false
			}
			switch entry.Head.Status {
			case core.StatusWaiting:
				if len(entry.Head.Calls) > 0 { // else it waits for its model
					return entry.Head, true
				}
			case core.StatusDone:
				return core.Head{}, false
			case core.StatusRunning:
			}
		} else if !errors.Is(err, runner.ErrNotFound) {
			pause(ctx, 100*time.Millisecond)
		}
		pause(ctx, 50*time.Millisecond)
	}
	return core.Head{}, false
}

// awaitAcked waits until an init event is surely acked.
func (c *clients) awaitAcked(ctx context.Context, in *initEvent) bool {
	ref := streams.AgentConsumers(in.agent)[0] // that of init events
	for ctx.Err() == nil {
		state, err := c.consumer(ctx, ref)
		if err == nil && state.removed(in.sequence) {
			return true
		}
		pause(ctx, 200*time.Millisecond)
	}
	return false
}

// await notes terminal events until ctx ends.
func (c *clients) await(ctx context.Context) {
	for ctx.Err() == nil {
		// From the beginning, each time: what was seen before is known by its sequence.
		err := c.conn.Watch(ctx, streams.Done, []string{subjects.All(wire.KindDone)}, func(d broker.Delivery) bool {
			c.done(d)
			return true
		})
		if ctx.Err() == nil && err != nil {
			pause(ctx, 200*time.Millisecond) // the server is away
		}
	}
}

func (c *clients) done(d broker.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.inits[d.Subject()]
	if in == nil {
		c.record.violate("a terminal event for nobody on %s", d.Subject())
		return
	}
	key := strconv.FormatUint(d.Sequence(), 10)
	if c.setsBack {
		key = core.Digest(d.Data())
	}
	if in.terminals[key] {
		return
	}
	in.terminals[key] = true
	if !in.ended.IsZero() {
		return
	}
	in.ended = time.Now()
	c.hurts.ended()
	if in.slot {
		<-c.slots
	}
	ev, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		c.record.violate("terminal event on %s: %v", d.Subject(), err)
		return
	}
	var problem wire.Problem
	if ev.Type == wire.ErrorType("shop."+in.agent) || ev.Type == wire.ErrorType(in.agent) {
		if err := json.Unmarshal(ev.Data, &problem); err != nil {
			c.record.violate("terminal event on %s: %v", d.Subject(), err)
		}
		in.code = problem.Code
	}
}

// open counts the init events without a terminal event.
func (c *clients) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, in := range c.inits {
		if in.ended.IsZero() {
			n++
		}
	}
	return n
}

// forgotten reports whether the journal of a run was deleted.
func (c *clients) forgotten(run wire.RunKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[run]
}
