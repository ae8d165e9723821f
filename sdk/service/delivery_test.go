package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// gate is a handler that waits to be let through.
type gate struct {
	entered chan Call
	open    chan struct{}
	// ended gets the cause of the handler's context's end.
	ended chan error
	text  string
}

func newGate(text string) *gate {
	return &gate{entered: make(chan Call, 16), open: make(chan struct{}), ended: make(chan error, 16), text: text}
}

// handle ends with its context or when the gate opens.
func (g *gate) handle(ctx context.Context, call Call, _ place) (forecast, error) {
	g.entered <- call
	select {
	case <-g.open:
		return forecast{Text: g.text}, nil
	case <-ctx.Done():
		g.ended <- context.Cause(ctx)
		return forecast{}, ctx.Err()
	}
}

// stubborn does not care about its context.
func (g *gate) stubborn(_ context.Context, call Call, _ place) (forecast, error) {
	g.entered <- call
	<-g.open
	return forecast{Text: g.text}, nil
}

func (w *world) wantText(c sent, want string) {
	w.t.Helper()
	if got := w.answer(c); !strings.Contains(string(got.Data), want) {
		w.t.Errorf("got %s, want %q", got.Data, want)
	}
}

func TestServe_ExtendsTheDeliveryWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	g := newGate("once")
	s := weather(t, g.handle)
	w := newWorld(t, embedded.Options{})
	w.ackWait = 3 * ackWait // a machine that stands still for that long is none
	w.provision(s)
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	w.leases(2)
	if n := w.consumer(s).NumRedelivered; n != 0 {
		t.Errorf("%d calls were delivered again", n)
	}
	close(g.open)
	w.wantText(c, "once")
	w.settled(s)
	if n := len(g.entered); n != 0 {
		t.Errorf("the handler ran %d times more", n)
	}
}

func TestServe_DoesNotBeginACallTwiceInOneProgram(t *testing.T) {
	t.Parallel()
	g := newGate("once")
	s := weather(t, g.handle)
	w := startExpiring(t, s)
	w.run(Server{heartbeat: time.Hour}, s) // so that the delivery expires while the handler runs
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	w.eventually("the call delivered again", func() bool { return w.consumer(s).NumRedelivered > 0 })
	w.leases(1)
	close(g.open)
	w.wantText(c, "once")
	w.settled(s)
	if n := len(g.entered); n != 0 {
		t.Errorf("the handler ran %d times more", n)
	}
}

func TestServe_CallThatComesAgainHasOneAnswer(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := weather(t, func(_ context.Context, call Call, _ place) (forecast, error) {
		return forecast{Text: fmt.Sprintf("run %d", runs.Add(1))}, nil
	})
	w := start(t, s)
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	w.wantText(c, "run 1")
	w.settled(s)
	w.again(s)
	w.eventually("the handler ran again", func() bool { return runs.Load() == 2 })
	w.settled(s)
	w.wantText(c, "run 1")
	if n := w.answers(); n != 1 {
		t.Errorf("there are %d answers", n)
	}
}

// A stream of answers without room has the answer wait, and not the handler do its work again.
func TestServe_AnswerWaitsForRoom(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := weather(t, func(_ context.Context, call Call, _ place) (forecast, error) {
		return forecast{Text: fmt.Sprintf("run %d", runs.Add(1))}, nil
	})
	w := start(t, s)
	w.limitAnswers(1)
	if _, err := w.conn.JetStream().Publish(w.context(), "agentd.in.x", nil); err != nil {
		t.Fatal(err)
	}
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	w.eventually("the answer waits", func() bool { return w.log.contains("answer is stored when there is room") })
	w.limitAnswers(-1)
	w.wantText(c, "run 1")
	w.settled(s)
	if n := runs.Load(); n != 1 {
		t.Errorf("the handler ran %d times", n)
	}
}

