package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

const (
	// mortalWorker names the environment variable with the server's address that makes this program a worker.
	mortalWorker = "AGENTD_TEST_MORTAL_WORKER"
	// shortLease is AckWait where workers are to be found dead soon, and thinking how long a model takes.
	shortLease, thinking = 1500 * time.Millisecond, time.Second
	// busySteps is how many steps a busy run has: more than there is time for between two deaths.
	busySteps = 30
	// longSteps is how many a long run has.
	longSteps = 8
)

// burning is an agent with a tool that ends the process of whoever runs it.
func burning() sdk.Agent {
	spec := desk()
	spec.Services = nil
	spec.Limits.Interactions = 2 * busySteps
	tool := func(name string, run func()) sdk.Tool {
		return sdk.Tool{
			Definition: sdk.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)},
			Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				run()
				return json.RawMessage(`{}`), nil
			},
		}
	}
	return sdk.Agent{Spec: spec, Tools: []sdk.Tool{tool("burn", func() { os.Exit(3) }), tool("note", func() {})}}
}

// serveMortal is a worker in a process of its own, until it is told to end. Its model has runs whose name begins with "poison"
// burn the worker, and takes its time for all others.
func serveMortal(url string) (code int) {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: url, Name: "mortal", Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fail(err)
	}
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if strings.HasPrefix(req.Run, "poison") {
			return sdktest.Ask(sdktest.Tool("burn", struct{}{})), nil
		}
		select {
		case <-time.After(thinking):
			if strings.HasPrefix(req.Run, "busy") && req.Interactions.Current < busySteps {
				return sdktest.Ask(sdktest.Tool("note", struct{}{})), nil
			}
			if strings.HasPrefix(req.Run, "long") && req.Interactions.Current < longSteps {
				return sdktest.Ask(sdktest.Tool("note", struct{}{})), nil
			}
			return sdktest.Say("hi"), nil
		case <-ctx.Done():
			return sdk.ModelReply{}, ctx.Err()
		}
	})
	store := natsStore(conn)
	if os.Getenv(dyingStore) != "" {
		store = dying{store}
	}
	w, err := worker.New(worker.Options{
		Conn: conn, Store: store, Agents: []sdk.Agent{burning()}, Slots: 64, Logger: slog.New(slog.DiscardHandler),
		Models:    func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil },
		Heartbeat: shortLease / 5,
	})
	if err != nil {
		return fail(err)
	}
	if err := w.Run(ctx); err != nil {
		return fail(err)
	}
	return 0
}

// mortals keeps a worker's process alive until the test ends: one that dies is followed by another.
func (r *rig) mortals() {
	r.t.Helper()
	program, err := os.Executable()
	r.check("find the test's program", err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			child := exec.CommandContext(ctx, program)
			child.Env = append(os.Environ(), mortalWorker+"="+r.server.URL())
			child.Stderr = os.Stderr
			child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
			if err := child.Run(); ctx.Err() == nil && child.ProcessState.ExitCode() != 3 {
				r.t.Errorf("a worker ended: %v", err)
				return
			}
		}
	}()
	r.t.Cleanup(func() {
		stop()
		<-done
	})
}

// A run whose tool kills the worker's process is ended, and none of those that were in the same worker is.
func TestPoison_EndsNoInnocentRun(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{specs: []sdk.AgentSpec{burning().Spec}}, shortLease)
	var innocent []harness.Run
	for i := range 8 {
		innocent = append(innocent, r.begin(fmt.Sprint("innocent ", i)))
	}
	busy, poison := r.begin("busy"), r.begin("poison")
	r.mortals()
	for _, run := range innocent {
		wantResponse(t, r.end(run), "hi")
	}
	p := wantProblem(t, r.end(poison), "desk", sdk.CodePoison)
	if !strings.Contains(p.ErrorMessage, "burn") {
		t.Errorf("the end of the run does not name what it did: %q", p.ErrorMessage)
	}
	// A run with many steps makes room for one that is driven alone.
	wantResponse(t, r.end(busy), "hi")
	entries, err := runner.New(runner.Options{Store: r.store}).Journal(t.Context(), busy.Key)
	r.check("read the journal", err)
	if !slices.ContainsFunc(entries, func(e core.Entry) bool { return e.Kind == "released" }) {
		t.Errorf("the busy run was never handed back: %s", kinds(entries))
	}
	var letters []broker.Letter
	r.until("its init event is dead-lettered", func() bool {
		letters = nil
		r.check("read dead letters", r.client.Letters(t.Context(), broker.LetterFilter{}, func(l broker.Letter) (bool, error) {
			letters = append(letters, l)
			return true, nil
		}))
		return len(letters) > 0
	})
	if l := letters[0]; len(letters) != 1 || l.Reason != sdk.CodePoison || !strings.Contains(l.Detail, "burn") {
		t.Errorf("dead letters %+v, want the poison run's init event, and the tool that it ran", letters)
	}
	sound(t, r.client, r.store)
}
