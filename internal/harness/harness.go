// Package harness tests agentd through the real pipeline: an embedded NATS server without a port, workers, and a model made of
// code. It shows what is inside; sdk/sdktest is what users have. Nothing sleeps; what does not happen within Patience fails
// the test.
package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/telemetry"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Patience is how long anything may take, unless Options or the environment say otherwise.
const Patience = 2 * time.Minute

// PatienceVariable is the environment variable that says how long anything may take instead, such as 30s: for who expects tests to
// fail.
const PatienceVariable = "AGENTD_TEST_PATIENCE"

// DefaultPatience is Patience, or what the environment says.
func DefaultPatience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(PatienceVariable)); err == nil {
		return d
	}
	return Patience
}

// PartitionsVariable is the environment variable that says how many streams journals, timers, calls and answers are each divided into, such as 4: whatever a test
// proves is to be so however many there are.
const PartitionsVariable = "AGENTD_TEST_PARTITIONS"

// Partitions is what the environment says, 0 if it says nothing.
func Partitions() int {
	n, err := strconv.Atoi(os.Getenv(PartitionsVariable))
	if err != nil {
		return 0
	}
	return n
}

// Options are what a Harness runs.
type Options struct {
	Agents []sdk.Agent
	// Load makes the agents of each further worker, and of one after Restart: a worker closes the toolsets of its agents. Nil is for
	// agents whose toolsets bear that.
	Load func() []sdk.Agent
	// Contracts are published in the registry before the workers start, with all their versions.
	Contracts []sdk.Contract
	// Model answers for every agent; its name in specs does not matter.
	Model sdk.Provider
	// OpenStore replaces the store in JetStream.
	OpenStore func(conn *broker.Conn) runner.Store
	// Patience is how long anything may take; 0 is DefaultPatience.
	Patience time.Duration
	// Partitions is how many streams journals, timers, calls and answers are each divided into; 0 is Partitions().
	Partitions int
	// Workers is how many workers serve; 0 is 1.
	Workers int
	// Slots of each worker; 0 is sdk.DefaultSlots.
	Slots int
	// Telemetry shows what the workers do; nil shows nothing. It stays open.
	Telemetry *telemetry.Telemetry
	// Identity refuses runs and decisions without a principal; see SendAs and PublishAs.
	Identity bool
	// Keys are those whose signatures on decisions count, by domain.
	Keys map[string][]sdk.DecisionKey
	// EarlyDecisions is that of worker.Options.
	EarlyDecisions time.Duration
	// URL is a NATS server with JetStream that is used instead of the embedded one, such as
	// nats://user:password@127.0.0.1:4222, so that programs in other languages can take part.
	URL string
}

// Harness is a running agentd. Its methods fail the test instead of returning errors.
type Harness struct {
	t      testing.TB
	o      Options
	server broker.InProcess
	conn   *broker.Conn
	store  runner.Store
	log    *slog.Logger

	workers []*running
	// started says that there has been a worker.
	started bool
	mu      sync.Mutex
	calls   map[string]chan *Call
	dead    chan deadLetter
	// seen are the messages that the test was given.
	seen map[place]bool
}

type running struct {
	worker  *worker.Worker
	serving chan struct{}
	stop    context.CancelFunc
	done    chan error
}

// Start starts everything and stops it at the end of the test.
func Start(t testing.TB, o Options) *Harness {
	t.Helper()
	o.Patience = cmp.Or(o.Patience, DefaultPatience())
	h := &Harness{t: t, o: o, log: slog.New(slog.NewTextHandler(t.Output(), nil)), calls: map[string]chan *Call{}, seen: map[place]bool{}}
	ctx := t.Context()
	h.server = h.startServer()
	var err error
	h.conn, err = broker.Connect(ctx, broker.ConnectOptions{
		URL: o.URL, InProcess: h.server, Name: t.Name(), Subjects: wire.DefaultSubjects(), Logger: h.log,
	})
	h.check("connect", err)
	t.Cleanup(func() { h.check("close connection", h.conn.Close()) })
	h.provision()
	if h.store, err = worker.JournalStore(ctx, h.conn); o.OpenStore != nil {
		h.store, err = o.OpenStore(h.conn), nil
	}
	h.check("open store", err)
	h.watchDeadLetters()
	for range max(o.Workers, 1) {
		h.startWorker()
	}
	t.Cleanup(h.StopWorkers)
	return h
}