// An answer that waits for room keeps its slot no longer than somebody waits for it.
func TestServe_AnswerThatWaitsForRoomIsVoided(t *testing.T) {
	t.Parallel()
	s := weather(t, sunny)
	w := start(t, s)
	w.limitAnswers(1)
	if _, err := w.conn.JetStream().Publish(w.context(), "agentd.in.x", nil); err != nil {
		t.Fatal(err)
	}
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	w.eventually("the answer waits", func() bool { return w.log.contains("answer is stored when there is room") })
	w.void(c)
	w.settled(s)
	w.limitAnswers(-1)
	w.wantText(w.call(s, `{"city":"Rome"}`), "sunny in Rome")
	if n := w.answers(); n != 2 {
		t.Errorf("there are %d messages among the answers, want that of another and the second answer", n)
	}
}

// limitAnswers sets how many messages the stream of answers may have.
func (w *world) limitAnswers(most int64) {
	w.t.Helper()
	stream, err := w.conn.JetStream().Stream(w.context(), "AGENTD_IN")
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = most
	if _, err := w.conn.JetStream().UpdateStream(w.context(), cfg); err != nil {
		w.t.Fatal(err)
	}
}

func TestServe_AnswerOfAnotherIsAsGood(t *testing.T) {
	t.Parallel()
	g := newGate("second")
	s := weather(t, g.handle)
	w := start(t, s)
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	first := wire.Event{ID: "a", Source: "another", Type: forecastDone, Subject: c.event.Subject, Data: []byte(`{"text":"first"}`)}
	if err := w.conn.Publish(w.context(), w.conn.Subjects().Reply(c.address), first); err != nil {
		t.Fatal(err)
	}
	close(g.open)
	w.settled(s)
	w.wantText(c, "first")
	if n := w.answers(); n != 1 {
		t.Errorf("there are %d answers", n)
	}
}

func TestRun_DrainFinishesHandlersAndFetchesNothing(t *testing.T) {
	t.Parallel()
	g := newGate("finished")
	s := weather(t, g.handle)
	w := start(t, s)
	stop := w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	w.eventually("a request for the next call", func() bool { return w.consumer(s).NumWaiting == 1 })
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	w.eventually("the request withdrawn", func() bool { return w.consumer(s).NumWaiting == 0 })
	later := w.call(s, `{"city":"Oslo"}`)
	close(g.open)
	receive(t, "the end", stopped)
	w.wantText(c, "finished")
	w.eventually("the server's note that the call is acknowledged", func() bool { return w.consumer(s).NumAckPending == 0 })
	if n := w.consumer(s).NumPending; n != 1 {
		t.Errorf("%d calls are not delivered, want 1", n)
	}
	w.run(Server{}, s)
	w.wantText(later, "finished")
}

