// Package bench measures what runs cost: clients start them, a model made of code asks for calls, a service answers, the clients learn
// the end. Workers, service and clients are in this process, each with a connection of its own; what is measured is said with how.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Names of what a System has.
const (
	AgentName   = "bench"
	ServiceType = "bench.add"
	ToolName    = "bench_add"
	version     = "1.0.0"
)

// Options describe a System.
type Options struct {
	// Connect opens a connection of the program of that name to the server under test. All are under the same root, and are closed with the
	// System.
	Connect func(ctx context.Context, name string) (*broker.Conn, error)
	// Store says where runs are kept. The System counts the commands that Redis gets.
	Store worker.StoreOptions
	// Workers is how many serve, each with Slots; 0 is 1, and sdk.DefaultSlots.
	Workers, Slots int
	// ModelLatency is how long the model takes for a reply.
	ModelLatency time.Duration
	// Replicas of the streams, and Partitions, into how many of them journals, timers, calls and answers are each divided; 0 is 1.
	Replicas, Partitions int
	// Spec is the agent, which has the name AgentName; its zero value is Agent().
	Spec sdk.AgentSpec
	// Patience is how long one run may take; 0 is a minute.
	Patience time.Duration
	// Embedded is the folder of the NATS server, if it is in this process. Monitor is the monitoring port of another one, such as
	// http://nats:8222; empty is not known.
	Embedded, Monitor string
}

// System is everything that a run needs. Its methods may be called concurrently.
type System struct {
	o Options
	// Control is a connection whose messages are not counted; client and service are those of these programs.
	Control, client, service *broker.Conn
	workers                  []*worker.Worker
	// serving are the workers' connections.
	serving []*broker.Conn
	closers []func() error
	steps   *steps
	next    atomic.Int64
	// calls counts what the service was asked.
	calls atomic.Int64

	mu sync.Mutex
	// commands counts what Redis got, by name.
	commands map[string]int64
	// waiting are the clients by the CloudEvents subject of their run.
	waiting map[string]chan wire.Event
	// failed is why the service, or the watch for ends, failed first.
	failed error
}

// Agent is an agent with one service.
func Agent() sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: AgentName, Version: version, Model: sdk.ModelSpec{Provider: "none", Name: "none", ContextWindow: 1_000_000},
		Contract: contract("#/bench/agent", AgentName, AgentName+".done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{Contract: contract("#/bench/add", ServiceType, ServiceType+".done", `{"type":"object"}`), Version: version}},
		Limits:   sdk.Limits{Interactions: 1000},
	}
}

func contract(uri, contractType, emits, schema string) sdk.Contract {
	return sdk.Contract{URI: uri, Type: contractType, Versions: map[string]sdk.ContractVersion{version: {
		Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
	}}}
}

// Open provisions what the runs need, and starts workers and service. The caller closes the System, also where Open fails: then it
// returns what there is of it.
func Open(ctx context.Context, o Options) (*System, error) {
	if o.Spec.Name == "" {
		o.Spec = Agent()
	}
	o.Workers = max(o.Workers, 1)
	if o.Slots == 0 {
		o.Slots = sdk.DefaultSlots
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	s := &System{o: o, steps: &steps{}, commands: map[string]int64{}, waiting: map[string]chan wire.Event{}}
	return s, s.open(ctx)
}

func (s *System) open(ctx context.Context) (err error) {
	for name, conn := range map[string]**broker.Conn{"bench": &s.Control, "bench client": &s.client, "bench service": &s.service} {
		if *conn, err = s.connect(ctx, name); err != nil {
			return err
		}
	}
	plan := worker.Plan([]sdk.AgentSpec{s.o.Spec})
	plan.Replicas, plan.Partitions = s.o.Replicas, s.o.Partitions
	if _, err := provision.Apply(ctx, s.Control, plan); err != nil {
		return err
	}
	for range s.o.Workers {
		if err := s.work(ctx); err != nil {
			return err
		}
	}
	s.background(ctx, s.serve)
	s.background(ctx, s.watchDone)
	return nil
}

func (s *System) connect(ctx context.Context, name string) (*broker.Conn, error) {
	conn, err := s.o.Connect(ctx, name)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, conn.Close)
	return conn, nil
}

