package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
	"agentd/test/ports"
)

// A worker asks for as many messages as it could handle. When its slots are taken by the time they come, others get them, and what is
// left of the request too.
func TestConsume_GivesBackWhatItHasAskedForInVain(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	apply(t, c, testPlan)
	const slots, held = 8, 6
	answers := 0
	answer := func(n int) {
		for range n {
			at := testCall
			at.Call = fmt.Sprintf("c1-%d-x", answers)
			mustPublish(t, c.Publish(testContext(t), c.subjects.Reply(at), event("answer")))
			answers++
		}
	}
	busy, finish := make(chan struct{}, slots), make(chan struct{})
	both := []streams.ConsumerRef{startRef, inRef}
	asked := make(chan string, 100)
	stop, err := c.Tail("$JS.API.CONSUMER.MSG.NEXT.>", func(subject string, _ map[string][]string, request []byte) {
		if strings.Contains(string(request), `"batch":8,`) {
			asked <- subject
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	consume(t, c, ConsumeOptions{Consumers: both, Slots: slots, Handle: func(_ context.Context, d Delivery) {
		busy <- struct{}{}
		<-finish
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	for range both {
		receive(t, "a consumer is asked for as many as there are slots", asked)
	}
	start(t, c, slots)
	for range slots {
		receive(t, "a slot is taken", busy)
	}
	answer(held)
	eventually(t, "the busy worker has been given the answers", func() bool {
		delivered, _ := pending(t, c, inRef)
		return delivered == held
	})
	handled := make(chan int, held+slots)
	idle := connect(t, ConnectOptions{InProcess: server})
	consume(t, idle, ConsumeOptions{Consumers: []streams.ConsumerRef{inRef}, Handle: func(_ context.Context, d Delivery) {
		handled <- d.Delivered()
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	for range held {
		if n := receive(t, "an answer at the idle worker", handled); n != 2 {
			t.Errorf("delivery %d of an answer reaches the idle worker, want 2", n)
		}
	}
	answer(slots)
	for range slots {
		if n := receive(t, "a later answer at the idle worker", handled); n != 1 {
			t.Errorf("delivery %d of a later answer reaches the idle worker, want 1", n)
		}
	}
	close(finish)
	settled(t, c, startRef)
}

func TestPuller_GivesBackWhatComesTooLate(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	const rounds = 100 // in some of them the message is on its way when the puller is closed
	start(t, c, rounds)
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	for range rounds {
		stopping, err := c.newPuller(startRef, rounds)
		if err == nil {
			err = stopping.ask(testContext(t), rounds)
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stopping.next(ended); err == nil && m != nil {
			stopping.giveBack(m)
		}
		if err := c.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		stopping.close()
	}
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) {
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	settled(t, c, startRef)
}

// What a leader was asked is lost with it, and it is not told. So in a cluster, where there is another soon, it is asked again soon, and
// sooner as long as no leader has answered.
func TestPuller_AsksAgainSoonWhereLeadersChange(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[string][4]time.Duration{
		"":      {10 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"three": {time.Second, 5 * time.Second, time.Second, time.Second},
	} {
		c := connect(t, ConnectOptions{URL: natsserver.Member(t, cluster, server.RANDOM_PORT).ClientURL()})
		p, err := c.newPuller(startRef, 1)
		if err != nil {
			t.Fatal(err)
		}
		requests, err := c.nc.SubscribeSync(p.request)
		if err != nil {
			t.Fatal(err)
		}
		asks := func(when string, want time.Duration) *nats.Msg {
			if err := p.ask(testContext(t), 1); err != nil {
				t.Fatal(err)
			}
			m, err := requests.NextMsgWithContext(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			var request struct{ Expires time.Duration }
			if err := json.Unmarshal(m.Data, &request); err != nil || request.Expires != want {
				t.Errorf("in cluster %q, %s, it asks with %s; want that it expires after %s", cluster, when, m.Data, want)
			}
			if left := time.Until(p.until); left > want+time.Second {
				t.Errorf("in cluster %q, %s, it waits %s for an answer to a request that expires after %s", cluster, when, left, want)
			}
			return m
		}
		told := func(m *nats.Msg, status string) {
			answer := nats.NewMsg(m.Reply)
			answer.Header.Set("Status", status)
			if err := c.nc.PublishMsg(answer); err != nil {
				t.Fatal(err)
			}
			_, _ = p.next(testContext(t)) // what it says is tested by others
		}
		told(asks("before anything is heard", want[0]), "408")
		told(asks("when a leader has answered", want[1]), "503")
		told(asks("when there is none", want[2]), "408")
		p.until = time.Now()
		if m, err := p.next(testContext(t)); m != nil || err != nil {
			t.Fatalf("a lost request gives %v, %v", m, err)
		}
		asks("when a request was lost", want[3])
		p.close()
	}
}

// While a leader is elected, its consumer is asked for often enough that no run waits for long when there is one.
func TestConsume_LooksAgainSoon(t *testing.T) {
	t.Parallel()
	pauses := reading.Start()
	for n := range 20 {
		if pause := pauses.Next(); pause > time.Second {
			t.Errorf("pause %d is %s; want at most 1 s", n+1, pause)
		}
	}
}

// A stopping worker drains its subscriptions and then its connection, which drains them again when a server is slow to
// answer.
func TestPuller_MayBeDrainedTwice(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	for range 20 {
		p, err := c.newPuller(streams.AgentConsumers("travel.desk")[0], 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.subscription.Drain(); err != nil {
			t.Fatal(err)
		}
		p.close()
	}
}

func TestConsume_GoesOnAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	p := testPlan
	p.AckWait = time.Second // for acks that the server takes down with it
	apply(t, c, p)
	handled := make(chan string, 100)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef, serviceRef}, Handle: func(ctx context.Context, d Delivery) {
		ev, err := wire.DecodeEvent(d.Headers(), d.Data())
		if err != nil {
			t.Error(err)
		}
		handled <- ev.ID
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	for round := range 3 {
		id := fmt.Sprint("round-", round)
		mustPublish(t, c.Start(testContext(t), "travel.desk", event(id)))
		at := testCall
		at.Call = id
		mustPublish(t, c.Publish(testContext(t), c.subjects.Call(at), event(id)))
		begin := time.Now()
		for seen := 0; seen < 2; { // an ack may be lost with the server: then there is another delivery
			if receive(t, "a message", handled) == id {
				seen++
			}
		}
		if waited := time.Since(begin); waited > fetchWait/2 {
			t.Errorf("messages came after %s: it waits for an answer that went down with the server", waited)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
		s = startServer(t, o)
		eventually(t, "it is connected again", c.Connected)
	}
	settled(t, c, startRef)
	settled(t, c, serviceRef)
}

// pulled has a puller get a message, and reports whether that is of the backlog.
func pulled(t *testing.T, p *puller) (backlog bool) {
	t.Helper()
	ctx := testContext(t)
	for ctx.Err() == nil {
		if p.left == 0 {
			if err := p.ask(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		m, err := p.next(ctx)
		if err != nil || m == nil {
			continue // what it says of the consumer
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		return p.backlog(ctx, meta)
	}
	t.Fatal("nothing came")
	return false
}

// A consumer that somebody deleted and that was provisioned again delivers what was there before it was made. Whoever reads it knows that,
// also who hears of none of the first messages that it counts anew.
func TestPuller_KnowsAConsumerThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	ctx := testContext(t)
	publish := func(ids ...string) {
		for _, id := range ids {
			mustPublish(t, c.Start(ctx, "travel.desk", event(id)))
		}
	}
	var readers [2]*puller
	for i := range readers {
		var err error
		if readers[i], err = c.newPuller(startRef, 1); err != nil {
			t.Fatal(err)
		}
		defer readers[i].close()
	}
	publish("first", "second")
	for i, p := range readers {
		if pulled(t, p) {
			t.Errorf("reader %d: what came after the consumer was made is of the backlog", i)
		}
	}
	if err := errors.Join(readers[1].ask(ctx, 1), c.nc.Flush()); err != nil { // it waits at the consumer that is deleted
		t.Fatal(err)
	}
	if err := c.js.DeleteConsumer(ctx, "AGENTD_START", startRef.Name); err != nil {
		t.Fatal(err)
	}
	publish("third", "fourth")
	apply(t, c, testPlan)
	for n, p := range []*puller{readers[0], readers[0], readers[0], readers[1]} {
		if !pulled(t, p) {
			t.Errorf("message %d was there before the consumer was made anew, and is not of the backlog", n+1)
		}
	}
	publish("fifth")
	if pulled(t, readers[1]) {
		t.Error("what came after the consumer was made anew is of the backlog")
	}
}

// A reader whose slots were all taken has no request at the consumer while that is deleted and made anew, and hears of none of the first
// messages that it counts anew.
func TestPuller_KnowsAConsumerThatWasMadeAnewWhileItWasBusy(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	ctx := testContext(t)
	var readers [2]*puller
	for i := range readers {
		var err error
		if readers[i], err = c.newPuller(startRef, 1); err != nil {
			t.Fatal(err)
		}
		defer readers[i].close()
	}
	busy := readers[1]
	start(t, c, 1)
	before := time.Now()
	if pulled(t, busy) || busy.made.IsZero() {
		t.Error("what came after the consumer was made is of the backlog")
	}
	if busy.ended.Before(before) {
		t.Error("it does not know when its request ended")
	}
	if err := c.js.DeleteConsumer(ctx, "AGENTD_START", startRef.Name); err != nil {
		t.Fatal(err)
	}
	start(t, c, 3)
	apply(t, c, testPlan)
	for range 2 {
		if !pulled(t, readers[0]) {
			t.Error("what was there before the consumer was made anew is not of the backlog")
		}
	}
	busy.ended = busy.ended.Add(-unasked) // that is how long it had no slot
	if !pulled(t, busy) {
		t.Error("who was busy takes the consumer that was made anew for the one before")
	}
}

// What is said of a request that was believed to be lost is said of the consumer.
func TestPuller_HearsThatAConsumerIsGoneFromAnEarlierRequest(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	p, err := c.newPuller(startRef, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for status, forgets := range map[string]bool{"100": false, "404": false, "408": false, "409": true, "503": true} {
		if err := p.ask(testContext(t), 1); err != nil {
			t.Fatal(err)
		}
		earlier := p.answer()
		if err := p.ask(testContext(t), 1); err != nil {
			t.Fatal(err)
		}
		p.made = time.Now()
		answer := nats.NewMsg(earlier)
		answer.Header.Set("Status", status)
		if err := p.told(answer); err != nil || p.left != 1 || p.made.IsZero() != forgets {
			t.Errorf("told %s of an earlier request: %v; %d messages may come; it forgets when the consumer was made: %t", status, err, p.left, p.made.IsZero())
		}
	}
}