func TestRun_CallThatOutlastsTheGraceIsLeftToAnother(t *testing.T) {
	t.Parallel()
	g := newGate("first")
	s := weather(t, g.handle)
	w := startExpiring(t, s)
	stop := w.run(Server{Grace: time.Millisecond}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	stop()
	if err := receive(t, "the end of the handler's context", g.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the context ended with %v", err)
	}
	second := weather(t, func(context.Context, Call, place) (forecast, error) { return forecast{Text: "second"}, nil })
	w.run(Server{}, second)
	w.wantText(c, "second")
	w.settled(s)
}

func TestVoid_EndsTheHandlersContext(t *testing.T) {
	t.Parallel()
	g := newGate("")
	s := weather(t, g.handle)
	w := start(t, s)
	w.run(Server{}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	w.void(c)
	if err := receive(t, "the end of the handler's context", g.ended); !errors.Is(err, errVoided) {
		t.Errorf("the context ended with %v", err)
	}
	w.settled(s)
	if n := w.answers(); n != 0 {
		t.Errorf("there are %d answers to a voided call", n)
	}
}

// Nobody was there to hear it when it was published.
func TestVoid_ThroughTheConsumer(t *testing.T) {
	t.Parallel()
	g := newGate("")
	s := weather(t, g.handle)
	w := start(t, s)
	w.void(w.call(s, `{"city":"Bern"}`))
	w.run(Server{}, s)
	w.settled(s)
	if n := w.answers(); n != 0 {
		t.Errorf("there are %d answers to a voided call", n)
	}
}

// The consumer hands out voids only while a slot is free, which may be never: it is the voided calls that take them.
func TestVoid_ReachesABusyService(t *testing.T) {
	t.Parallel()
	g := newGate("next")
	s := weather(t, g.handle, Concurrency(1))
	w := start(t, s)
	w.run(Server{}, s)
	busy := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	queued := w.call(s, `{"city":"Oslo"}`)
	w.void(queued)
	w.void(busy)
	if err := receive(t, "the end of the handler's context", g.ended); !errors.Is(err, errVoided) {
		t.Errorf("the context ended with %v", err)
	}
	next := w.call(s, `{"city":"Rome"}`)
	if call := receive(t, "another call", g.entered); call.Event.ID != next.event.ID {
		t.Errorf("a call that was voided before is begun")
	}
	close(g.open)
	w.wantText(next, "next")
	w.settled(s)
	if n := w.answers(); n != 1 {
		t.Errorf("there are %d answers, want 1", n)
	}
}

// dueWhen is a context whose deadline passes when a channel is closed.
type dueWhen struct {
	context.Context
	passed chan struct{}
}

func (d dueWhen) Done() <-chan struct{} { return d.passed }

func (d dueWhen) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestServe_AnswersWithoutAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	g := newGate("late")
	s := weather(t, g.stubborn, Concurrency(1))
	w := startExpiring(t, s)
	var begun atomic.Int64
	due := make(chan struct{})
	first := func(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
		if begun.Add(1) == 1 {
			return dueWhen{ctx, due}, func() {}
		}
		return context.WithDeadline(ctx, at)
	}
	w.run(Server{patience: time.Millisecond, withDeadline: first}, s)
	c := w.call(s, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	close(due)
	if p := w.problem(c); p.Code != sdk.CodeDeadline || !p.Retryable {
		t.Errorf("got %+v", p)
	}
	w.eventually("the call acknowledged", func() bool { return w.consumer(s).NumAckPending == 0 })
	next := w.call(s, `{"city":"Oslo"}`)
	w.eventually("a complaint", func() bool { return w.log.contains("keeps its slot") })
	w.leases(1)
	if len(g.entered) > 0 {
		t.Error("a call is begun in a slot that is taken")
	}
	close(g.open)
	receive(t, "the next call", g.entered)
	w.answer(next)
	w.settled(s)
}

func TestServe_DeadlineOfTheCall(t *testing.T) {
	t.Parallel()
	var due atomic.Int64
	s := weather(t, func(ctx context.Context, call Call, in place) (forecast, error) {
		at, _ := ctx.Deadline()
		due.Store(at.UnixMilli())
		return sunny(ctx, call, in)
	})
	w := start(t, s)
	w.run(Server{}, s)
	publish := func(expiry string) sent {
		c := w.newCall(s, `{"city":"Bern"}`)
		c.event.Extensions = map[string]any{wire.ExpiryTime: expiry}
		return w.publish(c)
	}
	want := time.Now().Add(time.Hour).UnixMilli()
	w.wantText(publish(time.UnixMilli(want).UTC().Format(time.RFC3339Nano)), "sunny")
	if got := due.Load(); got != want {
		t.Errorf("the handler's deadline is %d, want %d", got, want)
	}
	w.wantText(publish("tomorrow"), "sunny")
	if got := due.Load() - time.Now().UnixMilli(); got > DefaultTimeout.Milliseconds() || got < 0 {
		t.Errorf("without a deadline the handler has %d ms", got)
	}
	due.Store(0)
	if p := w.problem(publish("2020-01-01T00:00:00Z")); p.Code != sdk.CodeDeadline || due.Load() != 0 {
		t.Errorf("a call that is overdue: got %+v", p)
	}
}

// A letter of a service has a place of its own, which nobody else can have taken.
func TestServe_GarbageIsDeadLettered(t *testing.T) {
	t.Parallel()
	s := weather(t, sunny)
	w := start(t, s)
	other := w.newCall(s, `{"city":"Oslo"}`)
	valid := func(change func(*wire.Event)) []byte {
		event := other.event
		change(&event)
		data, err := event.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	at := w.conn.Subjects().Call(other.address)
	odd := other.address
	odd.Call = "call-7"
	garbage := []struct {
		subject, detail string
		data            []byte
	}{
		{at, "is not an event", []byte(`{"id":`)},
		{"agentd.out.local.weather_forecast.somewhere", "not one of agentd's subjects", valid(func(*wire.Event) {})},
		{at, "$.id", valid(func(e *wire.Event) { e.ID = "another" })},
		{at, "$.subject", valid(func(e *wire.Event) { e.Subject = "another" })},
		{w.conn.Subjects().Call(odd), "a call's id", valid(func(e *wire.Event) { e.ID = odd.Call })},
		{"agentd.void.local.weather_forecast.somewhere", "not one of agentd's subjects", nil},
	}
	w.run(Server{}, s)
	for i, g := range garbage {
		letter := fmt.Sprintf("agentd.dlq.invalid_event.agentd_out.%d", i+1)
		for _, m := range []*nats.Msg{
			{Subject: letter + ".local.bank_pay", Data: []byte("of another service")},
			{Subject: letter, Data: []byte("of a worker")},
			{Subject: g.subject, Data: g.data},
		} {
			if _, err := w.conn.JetStream().PublishMsg(w.context(), m); err != nil {
				t.Fatal(err)
			}
		}
		d, _ := w.first(streams.DLQ, letter+".local.weather_forecast")
		if detail := d.Header("agentd-detail"); !strings.Contains(detail, g.detail) || string(d.Data()) != string(g.data) {
			t.Errorf("%s: got %q, want %q", g.subject, detail, g.detail)
		}
	}
	w.wantText(w.call(s, `{"city":"Bern"}`), "sunny in Bern")
	w.settled(s)
}

// Garbage keeps one slot while nobody takes dead letters, however long that is, and calls are answered beside it.
func TestServe_GarbageThatNobodyDeadLetters(t *testing.T) {
	t.Parallel()
	e := newSecured(t, func(line string) bool {
		return !strings.Contains(line, `{service: {account: AGENTD, subject: "agentd.dlq.`)
	})
	e.s.slots = 2
	Handle(e.s, sunny)
	e.run(Server{conn: e.as("weather:cold"), Grace: time.Millisecond}, e.s)
	if _, err := e.conn.JetStream().Publish(e.context(), e.conn.Subjects().Call(e.newCall(e.s, `{}`).address), nil); err != nil {
		t.Fatal(err)
	}
	e.eventually("it is to be dead-lettered", func() bool { return e.log.contains("is dead-lettered") })
	e.leases(3)
	e.wantText(e.call(e.s, `{"city":"Bern"}`), "sunny in Bern")
}

// Whose user may not store dead letters passes garbage over.
func TestServe_GarbageThatMayNotBeDeadLettered(t *testing.T) {
	t.Parallel()
	e := newSecured(t, func(line string) bool { return !strings.Contains(line, "agentd.dlq.") })
	Handle(e.s, sunny)
	e.run(Server{conn: e.as("weather:cold")}, e.s)
	if _, err := e.conn.JetStream().Publish(e.context(), e.conn.Subjects().Call(e.newCall(e.s, `{}`).address), nil); err != nil {
		t.Fatal(err)
	}
	e.settled(e.s)
	if !e.log.contains("does not let this user publish on agentd.dlq.invalid_event.agentd_out.1.local.weather_forecast") {
		t.Error("nobody is told")
	}
	e.wantText(e.call(e.s, `{"city":"Bern"}`), "sunny in Bern")
}

func TestRun_TwoServicesInOneProgram(t *testing.T) {
	t.Parallel()
	g := newGate("slow")
	slow := weather(t, g.handle, Concurrency(1))
	contract := forecastContract
	contract.URI, contract.Type, contract.Domain = "#/weather/report", "weather.report", "weather.bureau"
	quick := newService(t, contract)
	Handle(quick, sunny)
	w := start(t, slow, quick)
	w.run(Server{}, slow, quick)
	first := w.call(slow, `{"city":"Bern"}`)
	receive(t, "the call", g.entered)
	w.wantText(w.call(quick, `{"city":"Oslo"}`), "sunny in Oslo") // the other service's slots are its own
	close(g.open)
	w.wantText(first, "slow")
}

func TestRun_WaitsForItsConsumer(t *testing.T) {
	t.Parallel()
	s := weather(t, sunny)
	w := newWorld(t, embedded.Options{})
	w.run(Server{}, s)
	w.eventually("advice in the log", func() bool {
		return w.log.contains("run: agentd provision") && w.log.contains("svc_local_weather_forecast")
	})
	w.provision(s)
	w.wantText(w.call(s, `{"city":"Bern"}`), "sunny in Bern")
}

// A careless service answers calls on a core subscription, where the reply inbox is that of the publisher's own
// acknowledgement.
func TestCarelessResponder_ChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, embedded.Options{Listen: true})
	s := weather(t, sunny)
	w.provision(s)
	w.run(Server{}, s)
	nc, err := nats.Connect(w.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	responded := make(chan string, 64)
	_, err = nc.Subscribe("agentd.out.>", func(m *nats.Msg) {
		if err := m.Respond([]byte(`{"text":"hail"}`)); err != nil {
			t.Errorf("respond: %v", err)
		}
		responded <- m.Subject
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		c := w.call(s, `{"city":"Bern"}`) // fails if the publisher takes the response for the broker's refusal
		// The publisher may have to publish again, and there is a response to each.
		for receive(t, "the careless response", responded) != w.conn.Subjects().Call(c.address) {
		}
		w.wantText(c, "sunny in Bern")
	}
	w.settled(s)
	if n := w.answers(); n != 10 {
		t.Errorf("there are %d answers to 10 calls", n)
	}
}

func TestServer_AddressFromTheEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("NATS_URL", "")
	t.Setenv("AGENTD_DATA", "")
	want := func(o Server, url, source string) {
		t.Helper()
		if gotURL, gotSource, err := o.address(); err != nil || gotURL != url || gotSource != source {
			t.Errorf("got %s from %s (%v), want %s from %s", gotURL, gotSource, err, url, source)
		}
	}
	want(Server{}, "nats://127.0.0.1:4222", "the default")
	for _, folder := range []string{".agentd", "elsewhere"} {
		server, err := embedded.Start(embedded.Options{Dir: folder, Listen: true})
		if err != nil {
			t.Fatal(err)
		}
		if folder != ".agentd" {
			t.Setenv("AGENTD_DATA", folder)
		}
		want(Server{}, server.URL(), "agentd dev on "+folder)
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("NATS_URL", "nats://one:4222,nats://two:4222")
	want(Server{}, "nats://one:4222,nats://two:4222", "NATS_URL")
	want(Server{URL: "nats://three:4222"}, "nats://three:4222", "the program")
}

func TestRun_ConnectsToTheServerOfTheEnvironment(t *testing.T) {
	s := weather(t, sunny)
	w := newWorld(t, embedded.Options{Listen: true})
	w.provision(s)
	t.Setenv("NATS_URL", w.server.URL())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s) }()
	w.wantText(w.call(s, `{"city":"Bern"}`), "sunny in Bern")
	stop()
	if err := receive(t, "the end of Run", done); err != nil {
		t.Error(err)
	}
}