// startServer starts the embedded server, or returns nil when there is another one.
func (h *Harness) startServer() broker.InProcess {
	h.t.Helper()
	if h.o.URL != "" {
		return nil
	}
	server, err := embedded.Start(embedded.Options{Dir: h.t.TempDir()})
	h.check("start server", err)
	h.t.Cleanup(func() { h.check("stop server", server.Close()) })
	return server
}

// InProcessConn connects to the embedded server, for client.Options and service.Server.
func (h *Harness) InProcessConn() (net.Conn, error) {
	if h.server == nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "the harness uses the server at %s; connect there", h.o.URL)
	}
	return h.server.InProcessConn()
}

// provision makes what the agents need on the broker, and looks up what they have from the registry.
func (h *Harness) provision() {
	ctx, cancel := h.context()
	defer cancel()
	plan := func() {
		var specs []sdk.AgentSpec
		for _, a := range h.o.Agents {
			specs = append(specs, a.Spec)
		}
		p := worker.Plan(specs)
		p.Partitions = cmp.Or(h.o.Partitions, Partitions())
		_, err := provision.Apply(ctx, h.conn, p)
		h.check("provision", err)
	}
	plan()
	for _, c := range h.o.Contracts {
		h.PublishContract(c)
	}
	var err error
	h.o.Agents, err = worker.Resolve(ctx, h.conn, h.o.Agents)
	h.check("resolve contracts", err)
	plan()
}

// PublishContract publishes all versions of a contract in the registry.
func (h *Harness) PublishContract(c sdk.Contract) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	for version := range c.Versions {
		_, err := h.conn.Registry().Restore(ctx, c, version)
		h.check("publish contract "+c.Type+" "+version, err)
	}
}

func (h *Harness) check(doing string, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%s: %v", doing, err)
	}
}

func (h *Harness) startWorker() {
	serving := make(chan struct{})
	w, err := worker.New(worker.Options{
		Conn: h.conn, Store: h.store, Agents: h.agents(), Slots: h.o.Slots, Grace: h.o.Patience, Logger: h.log,
		Identity: h.o.Identity, Keys: h.o.Keys, Telemetry: h.o.Telemetry, EarlyDecisions: h.o.EarlyDecisions,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return h.o.Model, nil }, Serving: func() { close(serving) },
	})
	h.check("new worker", err)
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	r := &running{worker: w, serving: serving, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- w.Run(ctx) }()
	h.workers = append(h.workers, r)
	h.started = true
}

// agents are those of the next worker.
func (h *Harness) agents() []sdk.Agent {
	if !h.started || h.o.Load == nil {
		return h.o.Agents
	}
	ctx, cancel := h.context()
	defer cancel()
	agents, err := worker.Resolve(ctx, h.conn, h.o.Load())
	h.check("resolve contracts", err)
	return agents
}

// StopWorkers drains all workers.
func (h *Harness) StopWorkers() {
	h.drain(h.workers)
	h.workers = nil
}

func (h *Harness) drain(workers []*running) {
	for _, r := range workers {
		r.stop()
	}
	for _, r := range workers {
		if err := <-r.done; err != nil {
			h.t.Errorf("worker: %v", err)
		}
	}
}

// Restart replaces all workers by one new one, which knows nothing but what is stored.
func (h *Harness) Restart() {
	h.StopWorkers()
	h.startWorker()
}

// Replace has a worker with other agents take the place of all that serve, as a changed configuration does: they stop when it serves.
func (h *Harness) Replace(agents ...sdk.Agent) {
	before := h.workers
	h.o.Agents, h.workers = agents, nil
	h.startWorker()
	<-h.workers[0].serving
	h.drain(before)
}

// Conn is the connection to the broker.
func (h *Harness) Conn() *broker.Conn { return h.conn }

// Worker is the first worker.
func (h *Harness) Worker() *worker.Worker { return h.workers[0].worker }

