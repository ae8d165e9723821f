package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// deadline bounds every wait for something that must happen.
	deadline = time.Minute
	// ackWait is how long a delivery lasts where a test waits until it expires. Elsewhere none does: a call that comes again because a
	// machine is slow would be counted.
	ackWait = time.Second
)

const (
	forecastType = "weather.forecast"
	forecastDone = "weather.forecast.done"
	controlType  = "test.control"
)

// forecastContract has one version.
var forecastContract = sdk.Contract{
	URI: "#/weather/forecast", Type: forecastType,
	Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object","required":["city"],"properties":{
			"city":{"type":"string","minLength":1},"days":{"type":"integer","default":1,"minimum":1,"maximum":7}}}`),
		Emits: map[string]json.RawMessage{forecastDone: json.RawMessage(`{"type":"object","required":["text"],"properties":{
			"text":{"type":"string"},"warnings":{"type":"array"},"days":{"type":"integer","maximum":7}}}`)},
	}},
}

type place struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

type forecast struct {
	Text     string   `json:"text"`
	Warnings []string `json:"warnings"`
	Days     int      `json:"days"`
}

// sunny is a handler without surprises.
func sunny(_ context.Context, _ Call, in place) (forecast, error) {
	return forecast{Text: "sunny in " + in.City, Days: in.Days}, nil
}

// world is a server with a caller.
type world struct {
	t      *testing.T
	server *embedded.Server
	conn   *broker.Conn
	log    *logBuffer
	calls  int
	// ackWait is how long a delivery lasts that is provisioned from now on.
	ackWait time.Duration
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Contains(b.text.Bytes(), []byte(text))
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newWorld starts a server that nobody has provisioned.
func newWorld(t *testing.T, o embedded.Options) *world {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "data")
	server, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{t: t, server: server, log: &logBuffer{}, ackWait: time.Hour}
	w.conn = w.connect()
	return w
}

// start is newWorld with the consumers of the services given and of one that nobody serves.
func start(t *testing.T, services ...*Service) *world {
	t.Helper()
	w := newWorld(t, embedded.Options{})
	w.provision(services...)
	return w
}

// startExpiring is start where a delivery lasts for ackWait only.
func startExpiring(t *testing.T, services ...*Service) *world {
	t.Helper()
	w := newWorld(t, embedded.Options{})
	w.ackWait = ackWait
	w.provision(services...)
	return w
}

func (w *world) provision(services ...*Service) {
	w.t.Helper()
	plan := provision.Plan{AckWait: w.ackWait, Services: []provision.Service{{Type: controlType}}}
	for _, s := range services {
		for _, d := range s.domains {
			plan.Services = append(plan.Services, provision.Service{Domain: d, Type: s.contract.Type})
		}
	}
	if _, err := provision.Apply(w.context(), w.conn, plan); err != nil {
		w.t.Fatal(err)
	}
}

// again makes a new consumer for the service, which reads the stream from its beginning.
func (w *world) again(s *Service) {
	w.t.Helper()
	ref := streams.ServiceConsumer(s.domains[0], s.contract.Type)
	if err := w.conn.JetStream().DeleteConsumer(w.context(), "AGENTD_OUT", ref.Name); err != nil {
		w.t.Fatal(err)
	}
	w.provision(s)
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), deadline)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) connect() *broker.Conn {
	w.t.Helper()
	c, err := broker.Connect(w.context(), broker.ConnectOptions{
		InProcess: w.server, Name: w.t.Name(), Subjects: wire.DefaultSubjects(), Logger: w.log.logger(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

// run runs services like a program of their own. The returned function stops it and returns when Run has returned; it may
// be repeated and is called at the end of the test.
func (w *world) run(o Server, services ...*Service) (stop func()) {
	w.t.Helper()
	o.Logger = w.log.logger()
	if o.conn == nil {
		o.conn = w.connect()
	}
	if o.heartbeat == 0 {
		o.heartbeat = w.ackWait / 10
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx, services...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(w.t, "the end of Run", done); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// sent is a call that was published.
type sent struct {
	address wire.CallAddress
	event   wire.Event
}

// newCall is a call of the newest version of a service's contract, in its first domain.
func (w *world) newCall(s *Service, data string) sent {
	w.calls++
	subject := fmt.Sprintf("%s-%d", w.t.Name(), w.calls)
	run := wire.NewRunKey(subject)
	args, err := wire.Canonicalize([]byte(data))
	if err != nil {
		w.t.Fatal(err)
	}
	c := sent{address: wire.CallAddress{
		Domain: wire.DomainToken(s.domains[0]), Type: wire.NameToken(s.contract.Type), Agent: "travel_desk", Run: run,
		Call: wire.CallID(run, wire.InitToken("test", "init"), 1, 0, s.contract.Type, args),
	}}
	versions := sorted(s.versions)
	reply := w.conn.Subjects().Reply(c.address)
	c.event = wire.Event{
		ID: c.address.Call, Source: reply, Type: s.contract.Type, Subject: subject, To: s.contract.Type, RedirectTo: reply,
		DataSchema: sdk.SchemaRef(s.contract.URI, versions[len(versions)-1]), Data: args, Agent: "travel.desk",
		Domain: s.domains[0], AccessControl: "tenant:acme", ParentID: "init", ExecutionUnits: 7,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "vendor=1",
	}
	return c
}

// publish publishes a call as workers do.
func (w *world) publish(c sent) sent {
	w.t.Helper()
	if err := w.conn.Publish(w.context(), w.conn.Subjects().Call(c.address), c.event); err != nil {
		w.t.Fatalf("publish call: %v", err)
	}
	return c
}

func (w *world) call(s *Service, data string) sent {
	w.t.Helper()
	return w.publish(w.newCall(s, data))
}

// void voids a call as workers do.
func (w *world) void(c sent) {
	w.t.Helper()
	event := wire.Event{
		ID: c.event.ID + "-void", Source: c.event.Source, Type: c.event.Type, Subject: c.event.Subject, ParentID: c.event.ID,
	}
	if err := w.conn.Publish(w.context(), w.conn.Subjects().Void(c.address), event); err != nil {
		w.t.Fatalf("publish void: %v", err)
	}
}

// answer waits for the answer to a call.
func (w *world) answer(c sent) wire.Event {
	w.t.Helper()
	_, event := w.first(streams.In, w.conn.Subjects().Reply(c.address))
	return event
}

// first waits for the first event on a subject.
func (w *world) first(zone streams.Zone, subject string) (broker.Delivery, wire.Event) {
	w.t.Helper()
	var delivery broker.Delivery
	err := w.conn.Watch(w.context(), zone, []string{subject}, func(d broker.Delivery) bool {
		delivery = d
		return false
	})
	if err != nil {
		w.t.Fatalf("nothing came on %s: %v", subject, err)
	}
	event, err := wire.DecodeEvent(delivery.Headers(), delivery.Data())
	if err != nil && zone != streams.DLQ {
		w.t.Fatalf("event on %s: %v", subject, err)
	}
	return delivery, event
}

// problem waits for the system error that answers a call.
func (w *world) problem(c sent) wire.Problem {
	w.t.Helper()
	event := w.answer(c)
	if want := wire.ErrorType(c.event.To); event.Type != want {
		w.t.Fatalf("got a %s with %s, want a %s", event.Type, event.Data, want)
	}
	var p wire.Problem
	if err := json.Unmarshal(event.Data, &p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// settled waits until everything on the service's consumer is acknowledged.
func (w *world) settled(s *Service) {
	w.t.Helper()
	w.eventually("all deliveries acknowledged", func() bool {
		info := w.consumer(s)
		return info.NumPending == 0 && info.NumAckPending == 0
	})
}

func (w *world) consumer(s *Service) *jetstream.ConsumerInfo {
	w.t.Helper()
	ref := streams.ServiceConsumer(s.domains[0], s.contract.Type)
	c, err := w.conn.JetStream().Consumer(w.context(), "AGENTD_OUT", ref.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.CachedInfo()
}

// answers counts what is on AGENTD_IN.
func (w *world) answers() uint64 {
	w.t.Helper()
	s, err := w.conn.JetStream().Stream(w.context(), "AGENTD_IN")
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// leases returns after n deliveries in a row have expired, on a consumer that nobody serves.
func (w *world) leases(n int) {
	w.t.Helper()
	control := newService(w.t, sdk.Contract{URI: "#/control", Type: controlType, Versions: forecastContract.Versions})
	w.call(control, `{}`)
	ctx, stop := context.WithCancel(w.context())
	defer stop()
	expired := false
	w.conn.Consume(ctx, broker.ConsumeOptions{
		Consumers: []streams.ConsumerRef{streams.ServiceConsumer("", controlType)},
		Handle: func(_ context.Context, d broker.Delivery) {
			if d.Delivered() <= n {
				return
			}
			if err := d.Ack(); err != nil {
				w.t.Error(err)
			}
			expired = true
			stop()
		},
	})
	if !expired {
		w.t.Fatalf("%d deliveries in a row did not expire", n)
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	poll.Until(w.t, deadline, what, ok)
}

func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(deadline):
		t.Fatalf("never came: %s", what)
		panic("unreachable")
	}
}

func newService(t *testing.T, contract sdk.Contract, options ...Option) *Service {
	t.Helper()
	s, err := New(contract, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// weather is a service of forecastContract.
func weather[Out any](t *testing.T, h func(context.Context, Call, place) (Out, error), options ...Option) *Service {
	t.Helper()
	s := newService(t, forecastContract, options...)
	Handle(s, h)
	return s
}
