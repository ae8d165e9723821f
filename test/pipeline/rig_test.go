package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
	"agentd/test/ports"
)

// rig is a system whose parts can be taken away one by one: a server that listens, and workers and clients with
// connections of their own.
type rig struct {
	t      *testing.T
	dir    string
	port   int
	server *embedded.Server
	// client is the connection of the test.
	client *broker.Conn
	store  runner.Store
	// openStore opens a worker's store; nil is JetStream.
	openStore func(*broker.Conn) runner.Store
	model     sdk.Provider
	// publisher is in the place of a worker's connection, unless it is nil.
	publisher func(*broker.Conn) runner.Publisher
	specs     []sdk.AgentSpec
	agents    []sdk.Agent
	// ackWait is how long a delivery lasts unless its worker extends it; 0 is as in production.
	ackWait time.Duration
	// slots of a worker; 0 is 16. around is worker.Options.Around.
	slots  int
	around func(context.Context, broker.Delivery, func(context.Context, broker.Delivery))
	// clock is that of the machines of workers; nil is the test's.
	clock func() time.Time
}

// rigWorker is a worker of a rig.
type rigWorker struct {
	*worker.Worker
	conn *broker.Conn
	stop context.CancelFunc
	done chan error
}

// startRig starts a server with streams for the agents.
func startRig(t *testing.T, r rig, ackWait time.Duration) *rig {
	t.Helper()
	r.t, r.dir, r.port, r.ackWait = t, t.TempDir(), ports.Free(t), ackWait
	r.up()
	t.Cleanup(func() { r.check("stop the server", r.server.Close()) })
	r.client = r.connect(nil)
	for _, spec := range r.specs {
		r.agents = append(r.agents, sdk.Agent{Spec: spec})
	}
	plan := worker.Plan(r.specs)
	plan.AckWait, plan.Partitions = ackWait, harness.Partitions()
	_, err := provision.Apply(t.Context(), r.client, plan)
	r.check("provision", err)
	r.store = natsStore(r.client)
	if r.openStore != nil {
		r.store = r.openStore(r.client)
	}
	return &r
}

func (r *rig) check(doing string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", doing, err)
	}
}

// up starts the server, on the same port and folder each time.
func (r *rig) up() {
	r.t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: r.dir, Listen: true, Port: r.port, PortOnly: true})
	r.check("start the server", err)
	r.server = server
}

// down stops it and waits until every connection has noticed.
func (r *rig) down(conns ...*broker.Conn) {
	r.t.Helper()
	r.check("stop the server", r.server.Close())
	for _, c := range append(conns, r.client) {
		r.until("the connection is gone", func() bool { return !c.Connected() })
	}
}

func (r *rig) connect(clock func() time.Time) *broker.Conn {
	r.t.Helper()
	conn, err := broker.Connect(r.t.Context(), broker.ConnectOptions{
		URL: r.server.URL(), Name: r.t.Name(), Subjects: wire.DefaultSubjects(), Logger: r.log(), Clock: clock,
	})
	r.check("connect", err)
	r.t.Cleanup(func() { r.check("close connection", conn.Close()) })
	return conn
}

// log is quiet: what a closing connection says may come after the test's end.
func (r *rig) log() *slog.Logger {
	if testing.Verbose() {
		return slog.Default()
	}
	return slog.New(slog.DiscardHandler)
}

// work starts a worker, which stops with the test. Grace is how long its activations may go on then; 0 is as in production.
func (r *rig) work(grace time.Duration) *rigWorker {
	r.t.Helper()
	conn := r.connect(r.clock)
	store := natsStore(conn)
	if r.openStore != nil {
		store = r.openStore(conn)
	}
	o := worker.Options{
		Conn: conn, Store: store, Agents: r.agents, Slots: r.slots, Grace: grace, Logger: r.log(),
		Around: r.around,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return r.model, nil },
	}
	if r.ackWait > 0 {
		o.Heartbeat = r.ackWait / 10 // whoever lives and is slow keeps its deliveries
	}
	if r.publisher != nil {
		o.Publisher = r.publisher(conn)
	}
	w, err := worker.New(o)
	r.check("new worker", err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	running := &rigWorker{w, conn, stop, make(chan error, 1)}
	go func() { running.done <- w.Run(ctx) }()
	r.t.Cleanup(func() { r.halt(running) })
	return running
}

// halt stops a worker as SIGTERM does, and waits for its end. It may be repeated.
func (r *rig) halt(w *rigWorker) {
	r.t.Helper()
	w.stop()
	if err, ok := <-w.done; ok {
		close(w.done)
		r.check("stop worker", err)
	}
}

// kill ends a worker without a word to anybody, as far as others can tell: its connection is gone.
func (r *rig) kill(w *rigWorker) {
	r.t.Helper()
	r.check("close connection", w.conn.Close())
	w.stop()
	if err := <-w.done; err == nil {
		r.t.Error("a worker without a connection could say farewell")
	}
	close(w.done)
}

// begin starts a run of desk with a name of its own.
func (r *rig) begin(name string) harness.Run {
	r.t.Helper()
	ev := r.init(name)
	r.check("publish init event", r.client.Start(r.t.Context(), "desk", ev))
	return harness.Run{Subject: name, Key: wire.NewRunKey(name), Agent: "desk", Init: wire.InitToken(ev.Source, ev.ID)}
}

func (r *rig) init(name string) wire.Event {
	return wire.Event{
		ID: "init of " + name, Source: "com.test.client", Type: "desk", Subject: name,
		Time: time.UnixMilli(1_790_000_000_000), Data: []byte(`{"message":"hello"}`),
	}
}

// end waits for the run's terminal event.
func (r *rig) end(run harness.Run) wire.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*harness.Patience)
	defer cancel()
	ev, err := r.client.WaitDone(ctx, run.Agent, run.Key, run.Init)
	r.check("wait for the end of "+run.Subject, err)
	return ev
}

// head is the run's head; zero while there is none.
func (r *rig) head(run harness.Run) core.Head {
	last, err := r.store.Head(r.t.Context(), run.Key)
	if err != nil {
		return core.Head{}
	}
	entry, err := core.DecodeEntry(last.Data)
	r.check("decode the head of "+run.Subject, err)
	return entry.Head
}

func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	poll.Until(r.t, harness.Patience, what, holds)
}

// gate holds back whoever passes until it is opened, and counts who came.
type gate struct {
	came atomic.Int64
	open chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) pass(ctx context.Context) error {
	g.came.Add(1)
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