func (h *Harness) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(h.t.Context()), h.o.Patience)
}

// Run is a run that was started.
type Run struct {
	Subject string
	Key     wire.RunKey
	Agent   string
	// Init is the init token.
	Init string
}

// Init returns an init event for an agent's contract version 1.0.0.
func (h *Harness) Init(agent string, input any) wire.Event {
	data, err := json.Marshal(input)
	h.check("encode input", err)
	return wire.Event{
		ID: "init-1", Source: "com.test.client", Type: agent, Subject: h.t.Name(), Time: time.UnixMilli(1_790_000_000_000),
		Data: data,
	}
}

// Run starts a run of agent with input.
func (h *Harness) Run(agent string, input any) Run {
	h.t.Helper()
	return h.Send(agent, h.Init(agent, input))
}

// Send publishes an init event.
func (h *Harness) Send(agent string, event wire.Event) Run {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	h.check("publish init event", h.conn.Start(ctx, agent, event))
	return started(agent, event)
}

// SendAs is Send as a principal, as if the broker had enforced it.
func (h *Harness) SendAs(principal, agent string, event wire.Event) Run {
	h.t.Helper()
	h.Publish(h.conn.Subjects().Start(agent)+"."+principal, event)
	return started(agent, event)
}

func started(agent string, event wire.Event) Run {
	r := Run{Subject: event.Subject, Agent: agent, Init: wire.InitToken(event.Source, event.ID)}
	if r.Subject == "" {
		r.Subject = wire.DefaultSubject(r.Init)
	}
	r.Key = wire.NewRunKey(r.Subject)
	return r
}

// Done waits for the run's terminal event.
func (h *Harness) Done(r Run) wire.Event {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	event, err := h.conn.WaitDone(ctx, r.Agent, r.Key, r.Init)
	h.check("wait for the terminal event of "+r.Subject, err)
	return event
}

// Cancel asks the run to end.
func (h *Harness) Cancel(r Run, reason string) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	data, err := json.Marshal(map[string]string{"reason": reason})
	h.check("encode reason", err)
	h.check("cancel", h.conn.Control(ctx, wire.ControlCancel, r.Agent, r.Key, "", wire.Event{
		ID: "cancel-1", Source: "com.test.operator", Type: "agentd.run.cancel", Subject: r.Subject, Data: data,
	}))
}

// Journal is the run's journal.
func (h *Harness) Journal(r Run) []core.Entry {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	entries, err := h.Worker().Runner().Journal(ctx, r.Key)
	h.check("read journal", err)
	return entries
}

// Parts is the run's journal with each answer and the reply to it by itself, whether or not the worker wrote them as one entry. They cannot
// be folded.
func (h *Harness) Parts(r Run) []core.Entry {
	h.t.Helper()
	return core.InParts(h.Journal(r))
}

// State is the fold of the run's journal.
func (h *Harness) State(r Run) core.State {
	h.t.Helper()
	var s core.State
	var err error
	for _, e := range h.Journal(r) {
		s, err = core.Apply(s, &e)
		h.check("fold journal", err)
	}
	return s
}

// Messages are the run's history with its seen counts.
func (h *Harness) Messages(r Run) []sdk.Message {
	h.t.Helper()
	s := h.State(r)
	return s.Messages()
}

// Until waits until the run's state satisfies holds, and returns it.
func (h *Harness) Until(r Run, what string, holds func(core.State) bool) core.State {
	h.t.Helper()
	for deadline := time.Now().Add(h.o.Patience); ; {
		s := h.State(r)
		if s.Rev > 0 && holds(s) {
			return s
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("run %s never was %s; it is %s at revision %d", r.Subject, what, s.Status, s.Rev)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// Suspended waits until the run waits for n calls.
func (h *Harness) Suspended(r Run, n int) core.State {
	h.t.Helper()
	return h.Until(r, "suspended", func(s core.State) bool {
		open := 0
		for _, c := range s.Calls {
			if !c.Closed() {
				open++
			}
		}
		return s.Status == core.StatusWaiting && open == n
	})
}

// background runs f until the test ends.
func (h *Harness) background(f func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	h.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			h.t.Errorf("in the background: %v", err)
		}
	})
}
