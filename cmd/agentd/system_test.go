package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/llm/mockllm"
	"agentd/sdk/service"
	"agentd/test/capture"
)

// wait is how long anything may take.
const wait = time.Minute

const example = "../../examples/traveldesk"

// output collects what a command prints while it runs.
type output = capture.Output

// system is a running agentd dev with a scripted model.
type system struct {
	t            *testing.T
	config, data string
	// out and errors are what agentd dev prints.
	out, errors output
}

// startDev runs agentd dev on a configuration until the test ends, with a model that answers from script.
func startDev(t *testing.T, config, script string, flags ...string) *system {
	t.Helper()
	s := launchDev(t, config, script, flags...)
	s.until(&s.out, "\nready")
	return s
}

// launchDev is startDev that does not wait until it is ready.
func launchDev(t *testing.T, config, script string, flags ...string) *system {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	conversations, err := mockllm.LoadScript(script)
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(conversations))
	t.Cleanup(model.Close)
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", model.URL+"/v1")
	for _, name := range []string{"NATS_URL", "REDIS_URL", "AGENTD_DATA", "AGENTD_STORE"} {
		t.Setenv(name, "")
	}
	s := &system{t: t, config: config, data: t.TempDir()}
	s.background(&s.out, &s.errors, append([]string{"dev"}, flags...)...)
	return s
}

// background runs a command until it is stopped, or the test ends.
func (s *system) background(out, errors *output, args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, s.args(args...), cli.Streams{In: strings.NewReader(""), Out: out, Err: errors})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if code := <-done; code != cli.ExitOK {
			s.t.Errorf("agentd %q exits with %d", args, code)
		}
		s.t.Log(args, out.String(), errors.String())
	})
	s.t.Cleanup(stop)
	return stop
}

// console serves a console until it is stopped, or the test ends.
func (s *system) console(flags ...string) (stop func()) {
	s.t.Helper()
	var out, errors output
	stop = s.background(&out, &errors, append([]string{"console", "--http", "127.0.0.1:0"}, flags...)...)
	s.until(&out, "\nready")
	return stop
}

func (s *system) args(args ...string) []string {
	return append(args, "--config", s.config, "--data", s.data)
}

// until waits until a command has printed text.
func (s *system) until(o *output, text string) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); !strings.Contains(o.String(), text); {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q is not printed:\n%s\n%s", text, s.out.String(), s.errors.String())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// agentd runs a command to its end.
func (s *system) agentd(args ...string) (code int, out, errors string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), wait)
	defer cancel()
	var o, e output
	code = execute(ctx, s.args(args...), cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// expect is agentd with the exit code that it must have.
func (s *system) expect(code int, args ...string) (out, errors string) {
	s.t.Helper()
	got, out, errors := s.agentd(args...)
	if got != code {
		s.t.Fatalf("agentd %q exits with %d; want %d\n%s\n%s", args, got, code, out, errors)
	}
	return out, errors
}

// serve answers the calls of the example's contracts until the test ends.
func (s *system) serve() {
	s.t.Helper()
	canned := map[string]string{
		"flights":  `{"flights": [{"id": "TP-533", "airline": "TAP", "departs": "09:40", "price_eur": 189}]}`,
		"hotels":   `{"hotels": [{"id": "casa-do-rio", "name": "Casa do Rio", "total_eur": 210}]}`,
		"weather":  `{"sky": "sunny", "celsius": 17}`,
		"bookings": `{"reference": "TRIP-TP-533-casa-do-rio", "total_eur": 399}`,
	}
	var services []*service.Service
	for name, answer := range canned {
		one, err := service.FromFile(filepath.Join(example, "contracts", name+".yaml"))
		if err != nil {
			s.t.Fatal(err)
		}
		service.Handle(one, func(context.Context, service.Call, map[string]any) (json.RawMessage, error) {
			return json.RawMessage(answer), nil
		})
		services = append(services, one)
	}
	url, err := os.ReadFile(filepath.Join(s.data, "address"))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	server := service.Server{URL: strings.TrimSpace(string(url)), Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))}
	go func() { done <- server.Run(ctx, services...) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

// write writes a file of a test's own configuration.
func write(t *testing.T, path, text string) {
	t.Helper()
	// In one step, so that a reader never sees half of it.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// contains fails for every text that is missing.
func contains(t *testing.T, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
