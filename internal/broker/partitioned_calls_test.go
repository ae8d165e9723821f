package broker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// callOf is a call of a run.
func callOf(run wire.RunKey) wire.CallAddress {
	call := testCall
	call.Run = run
	return call
}

// Whoever may only ask workers for calls learns from them how these are divided, and is told those of all streams, each once: what there is,
// and what comes. What it then says to each is on that call's stream.
func TestPartitions_DesksFollowAllOfThem(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, server := partitioned(t, partitions)
	stop, err := c.Serve(c.Reader())
	if err != nil {
		t.Fatal(err)
	}
	runs := runsOf(partitions)
	for _, run := range runs {
		mustPublish(t, c.Publish(testContext(t), c.subjects.Call(callOf(run)), event("early")))
	}
	desk := connect(t, ConnectOptions{InProcess: server})
	seen, caughtUp, ended := make(chan Delivery, 4*partitions), make(chan int, 2), make(chan error, 1)
	ctx, end := context.WithCancel(testContext(t))
	go func() {
		ended <- desk.Follow(ctx, ctx, streams.Out, "agentd.*.airline.>", func() { caughtUp <- len(seen) }, func(d Delivery) { seen <- d })
	}()
	if n := receive(t, "that it has caught up", caughtUp); n != partitions {
		t.Errorf("caught up after %d messages; want %d", n, partitions)
	}
	for _, run := range runs {
		mustPublish(t, c.Publish(testContext(t), c.subjects.Void(callOf(run)), event("late")))
	}
	told := map[string]bool{}
	for range 2 * partitions {
		d := receive(t, "a message", seen)
		if told[d.Subject()] || d.Stream() != streams.Name(c.subjects, layoutOf(partitions).ZoneOf(d.Subject())) {
			t.Errorf("%s comes from %s, or twice", d.Subject(), d.Stream())
		}
		told[d.Subject()] = true
		if _, err := desk.Stored(testContext(t), d.Subject(), d.Sequence()); err != nil {
			t.Errorf("read %s again: %v", d.Subject(), err)
		}
	}
	for _, run := range runs {
		if err := desk.Answer(testContext(t), c.subjects.Call(callOf(run)), event("answer")); err != nil {
			t.Errorf("answer: %v", err)
		}
		if d, err := c.LastDelivery(testContext(t), streams.In, c.subjects.Reply(callOf(run))); err != nil || d == nil {
			t.Errorf("the answer to the call of %s: %v, %v", run, d, err)
		}
	}
	end()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) || len(caughtUp) > 0 {
		t.Errorf("it ended with %v, and has caught up %d times more", err, len(caughtUp))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A service finds its consumers by asking for one of them.
func TestPartitions_ServicesFindTheirConsumers(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	early := connect(t, ConnectOptions{InProcess: server})
	if refs, err := early.Reading(testContext(t), serviceRef); !errors.Is(err, ErrNotStored) {
		t.Errorf("before anything is provisioned: %v, %v", refs, err)
	}
	p := testPlan
	p.Partitions = 4
	apply(t, connect(t, ConnectOptions{InProcess: server}), p)
	refs := early.AwaitReading(testContext(t), serviceRef)
	if want := layoutOf(4).Consumers(serviceRef); !slices.Equal(refs, want) {
		t.Errorf("its consumers are %v, want %v", refs, want)
	}
	one, _ := partitioned(t, 1)
	fresh := &Conn{subjects: one.subjects, js: one.js, log: one.log}
	if refs, err := fresh.Reading(testContext(t), serviceRef); err != nil || !slices.Equal(refs, []streams.ConsumerRef{serviceRef}) {
		t.Errorf("where nothing is divided: %v, %v", refs, err)
	}
}

// Calls that are open are listed from all streams.
func TestPartitions_OpenCallsAreOfAllOfThem(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, _ := partitioned(t, partitions)
	for i, run := range runsOf(partitions) {
		call := callOf(run)
		call.Call = wire.CallID(run, "init", 1, i, "book", []byte("{}"))
		ev := event(call.Call)
		ev.DataSchema = "agentd:/book/1.0.0"
		mustPublish(t, c.Publish(testContext(t), c.subjects.Call(call), ev))
		if i == 0 {
			mustPublish(t, c.Publish(testContext(t), c.subjects.Reply(call), event("answer")))
		}
		if i == 1 {
			mustPublish(t, c.Publish(testContext(t), c.subjects.Void(call), event("void")))
		}
	}
	open, err := c.OpenCalls(testContext(t), "airline.book", "agentd:/book/1.0.0")
	if err != nil || len(open) != partitions-2 {
		t.Errorf("%d calls are open of %d: %v", len(open), partitions, err)
	}
}

// A service that reads some of its consumers is told from one that reads all of them, and from one that is away.
func TestPartitions_WhoReadsFewerIsFound(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, server := partitioned(t, partitions)
	all := layoutOf(partitions).Consumers(serviceRef)
	for _, read := range []int{0, 1, 3, partitions} {
		service := connect(t, ConnectOptions{InProcess: server})
		ctx, stop := context.WithCancel(testContext(t))
		done := make(chan struct{})
		go func() {
			defer close(done)
			service.Consume(ctx, ConsumeOptions{Consumers: all[:read], Handle: func(context.Context, Delivery) {}})
		}()
		eventually(t, "it asks", func() bool {
			for _, ref := range all[:read] {
				if b, err := c.Backlog(testContext(t), ref); err != nil || b.Pulls == 0 {
					return false
				}
			}
			return true
		})
		unread, err := c.PartlyRead(testContext(t), serviceRef)
		var want []streams.ConsumerRef
		if read > 0 && read < partitions {
			want = all[read:]
		}
		if err != nil || !slices.Equal(unread, want) {
			t.Errorf("of %d consumers that are read %v are not, %v; want %v", read, unread, err, want)
		}
		if none, err := c.Unread(testContext(t), serviceRef); err != nil || none != (read == 0) {
			t.Errorf("with %d that are read, all are not: %t, %v", read, none, err)
		}
		stop()
		<-done
		eventually(t, "the server knows that it is gone", func() bool {
			for _, ref := range all {
				if b, err := c.Backlog(testContext(t), ref); err != nil || b.Pulls > 0 {
					return false
				}
			}
			return true
		})
	}
}

// A client that may not look how streams are divided has its control messages stored all the same, and is told if somebody else's stream took one.
func TestPartitions_ControlsNeedNotKnow(t *testing.T) {
	t.Parallel()
	_, server := partitioned(t, 4)
	client := connect(t, ConnectOptions{InProcess: server})
	for _, run := range runsOf(4) {
		if err := client.Control(testContext(t), wire.ControlCancel, "travel.desk", run, "", event("cancel")); err != nil {
			t.Errorf("cancel %s: %v", run, err)
		}
	}
	other := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: other})
	_, err := c.js.CreateStream(testContext(t), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"agentd.>"}, NoAck: false, Discard: jetstream.DiscardNew, MaxMsgs: 8})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Control(testContext(t), wire.ControlCancel, "travel.desk", testRun, "", event("cancel"))
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "OTHERS") {
		t.Errorf("where another stream took it: %v", err)
	}
}

// A pause of an agent holds the calls of other agents on all streams.
func TestPartitions_APauseIsOfAllOfThem(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, _ := partitioned(t, partitions)
	paused := func() (n int) {
		t.Helper()
		for _, ref := range layoutOf(partitions).Consumers(streams.AgentConsumers("travel.desk")[3]) {
			info, err := c.consumerInfo(testContext(t), ref)
			if err != nil {
				t.Fatal(err)
			}
			n += map[bool]int{true: 1}[info.Paused]
		}
		return n
	}
	if err := c.PauseAgent(testContext(t), "travel.desk", AgentPause{For: time.Hour}); err != nil || paused() != partitions {
		t.Errorf("%s of %d are paused: %v", strconv.Itoa(paused()), partitions, err)
	}
	if _, err := c.ResumeAgent(testContext(t), "travel.desk"); err != nil || paused() != 0 {
		t.Errorf("%d are paused still: %v", paused(), err)
	}
}
