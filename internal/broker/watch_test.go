package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

func TestWatch_SeesMessagesInOrderThroughARestart(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	apply(t, c, testPlan)
	publish := func(i int) {
		at := testCall
		at.Call = fmt.Sprint("c", i)
		mustPublish(t, c.Publish(testContext(t), c.subjects.Call(at), event(at.Call)))
	}
	publish(0)
	seen := make(chan uint64, 10)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		ended <- c.Watch(ctx, streams.Out, []string{"agentd.out.>"}, func(d Delivery) bool {
			seen <- d.Sequence()
			return true
		})
	}()
	if n := receive(t, "what was there", seen); n != 1 {
		t.Errorf("first comes %d", n)
	}
	for i := 1; i < 4; i++ {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the loss is noticed", func() bool { return !c.Connected() })
		s = startServer(t, o)
		publish(i)
		if n := receive(t, "a new message", seen); n != uint64(i+1) {
			t.Errorf("got message %d; want %d", n, i+1)
		}
	}
	cancel()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// The first request to a consumer may find nobody, as where its server has ended since: a reader asks another consumer, and
// goes on where it was.
func TestWatch_ReadsOnWhenItsConsumerIsLost(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 3)
	// Somebody hears requests for messages and says nothing, as a server does that ends or freezes.
	if _, err := c.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.AGENTD_START.*", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	lose := func() {
		t.Helper()
		s, err := c.js.Stream(testContext(t), "AGENTD_START")
		if err != nil {
			t.Fatal(err)
		}
		for name := range s.ConsumerNames(testContext(t)).Name() {
			if name == streams.UnroutedConsumer || strings.HasPrefix(name, "agent_") {
				continue
			}
			if err := s.DeleteConsumer(testContext(t), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	var seen []uint64
	began := time.Now()
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{"agentd.start.>"}, DeliverPolicy: jetstream.DeliverAllPolicy}
	err := c.read(testContext(t), "AGENTD_START", config, func(uint64) bool {
		lose() // before it was asked for anything
		return true
	}, func(_ jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		seen = append(seen, meta.Sequence.Stream)
		switch len(seen) {
		case 3:
			lose()
			start(t, c, 2)
		case 5:
			return false
		}
		return true
	})
	if diff := cmp.Diff([]uint64{1, 2, 3, 4, 5}, seen); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if took := time.Since(began); took > 10*readHeartbeat {
		t.Errorf("it took %s; a consumer is known to be lost after %s", took, 2*readHeartbeat)
	}
}

// What is new is counted from the beginning, however often the consumer is lost.
func TestWatch_LosesNothingThatCameWhileItsConsumerWasLost(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 2)
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	o, err := c.ordered(testContext(t), "AGENTD_START", config)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	s, err := c.js.Stream(testContext(t), "AGENTD_START")
	if err == nil {
		err = s.DeleteConsumer(testContext(t), o.consumer.CachedInfo().Name)
	}
	if err != nil {
		t.Fatal(err)
	}
	start(t, c, 1)
	if _, meta, err := o.next(testContext(t)); err != nil || meta.Sequence.Stream != 3 {
		t.Errorf("the first new message is %+v, %v", meta, err)
	}
}

func TestWatch_OnlyNewMessages(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	start(t, c, 1)
	seen := make(chan string, 10)
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		ended <- c.WatchNew(ctx, streams.Start, []string{"agentd.start.>"}, func(d Delivery) bool {
			ev, err := wire.DecodeEvent(d.Headers(), d.Data())
			if err != nil {
				t.Error(err)
			}
			select {
			case seen <- ev.ID:
			case <-ctx.Done(): // nobody looks any more
			}
			return true
		})
	}()
	for n, got := 0, ""; got == ""; n++ {
		mustPublish(t, c.Start(testContext(t), "travel.desk", event(fmt.Sprint("new-", n))))
		select {
		case got = <-seen:
			if got == "e0" {
				t.Error("it shows what was there before")
			}
		default:
		}
	}
	cancel()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestWatch_SaysThatTheStreamIsMissing(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	if err := c.Watch(testContext(t), streams.Out, nil, func(Delivery) bool { return true }); err == nil {
		t.Error("no error")
	}
}

func TestWaitDone_ReturnsTheTerminalEvent(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	token := wire.InitToken("test", "e")
	type result struct {
		event wire.Event
		err   error
	}
	got := make(chan result, 1)
	go func() {
		ev, err := c.WaitDone(testContext(t), "travel.desk", testRun, token)
		got <- result{ev, err}
	}()
	mustPublish(t, c.Publish(testContext(t), c.subjects.Done("travel.desk", testRun, wire.InitToken("test", "other")), event("not this")))
	mustPublish(t, c.Publish(testContext(t), c.subjects.Done("travel.desk", testRun, token), event("t-1")))
	r := receive(t, "the terminal event", got)
	if diff := cmp.Diff(event("t-1"), r.event); diff != "" || r.err != nil {
		t.Errorf("%v (-want +got):\n%s", r.err, diff)
	}
}

func TestTail_SeesEverythingUnderASubject(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	subjects := make(chan string, 10_000)
	stop, err := c.Tail("agentd.>", func(subject string, _ map[string][]string, _ []byte) { subjects <- subject })
	if err != nil {
		t.Fatal(err)
	}
	c.Live(wire.Live{Run: "trip-7", Agent: "travel.desk"})
	start(t, c, 1)
	for receive(t, "a message of a stream", subjects) != "agentd.start.travel_desk" {
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestRequest_AnswersAndErrors(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	stop, err := c.Serve(Service{Name: "test", Version: "1.0.0", Endpoints: []Endpoint{
		{"agentd.get.good", "good", nil, func(_ string, request []byte) (Answer, error) { return JSON(map[string]string{"got": string(request)}) }},
		{"agentd.get.bad", "bad", nil, func(string, []byte) (Answer, error) { return nil, sdk.Errorf(sdk.CodeUnknownRun, "no such run") }},
		{"agentd.get.broken", "broken", nil, func(string, []byte) (Answer, error) { return nil, errors.New("secret") }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]string
	if err := c.Request(testContext(t), "agentd.get.good", 7, &answer); err != nil || answer["got"] != "7" {
		t.Errorf("got %v, %v", answer, err)
	}
	if err := c.Request(testContext(t), "agentd.get.bad", 7, &answer); !isCode(err, sdk.CodeUnknownRun) {
		t.Errorf("got %v", err)
	}
	err = c.Request(testContext(t), "agentd.get.broken", 7, &answer)
	if want := "internal: internal error"; err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := c.Request(testContext(t), "agentd.get.good", 7, &answer); !isCode(err, sdk.CodeUnavailable) {
		t.Errorf("nobody serves, and the error is %v; want %s", err, sdk.CodeUnavailable)
	}
}
