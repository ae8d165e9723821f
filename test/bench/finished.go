package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"agentd/internal/bench"
	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// parts is in how many steps finished carries out its runs.
const parts = 4

// finished prints how much memory a server takes for runs that have ended, of both stores: as they end, and an hour later, when what a
// finished run does not need was removed. The server is a process of its own, with nothing else in it.
func finished(ctx context.Context, runs, concurrency int) error {
	return onEachStore(ctx, func(redisURL string) error { return finishedOn(ctx, redisURL, runs, concurrency) })
}

func finishedOn(ctx context.Context, redisURL string, runs, concurrency int) (err error) {
	server, err := startAlone(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	o := bench.Options{Connect: func(ctx context.Context, name string) (*broker.Conn, error) {
		return broker.Connect(ctx, broker.ConnectOptions{URL: server.url, Name: name, Subjects: wire.DefaultSubjects()})
	}}
	o.Store.RedisURL = redisURL
	s, err := bench.Open(ctx, o)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err != nil {
		return err
	}
	load := bench.Load{Turns: turns, Clients: concurrency, Runs: concurrency}
	if _, err := s.Work(ctx, load); err != nil { // connects and learns
		return err
	}
	t, err := newWeighing(server)
	if err != nil {
		return err
	}
	load.Runs = runs / parts
	for part := range parts {
		if _, err := s.Work(ctx, load); err != nil {
			return err
		}
		n := load.Runs * (part + 1)
		if err := t.weigh(fmt.Sprint(n), n); err != nil {
			return err
		}
	}
	began := time.Now()
	cleared, err := clearAsOf(ctx, s, time.Hour)
	if err != nil {
		return err
	}
	if cleared < runs {
		return fmt.Errorf("only %d of %d runs were cleared", cleared, runs)
	}
	took := time.Since(began)
	if err := t.weigh("an hour later", runs); err != nil {
		return err
	}
	fmt.Printf("journals in %s; what %d runs had left was removed in %s\n\n", cmp.Or(redisURL, "JetStream"), cleared, took.Round(time.Millisecond))
	return nil
}

// weighing is a table of what runs add to the memory of a server.
type weighing struct {
	server *alone
	before inMemory
}

const weighed = "%25v %14v %12v %19v %12v\n"

func newWeighing(server *alone) (*weighing, error) {
	before, err := server.memory()
	fmt.Printf(weighed, fmt.Sprintf("runs of %d calls", turns), "live heap MiB", "bytes a run", "of the system MiB", "bytes a run")
	return &weighing{server, before}, err
}

// weigh prints what a server has after so many runs.
func (t *weighing) weigh(when string, runs int) error {
	now, err := t.server.memory()
	each := func(now, before uint64) int { return (int(now) - int(before)) / runs }
	if err == nil {
		fmt.Printf(weighed, when, now.live>>20, each(now.live, t.before.live), now.system>>20, each(now.system, t.before.system))
	}
	return err
}

// clearAsOf removes what finished runs no longer need, as if so much time had passed, and returns how many runs lost their calls.
func clearAsOf(ctx context.Context, s *bench.System, later time.Duration) (runs int, err error) {
	o, err := s.Worker().Reconciling(ctx)
	if err != nil {
		return 0, err
	}
	o.Calls, o.Now = sdk.DefaultCallsKept, func() time.Time { return time.Now().Add(later) }
	for _, a := range o.Agents { // a server that was not started again has forgotten nothing
		if err := o.Conn.NoteRefilled(ctx, wire.NameToken(a.Name), o.Conn.Server()); err != nil {
			return 0, err
		}
	}
	var found []error
	o.Found = func(f reconcile.Finding) {
		found = append(found, fmt.Errorf("clear: run %s, %s: %s", f.Run, f.Kind, f.Problem))
	}
	report, err := reconcile.Clear(ctx, o)
	return report.Cleared, errors.Join(append(found, err)...)
}

// inMemory is what a server takes: live after a collection, and system, what its process has of the machine.
type inMemory struct{ live, system uint64 }

// alone is a NATS server in a process of its own, which tells of its memory for each line that it reads, and ends with its input.
type alone struct {
	url    string
	ask    io.WriteCloser
	answer *bufio.Reader
	cmd    *exec.Cmd
}

func startAlone(ctx context.Context) (*alone, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-server")
	cmd.Stderr = os.Stderr
	ask, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answer, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	a := &alone{ask: ask, answer: bufio.NewReader(answer), cmd: cmd}
	if _, err := fmt.Fscanln(a.answer, &a.url); err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not say where it is: %w", err), a.close())
	}
	return a, nil
}

// memory waits until blocks of messages that were written last have left the server's memory.
func (a *alone) memory() (m inMemory, err error) {
	time.Sleep(pause)
	if _, err := fmt.Fprintln(a.ask); err != nil {
		return m, fmt.Errorf("ask the server for its memory: %w", err)
	}
	if _, err := fmt.Fscanln(a.answer, &m.live, &m.system); err != nil {
		return m, fmt.Errorf("read the server's memory: %w", err)
	}
	return m, nil
}

func (a *alone) close() error { return errors.Join(a.ask.Close(), a.cmd.Wait()) }

// serveAlone is the other side of alone.
func serveAlone() (err error) {
	server, err := bench.StartServer(embedded.Options{Listen: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	fmt.Println(server.URL())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		m := inUse()
		fmt.Println(m.HeapAlloc, m.Sys-m.HeapReleased)
	}
	return nil
}
