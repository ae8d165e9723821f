package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/worker"
	"agentd/test/ports"
)

// says is a model that gives one reply to all.
func says(reply string) func(sdk.ModelSpec) (sdk.Provider, error) {
	return func(sdk.ModelSpec) (sdk.Provider, error) {
		return sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) { return sdktest.Say(reply), nil }), nil
	}
}

// replace gives options to whoever serves.
func replace(t *testing.T, replaced chan<- worker.Options, o worker.Options) {
	t.Helper()
	select {
	case replaced <- o:
	case <-time.After(patience):
		t.Fatal("nobody takes other options")
	}
}

// because is why options are not served.
func because(t *testing.T, kept <-chan error) error {
	t.Helper()
	select {
	case err := <-kept:
		return err
	case <-time.After(patience):
		t.Fatal("nobody says what becomes of options")
		return nil
	}
}

// successor are options that say how they fare.
func successor(t *testing.T, o worker.Options) (_ worker.Options, serving <-chan struct{}, kept <-chan error) {
	began, refused := make(chan struct{}), make(chan error, 1)
	o.Serving, o.Kept = func() { close(began) }, func(err error) { refused <- err }
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	return o, began, refused
}

// Other options take the place of those that are served: a run ends its step where it is, and others begin where they are served now.
func TestRun_OptionsAreReplaced(t *testing.T) {
	s := startServer(t, ports.Free(t))
	health := fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	asked, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	slow := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		if calls.Add(1) == 1 {
			close(asked)
		}
		<-release
		return sdktest.Say("Hello!"), nil
	})
	replaced := make(chan worker.Options)
	serving, stop := start(t, worker.Options{
		URL: s.URL(), Provision: true, HTTP: health, Grace: patience, Replaced: replaced,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return slow, nil },
	})
	await(t, "serving", serving)
	first := make(chan string, 1)
	go func() { first <- string(greetAs(t, s.URL(), "first").Data) }()
	await(t, "the model call", asked)

	for _, reply := range []string{"Good day!", "Good night!"} {
		o, took, _ := successor(t, worker.Options{URL: s.URL(), Provision: true, Agents: []sdk.Agent{greeter()}, Models: says(reply)})
		replace(t, replaced, o)
		await(t, "taking over", took)
		until(t, "http://"+health+"/readyz", http.StatusOK)
		if reply == "Good day!" {
			continue
		}
		if data := string(greetAs(t, s.URL(), reply).Data); data != `{"response":"`+reply+`"}` {
			t.Errorf("a run that begins later ends with %s", data)
		}
	}
	close(release)
	if data := <-first; data != `{"response":"Hello!"}` || calls.Load() != 1 {
		t.Errorf("the run that was under way ends with %s, after %d calls of the model", data, calls.Load())
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Options that cannot be served change nothing, and say why.
func TestRun_OptionsThatCannotBeServedAreNotUsed(t *testing.T) {
	s := startServer(t, ports.Free(t))
	replaced := make(chan worker.Options)
	serving, stop := start(t, worker.Options{URL: s.URL(), Provision: true, Replaced: replaced})
	await(t, "serving", serving)
	unknown := greeter()
	unknown.Spec.Name, unknown.Spec.Contract.Type = "nobody", "nobody"
	for name, o := range map[string]worker.Options{
		"no agents":               {URL: s.URL()},
		"agents without consumer": {URL: s.URL(), Agents: []sdk.Agent{unknown}, Models: scripted},
	} {
		o, _, kept := successor(t, o)
		replace(t, replaced, o)
		if err := because(t, kept); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("%s: %v", name, err)
		}
	}

	waits, _, given := successor(t, worker.Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", ports.Free(t)), Agents: []sdk.Agent{greeter()}, Models: scripted})
	replace(t, replaced, waits) // for a server that is away
	o, took, _ := successor(t, worker.Options{URL: s.URL(), Agents: []sdk.Agent{greeter()}, Models: says("Good day!")})
	replace(t, replaced, o)
	await(t, "taking over", took)
	if err := because(t, given); !errors.Is(err, worker.ErrReplaced) {
		t.Errorf("options that others replace before they are served: %v", err)
	}
	if data := string(greet(t, s.URL()).Data); data != `{"response":"Good day!"}` {
		t.Errorf("a run ends with %s", data)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// deaf is a toolset that does not say which tools it has before it is let go.
type deaf struct {
	once           sync.Once
	asked, release chan struct{}
}

func (d *deaf) Name() string { return "deaf" }

func (d *deaf) Tools(context.Context) ([]sdk.Tool, error) {
	d.once.Do(func() { close(d.asked) })
	<-d.release
	return nil, nil
}

func (d *deaf) Close() error { return nil }

// A worker that starts for longer than it is wanted never says that it serves: who took its place does, and the process is ready.
func TestRun_WhoWasReplacedDoesNotServe(t *testing.T) {
	s := startServer(t, ports.Free(t))
	health := fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	replaced := make(chan worker.Options)
	serving, stop := start(t, worker.Options{URL: s.URL(), Provision: true, HTTP: health, Replaced: replaced})
	await(t, "serving", serving)
	set := &deaf{asked: make(chan struct{}), release: make(chan struct{})}
	slow := greeter()
	slow.Toolsets = []sdk.Toolset{set}
	late, lateServes, lateKept := successor(t, worker.Options{URL: s.URL(), Agents: []sdk.Agent{slow}, Models: says("Good day!")})
	replace(t, replaced, late)
	await(t, "listing tools", set.asked)

	wrong, _, kept := successor(t, worker.Options{URL: s.URL()})
	replace(t, replaced, wrong) // changes nothing for who starts
	if err := because(t, kept); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("no agents: %v", err)
	}
	theirs, _, kept := successor(t, worker.Options{URL: s.URL(), Agents: []sdk.Agent{slow}, Models: says("Good day!")})
	replace(t, replaced, theirs)
	if err := because(t, kept); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("a toolset of others: %v", err)
	}
	o, took, _ := successor(t, worker.Options{URL: s.URL(), Agents: []sdk.Agent{greeter()}, Models: says("Good night!")})
	replace(t, replaced, o)
	await(t, "taking over", took)
	close(set.release)
	if err := because(t, lateKept); !errors.Is(err, worker.ErrReplaced) {
		t.Errorf("options that others replace before they are served: %v", err)
	}
	select {
	case <-lateServes:
		t.Error("a worker serves that was not wanted any more")
	default:
	}
	until(t, "http://"+health+"/readyz", http.StatusOK)
	if data := string(greet(t, s.URL()).Data); data != `{"response":"Good night!"}` {
		t.Errorf("a run ends with %s", data)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
