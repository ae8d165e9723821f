package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// roleVariable holds the role of a child process as JSON; without it the process is the driver.
const roleVariable = "AGENTD_CHAOS_ROLE"

// role is what a child process is: a server when Dir is set, else a worker.
type role struct {
	// Dir and Port are those of a NATS server.
	Dir  string `json:",omitempty"`
	Port int    `json:",omitempty"`

	NATS, Redis, Model string    `json:",omitempty"`
	Armed              armedSpec `json:",omitzero"`
	// Ahead is how far the clock of a worker's machine is ahead of everybody else's.
	Ahead time.Duration `json:",omitempty"`
	// Key is what a worker seals with.
	Key int `json:",omitempty"`
}

// armedSpec is a failpoint to be armed.
type armedSpec struct {
	Point  string `json:",omitempty"`
	Action action `json:",omitempty"`
	Nth    int    `json:",omitempty"`
}

// Leases are short, so that runs recover within seconds.
const (
	ackWait   = 1500 * time.Millisecond
	heartbeat = 500 * time.Millisecond
	// grace is how long a stopping worker waits for its activations: less than some model calls take.
	grace = 150 * time.Millisecond
	slots = 8
)

// playRole runs this process as the child that the environment asks for; ok is false when it is the driver.
func playRole() (code int, ok bool) {
	text, ok := os.LookupEnv(roleVariable)
	if !ok {
		return 0, false
	}
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		go endWithDriver()
		if r.Dir != "" {
			err = r.serve(ctx)
		} else {
			err = r.work(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ended:", err)
		return 1, true
	}
	return 0, true
}

// endWithDriver ends the process when the driver is gone, whose end of the pipe is closed then.
func endWithDriver() {
	_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
	os.Exit(1)
}

// serve is the NATS server.
func (r role) serve(ctx context.Context) error {
	s, err := embedded.Start(embedded.Options{
		Dir: r.Dir, Listen: true, Port: r.Port, PortOnly: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	(&notebook{w: os.Stdout}).write(note{Kind: noteReady})
	<-ctx.Done()
	return s.Close()
}

// work is a worker.
func (r role) work(ctx context.Context) (err error) {
	notes := &notebook{w: os.Stdout}
	logger := slog.New(&watcher{notes, slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})})
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: r.NATS, Name: "chaos", Subjects: wire.DefaultSubjects(), Logger: logger, Wait: true,
		Clock: func() time.Time { return time.Now().Add(r.Ahead) },
	})
	if err != nil {
		return err
	}
	keys, err := keyring(r.Key)
	if err != nil {
		return err
	}
	opened, err := worker.OpenStore(ctx, conn, worker.StoreOptions{RedisURL: r.Redis, Keys: keys})
	if err != nil {
		return err
	}
	a := &armed{Point: r.Armed.Point, Action: r.Armed.Action, Nth: r.Armed.Nth, notes: notes}
	given := &deliveries{armed: a}
	published := publisher{conn, conn, a}
	w, err := worker.New(worker.Options{
		Conn: conn, Store: store{opened, a}, Agents: agents(a), Slots: slots, Grace: grace, Logger: logger, Heartbeat: heartbeat,
		Reconcile: worker.Reconcile{Calls: callsKept}, Publisher: published, DeadLetters: published, Around: given.around,
		Models: func(m sdk.ModelSpec) (sdk.Provider, error) { return model{a, r.Model, m.Name}, nil },
	})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var clears sync.WaitGroup
	clears.Go(func() { lookAfter(serving, w) })
	notes.write(note{Kind: noteReady})
	err = w.Run(ctx)
	stop()
	clears.Wait()
	if given.inHand.Load() > 0 {
		notes.write(note{Kind: noteImpatient})
	}
	return errors.Join(err, opened.Close(), conn.Close())
}

// lookAfter has a worker remove what runs that have ended leave, much more often than workers do by themselves, and refill streams of a server
// that was set back, until ctx ends.
func lookAfter(ctx context.Context, w *worker.Worker) {
	o, err := w.Reconciling(ctx)
	for ; err != nil && ctx.Err() == nil; o, err = w.Reconciling(ctx) {
		pause(ctx, 200*time.Millisecond) // the server is away
	}
	if err != nil {
		return
	}
	var doing sync.WaitGroup
	doing.Go(func() { reconcile.Clearing(ctx, clearing, o) })
	doing.Go(func() { reconcile.AfterRestarts(ctx, o) })
	doing.Wait()
}

// watcher passes a worker's log on, and notes an input that the core takes for a bug: it is one.
type watcher struct {
	notes *notebook
	slog.Handler
}

// Handle implements slog.Handler.
func (w *watcher) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && errors.Is(err, core.ErrIllegal) {
			w.notes.write(note{Kind: noteIllegal, Text: err.Error()})
		}
		return true
	})
	return w.Handler.Handle(ctx, r)
}