func (s *System) work(ctx context.Context) error {
	conn, err := s.connect(ctx, "bench worker")
	if err != nil {
		return err
	}
	o := s.o.Store
	o.RedisCommand = s.command
	store, err := worker.OpenStore(ctx, conn, o)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, store.Close)
	w, err := worker.New(worker.Options{
		Conn: conn, Store: store, Agents: []sdk.Agent{{Spec: s.o.Spec}}, Slots: s.o.Slots,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return model{s.o.ModelLatency, s.steps}, nil },
	})
	if err != nil {
		return err
	}
	s.workers, s.serving = append(s.workers, w), append(s.serving, conn)
	s.background(ctx, w.Run)
	return nil
}

// command counts a command that a store sends.
func (s *System) command(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands[name]++
}

func (s *System) redisCommands() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.commands)
}

// background runs f until the System is closed, whatever becomes of ctx: who interrupts a measurement gets its runs to where they can
// be left.
func (s *System) background(ctx context.Context, f func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	s.closers = append(s.closers, func() error {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
}

// Close stops all of it, the youngest first. The streams stay.
func (s *System) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// Calls is how many calls the service has answered.
func (s *System) Calls() int64 { return s.calls.Load() }

// serve answers calls.
func (s *System) serve(ctx context.Context) error {
	s.service.Consume(ctx, broker.ConsumeOptions{
		Consumers: s.service.AwaitReading(ctx, streams.ServiceConsumer("", ServiceType)),
		Handle: func(ctx context.Context, d broker.Delivery) {
			if err := s.answer(ctx, d); err != nil {
				s.fail(fmt.Errorf("the service of the bench: %w", err))
			}
		},
	})
	return nil
}

func (s *System) answer(ctx context.Context, d broker.Delivery) error {
	reply, ok := s.service.ReplySubject(d.Subject())
	if !ok {
		return d.Ack() // the void of a call that was closed
	}
	s.calls.Add(1)
	call, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return err
	}
	err = s.service.Publish(ctx, reply, wire.Event{
		ID: "a-" + call.ID, Source: ServiceType, Type: ServiceType + ".done", Subject: call.Subject, ParentID: call.ID,
		DataSchema: call.DataSchema, Data: s.steps.answer(call.ID),
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		err = nil // the call was delivered again, and has its answer with another time in it
	}
	if err != nil {
		return err
	}
	return d.Ack()
}

func (s *System) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

func (s *System) watchDone(ctx context.Context) error {
	return s.client.Watch(ctx, streams.Done, []string{s.client.Subjects().All(wire.KindDone)}, func(d broker.Delivery) bool {
		event, err := wire.DecodeEvent(d.Headers(), d.Data())
		if err != nil {
			s.fail(fmt.Errorf("the terminal event on %s: %w", d.Subject(), err))
			return true
		}
		s.mu.Lock()
		client := s.waiting[event.Subject]
		delete(s.waiting, event.Subject)
		s.mu.Unlock()
		if client != nil {
			client <- event
		}
		return true
	})
}

// Run carries out a run of turns with so many calls each, to its end, and returns its name.
func (s *System) Run(ctx context.Context, turns, width int) (name string, err error) {
	name = fmt.Sprintf("bench-%d", s.next.Add(1))
	done := make(chan wire.Event, 1)
	s.mu.Lock()
	s.waiting[name] = done
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, name)
	}()
	err = s.client.Start(ctx, AgentName, wire.Event{
		ID: name, Source: "bench.client", Type: AgentName, Subject: name,
		Data: json.RawMessage(fmt.Sprintf(`{"message":"%d %d"}`, turns, width)),
	})
	if err != nil {
		return name, err
	}
	patience := time.NewTimer(s.o.Patience)
	defer patience.Stop()
	select {
	case event := <-done:
		if event.Type != AgentName+".done" {
			return name, fmt.Errorf("run %s ended with %s: %s", name, event.Type, event.Data)
		}
		return name, nil
	case <-ctx.Done():
		return name, ctx.Err()
	case <-patience.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		late := sdk.Errorf(sdk.CodeUnavailable, "run %s has not ended within %s; look at the servers' logs, or try fewer clients", name, s.o.Patience)
		return name, errors.Join(late, s.failed)
	}
}

// Worker is the first of those that serve.
func (s *System) Worker() *worker.Worker { return s.workers[0] }

// Journal is the journal of a run.
func (s *System) Journal(ctx context.Context, name string) ([]core.Entry, error) {
	return s.workers[0].Runner().Journal(ctx, wire.NewRunKey(name))
}
