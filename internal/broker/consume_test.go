package broker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
)

var (
	startRef   = streams.AgentConsumers("travel.desk")[0]
	inRef      = streams.AgentConsumers("travel.desk")[1]
	serviceRef = streams.ServiceConsumer("airline", "airline.book")
)

// consume consumes in the background. Stop ends it and waits; it is called with the test's end at the latest.
func consume(t *testing.T, c *Conn, o ConsumeOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Consume(ctx, o)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// start publishes n init events.
func start(t *testing.T, c *Conn, n int) {
	t.Helper()
	for i := range n {
		mustPublish(t, c.Start(testContext(t), "travel.desk", event(fmt.Sprintf("e%d", i))))
	}
}

// pending is how many messages of a consumer are neither acked nor even delivered.
func pending(t *testing.T, c *Conn, ref streams.ConsumerRef) (delivered, waiting int) {
	t.Helper()
	consumer, err := c.js.Consumer(testContext(t), streams.Name(c.subjects, ref.Zone), ref.Name)
	if err != nil {
		t.Fatal(err)
	}
	info := consumer.CachedInfo()
	return info.NumAckPending, int(info.NumPending)
}

// answered reports whether a consumer has no request open, or nothing for it.
func answered(t *testing.T, c *Conn, ref streams.ConsumerRef) bool {
	t.Helper()
	consumer, err := c.js.Consumer(testContext(t), streams.Name(c.subjects, ref.Zone), ref.Name)
	if err != nil {
		t.Fatal(err)
	}
	info := consumer.CachedInfo()
	return info.NumWaiting == 0 || info.NumPending == 0
}

func settled(t *testing.T, c *Conn, ref streams.ConsumerRef) {
	t.Helper()
	eventually(t, "everything is acked", func() bool {
		delivered, waiting := pending(t, c, ref)
		return delivered+waiting == 0
	})
}

func TestConsume_SharesSlotsOverConsumers(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	const each = 10
	for i := range each {
		at := testCall
		at.Call = fmt.Sprintf("c1-%d-x", i)
		mustPublish(t, c.Start(testContext(t), "travel.desk", event(at.Call)))
		mustPublish(t, c.Publish(testContext(t), c.subjects.Reply(at), event("answer")))
	}
	var running, most atomic.Int64
	handled, gate := make(chan string), make(chan struct{})
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef, inRef}, Slots: 1, Handle: func(_ context.Context, d Delivery) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		handled <- d.Stream()
		<-gate
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	others := map[string]streams.ConsumerRef{"AGENTD_START": inRef, "AGENTD_IN": startRef}
	seen := map[string]int{}
	for i := range 2 * each {
		stream := receive(t, "a message", handled)
		seen[stream]++
		if i == each-1 && len(seen) != 2 {
			t.Errorf("one consumer waits for the other: %v", seen)
		}
		eventually(t, "the other consumer has what it has asked for", func() bool { return answered(t, c, others[stream]) })
		gate <- struct{}{}
	}
	if most.Load() != 1 {
		t.Errorf("%d are handled at once; want one at a time", most.Load())
	}
	settled(t, c, startRef)
	settled(t, c, inRef)
}

func TestConsume_FillsItsSlots(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	const slots = 8
	start(t, c, slots)
	full, finish := make(chan struct{}, slots), make(chan struct{})
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Slots: slots, Handle: func(_ context.Context, d Delivery) {
		full <- struct{}{}
		<-finish
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	for range slots {
		receive(t, "a message in every slot", full)
	}
	close(finish)
	settled(t, c, startRef)
}

// A worker whose slots are busy keeps no message from an idle one.
func TestConsume_LeavesToOthersWhatItCannotHandle(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	apply(t, c, testPlan)
	busy, finish := make(chan struct{}, 1), make(chan struct{})
	both := []streams.ConsumerRef{startRef, inRef}
	consume(t, c, ConsumeOptions{Consumers: both, Slots: 1, Handle: func(_ context.Context, d Delivery) {
		busy <- struct{}{}
		<-finish
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	mustPublish(t, c.Publish(testContext(t), c.subjects.Reply(testCall), event("answer")))
	receive(t, "the only slot is taken", busy)
	start(t, c, 5)
	handled := make(chan uint64, 10)
	idle := connect(t, ConnectOptions{InProcess: server})
	consume(t, idle, ConsumeOptions{Consumers: both, Handle: func(_ context.Context, d Delivery) {
		handled <- d.Sequence()
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	}})
	for range 5 {
		receive(t, "a message at the idle worker", handled)
	}
	settled(t, c, startRef)
	close(finish)
	settled(t, c, inRef)
}

func TestConsume_DeliversAgainWhatIsNotSettled(t *testing.T) {
	t.Parallel()
	c := provisionedFor(t, 400*time.Millisecond)
	start(t, c, 1)
	deliveries := make(chan Delivery, 10)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) { deliveries <- d }})
	one, two := receive(t, "a delivery", deliveries), receive(t, "another", deliveries)
	if one.Sequence() != two.Sequence() || one.Delivered() != 1 || two.Delivered() != 2 || one.Received() != two.Received() {
		t.Errorf("sequences %d, %d; deliveries %d, %d", one.Sequence(), two.Sequence(), one.Delivered(), two.Delivered())
	}
	if one.Stream() != "AGENTD_START" || one.Consumer() != startRef.Name || one.Subject() != "agentd.start.travel_desk" {
		t.Errorf("%s %s %s", one.Stream(), one.Consumer(), one.Subject())
	}
	if err := two.Ack(); err != nil {
		t.Fatal(err)
	}
	settled(t, c, startRef)
}

func TestConsume_NakAsksForAnotherDelivery(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 1)
	times := make(chan time.Time, 10)
	const delay = 300 * time.Millisecond
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) {
		times <- time.Now()
		var err error
		switch d.Delivered() {
		case 1:
			err = d.Nak(0)
		case 2:
			err = d.Nak(delay)
		default:
			err = d.Ack()
		}
		if err != nil {
			t.Error(err)
		}
	}})
	receive(t, "a delivery", times)
	second, third := receive(t, "another at once", times), receive(t, "another later", times)
	if waited := third.Sub(second); waited < delay-10*time.Millisecond {
		t.Errorf("delivered again after %s; want %s", waited, delay)
	}
	settled(t, c, startRef)
}

