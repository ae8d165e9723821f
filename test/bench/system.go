package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"agentd/internal/broker/embedded"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
)

// system is everything that a run needs.
type system struct {
	name, durability string
	// url is the address of the NATS server.
	url     string
	conn    *broker.Conn
	worker  *worker.Worker
	closers []func() error
	next    atomic.Int64
	// calls counts what the service was asked.
	calls atomic.Int64

	mu sync.Mutex
	// waiting are the clients by the CloudEvents subject of their run.
	waiting map[string]chan wire.Event
}

const (
	agentName = "bench"
	toolType  = "bench.add"
	toolName  = "bench_add"
)

// filler makes a turn about 1 KiB of history.
var filler = strings.Repeat("x", 400)

func openJetStream(ctx context.Context) (*system, error) { return openJetStreamWith(ctx, agent()) }

// openJetStreamWith is openJetStream for another agent of the same name.
func openJetStreamWith(ctx context.Context, spec sdk.AgentSpec) (*system, error) {
	return open(ctx, spec, "jetstream", "JetStream file, one replica, fsync at every message",
		func(conn *broker.Conn) (runner.Store, func() error, error) {
			store, err := worker.OpenStore(ctx, conn, worker.StoreOptions{})
			return store, store.Close, err
		})
}

func open(
	ctx context.Context, spec sdk.AgentSpec, name, durability string,
	openStore func(*broker.Conn) (runner.Store, func() error, error),
) (*system, error) {
	s := &system{name: name, durability: durability, waiting: map[string]chan wire.Event{}}
	dir, err := os.MkdirTemp("", "agentd-bench")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(dir) })
	server, err := embedded.Start(embedded.Options{Dir: dir, Listen: true})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.closers, s.url = append(s.closers, server.Close), server.URL()
	if s.conn, err = broker.Connect(ctx, broker.ConnectOptions{InProcess: server, Name: "bench", Subjects: wire.DefaultSubjects()}); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.closers = append(s.closers, s.conn.Close)
	if _, err := s.conn.Provision(ctx, worker.Plan([]sdk.AgentSpec{spec})); err != nil {
		return nil, errors.Join(err, s.close())
	}
	store, closeStore, err := openStore(s.conn)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	if closeStore != nil {
		s.closers = append(s.closers, closeStore)
	}
	s.worker, err = worker.New(worker.Options{
		Conn: s.conn, Store: store, Agents: []sdk.Agent{{Spec: spec}},
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return model{}, nil },
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.background(ctx, s.worker.Run)
	s.background(ctx, s.serve)
	s.background(ctx, s.watchDone)
	return s, nil
}

// background runs f until the system is closed.
func (s *system) background(ctx context.Context, f func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
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

func (s *system) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

func agent() sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: agentName, Version: "1.0.0", Model: sdk.ModelSpec{Provider: "none", Name: "none"},
		Contract: contract("#/bench/agent", agentName, agentName+".done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{Contract: contract("#/bench/add", toolType, toolType+".done", `{"type":"object"}`), Version: "1.0.0"}},
		Limits:   sdk.Limits{Interactions: 1000},
	}
}

func contract(uri, contractType, emits, schema string) sdk.Contract {
	return sdk.Contract{URI: uri, Type: contractType, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
	}}}
}

// model asks for as many calls as the first message says: "turns width".
type model struct{}

func (model) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	var turns, width int
	if _, err := fmt.Sscanf(req.Messages[0].PlainText(), "%d %d", &turns, &width); err != nil {
		return sdk.ModelReply{}, err
	}
	if req.Interactions.Current >= turns {
		return sdk.ModelReply{Text: "done"}, nil
	}
	reply := sdk.ModelReply{}
	for range width {
		args := fmt.Sprintf(`{"a":%d,"b":1,"filler":%q}`, req.Interactions.Current%10, filler)
		reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: toolName, Arguments: args})
	}
	return reply, nil
}

// serve answers calls.
func (s *system) serve(ctx context.Context) error {
	s.conn.Consume(ctx, broker.ConsumeOptions{
		Consumers: []broker.ConsumerRef{broker.ServiceConsumer("", toolType)},
		Handle: func(ctx context.Context, d broker.Delivery) {
			reply, ok := s.conn.ReplySubject(d.Subject())
			if !ok {
				return
			}
			s.calls.Add(1)
			call, err := wire.DecodeEvent(d.Headers(), d.Data())
			if err == nil {
				err = s.conn.Publish(ctx, reply, wire.Event{
					ID: "a-" + call.ID, Source: toolType, Type: toolType + ".done", Subject: call.Subject, ParentID: call.ID,
					DataSchema: call.DataSchema, Data: json.RawMessage(`{"sum":1,"filler":"` + filler + `"}`),
				})
			}
			if err == nil {
				err = d.Ack()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "service:", err)
			}
		},
	})
	return nil
}

func (s *system) watchDone(ctx context.Context) error {
	return s.conn.Watch(ctx, broker.ZoneDone, []string{s.conn.Subjects().All(wire.KindDone)}, false, func(d broker.Delivery) bool {
		event, err := wire.DecodeEvent(d.Headers(), d.Data())
		if err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
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

// run runs one run of turns with one call each to its end.
func (s *system) run(ctx context.Context, turns int) error {
	_, err := s.runTo(ctx, turns, 1)
	return err
}

func (s *system) runTo(ctx context.Context, turns, width int) (subject string, err error) {
	n := s.next.Add(1)
	subject = fmt.Sprintf("bench-%d", n)
	done := make(chan wire.Event, 1)
	s.mu.Lock()
	s.waiting[subject] = done
	s.mu.Unlock()
	err = s.conn.Start(ctx, agentName, wire.Event{
		ID: subject, Source: "bench.client", Type: agentName, Subject: subject,
		Data: json.RawMessage(fmt.Sprintf(`{"message":"%d %d"}`, turns, width)),
	})
	if err != nil {
		return "", err
	}
	if event := <-done; event.Type != agentName+".done" {
		return "", fmt.Errorf("run %s ended with %s: %s", subject, event.Type, event.Data)
	}
	return subject, nil
}

// journal is the journal of a run of turns.
func (s *system) journal(ctx context.Context, turns int) ([]core.Entry, error) {
	return s.journalOf(ctx, turns, 1)
}

// round is the journal of a run with one round of width calls.
func (s *system) round(ctx context.Context, width int) ([]core.Entry, error) {
	return s.journalOf(ctx, 1, width)
}

func (s *system) journalOf(ctx context.Context, turns, width int) ([]core.Entry, error) {
	subject, err := s.runTo(ctx, turns, width)
	if err != nil {
		return nil, err
	}
	return s.worker.Runner().Journal(ctx, wire.NewRunKey(subject))
}