func TestConsume_ExtendedDeliveriesAreNotRepeated(t *testing.T) {
	t.Parallel()
	const ackWait = 3 * time.Second // a machine that stands still for that long is none
	c := provisionedFor(t, ackWait)
	start(t, c, 1)
	handled := make(chan int, 10)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) {
		beat := time.NewTicker(ackWait / 12)
		defer beat.Stop()
		for range 24 { // twice as long as a delivery lasts
			<-beat.C
			if err := d.InProgress(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		handled <- d.Delivered()
	}})
	if n := receive(t, "the end of a long delivery", handled); n != 1 {
		t.Errorf("delivered %d times", n)
	}
	settled(t, c, startRef)
}

func TestConsume_SurvivesAPanic(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	var log safeLog
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	handled := make(chan struct{}, 10)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Slots: 1, Handle: func(_ context.Context, d Delivery) {
		if d.Sequence() == 1 {
			panic("boom")
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		handled <- struct{}{}
	}})
	start(t, c, 3)
	receive(t, "the message after the panic", handled)
	receive(t, "and another", handled)
	eventually(t, "they are acked", func() bool {
		delivered, waiting := pending(t, c, startRef)
		return delivered == 1 && waiting == 0
	})
	if text := log.String(); !strings.Contains(text, "boom") || !strings.Contains(text, "consume_test.go") {
		t.Errorf("the log has no panic with its stack: %s", text)
	}
}

// safeLog is a log that goroutines may write to.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestConsume_DrainsBeforeItReturns(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 2)
	began, drained, finish := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	ctx, cancel := context.WithCancel(testContext(t))
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		c.Consume(ctx, ConsumeOptions{
			Consumers: []streams.ConsumerRef{startRef}, Slots: 1, Drain: func() { close(drained) },
			Handle: func(ctx context.Context, d Delivery) {
				began <- struct{}{}
				<-finish
				if ctx.Err() != nil {
					t.Error("the handler is cancelled within the grace period")
				}
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
				ended.Store(true)
			},
		})
	}()
	receive(t, "a message", began)
	cancel()
	receive(t, "the call of Drain", drained)
	select {
	case <-returned:
		t.Fatal("it returned while a handler ran")
	default:
	}
	close(finish)
	receive(t, "the return", returned)
	if !ended.Load() {
		t.Error("it returned before the handler ended")
	}
	select {
	case <-began:
		t.Error("a message was handled after the drain began")
	default:
	}
}

func TestConsume_AbandonsHandlersAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 1)
	began, abandoned := make(chan struct{}), make(chan struct{})
	stop := consume(t, c, ConsumeOptions{
		Consumers: []streams.ConsumerRef{startRef}, Grace: time.Millisecond,
		Handle: func(ctx context.Context, _ Delivery) {
			close(began)
			<-ctx.Done()
			close(abandoned)
		},
	})
	receive(t, "a message", began)
	stop()
	receive(t, "the end of the handler's context", abandoned)
}

func TestConsume_WaitsForItsConsumer(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	var log safeLog
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	handled := make(chan string, 10)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) {
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		handled <- d.Subject()
	}})
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(log.String(), "AGENTD_START/agent_travel_desk") })
	apply(t, c, testPlan)
	start(t, c, 1)
	receive(t, "a message", handled)
	if n := strings.Count(log.String(), "\n"); n > 10 {
		t.Errorf("it logged %d lines meanwhile", n)
	}

	if err := c.js.DeleteConsumer(testContext(t), "AGENTD_START", startRef.Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the consumer is made again", func() bool { // the server still removes files of the old one
		_, err := provision.Apply(testContext(t), c, testPlan)
		return err == nil
	})
	receive(t, "the same message from the new consumer", handled)
	settled(t, c, startRef)
}

// A message that nothing can be read of, made by a publisher that is not agentd, reaches the handler like any other.
func TestConsume_DeliversWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	if _, err := c.js.Publish(testContext(t), "agentd.start.travel_desk.somebody", nil); err != nil {
		t.Fatal(err)
	}
	handled := make(chan Delivery, 1)
	consume(t, c, ConsumeOptions{Consumers: []streams.ConsumerRef{startRef}, Handle: func(_ context.Context, d Delivery) {
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		handled <- d
	}})
	if d := receive(t, "a message", handled); len(d.Data()) != 0 || d.Subject() != "agentd.start.travel_desk.somebody" {
		t.Errorf("%s: %q", d.Subject(), d.Data())
	}
}
