package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/internal/llm/mockllm"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/service"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

// patience is how long anything may take, the building of the versions aside.
const patience = 5 * time.Minute

// world is what the workers share.
type world struct {
	t           *testing.T
	environment []string
	url         string
	client      *client.Client
	model       *model
	runs        []client.Run
	workers     []*worker

	mu sync.Mutex
	// called counts the calls of each service by their key.
	called map[string]map[string]int
}

func start(t *testing.T, store string) *world {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	script, err := mockllm.LoadScript("testdata/script.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, url: server.URL(), model: &model{t: t, handler: mockllm.New(script), address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Free(t)))}}
	w.model.start()
	w.environment = []string{
		"NATS_URL=" + w.url, "OPENAI_BASE_URL=http://" + w.model.address + "/v1", "OPENAI_API_KEY=none", "AGENTD_LOG_FORMAT=json",
	}
	if store == "redis" {
		w.environment = append(w.environment, "REDIS_URL="+redistest.Start(t))
	}
	w.client = w.connect(time.Minute)
	w.serveBills()
	return w
}

// connect returns a client that waits so long for what becomes of its answers.
func (w *world) connect(patience time.Duration) *client.Client {
	w.t.Helper()
	c, err := client.Connect(w.t.Context(), client.Options{URL: w.url, As: "ann", Patience: patience})
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

// model is the provider, at one address.
type model struct {
	t       *testing.T
	handler http.Handler
	address string
	server  *http.Server
}

func (m *model) start() {
	m.t.Helper()
	listener, err := net.Listen("tcp", m.address)
	if err != nil {
		m.t.Fatal(err)
	}
	m.server = &http.Server{Handler: m.handler, ReadHeaderTimeout: patience}
	server := m.server
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	m.t.Cleanup(func() {
		_ = server.Close() // it may be killed already
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			m.t.Error(err)
		}
	})
}

// kill breaks all connections, and nobody listens any more.
func (m *model) kill() {
	m.t.Helper()
	if err := m.server.Close(); err != nil {
		m.t.Error(err)
	}
}

// serveBills answers the calls until the test ends.
func (w *world) serveBills() {
	w.called = map[string]map[string]int{"find": {}, "pay": {}}
	count := func(service string, c service.Call) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.called[service][c.Event.Subject+" "+c.IdempotencyKey]++
	}
	find, err := service.FromFile("testdata/contracts/find.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	type bill struct {
		Euros int `json:"euros"`
	}
	service.Handle(find, func(_ context.Context, c service.Call, _ map[string]any) (bill, error) {
		count("find", c)
		return bill{12}, nil
	})
	pay, err := service.FromFile("testdata/contracts/pay.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	type receipt struct {
		Receipt string `json:"receipt"`
	}
	service.Handle(pay, func(_ context.Context, c service.Call, b bill) (receipt, error) {
		count("pay", c)
		return receipt{fmt.Sprintf("R-%d", b.Euros)}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: w.url}.Run(ctx, find, pay) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// begin starts so many more runs.
func (w *world) begin(n int) (begun []client.Run) {
	w.t.Helper()
	for range n {
		run, err := w.client.Start(w.t.Context(), client.Request{
			Agent: "clerk", Input: map[string]string{"message": "Pay the bills."}, Key: fmt.Sprint("bills-", len(w.runs)),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.runs = append(w.runs, run)
	}
	return w.runs[len(w.runs)-n:]
}

// settled waits until each run asks somebody, or has ended.
func (w *world) settled(runs []client.Run) {
	w.t.Helper()
	for _, run := range runs {
		w.until(fmt.Sprintf("run %s asks or ends", run.Name), func(ctx context.Context) (bool, error) {
			s, err := w.client.Status(ctx, run)
			if err != nil || s.Status == wire.StatusDone {
				return err == nil, ignoreUnknown(err)
			}
			asked, err := w.client.Asked(ctx, run)
			return len(asked) > 0, ignoreUnknown(err)
		})
	}
}

// asked is what a run asks now.
func (w *world) asked(run client.Run) (asked []client.Call) {
	w.t.Helper()
	w.until(fmt.Sprintf("run %s is asked", run.Name), func(ctx context.Context) (ok bool, err error) {
		asked, err = w.client.Asked(ctx, run)
		return err == nil, ignoreUnknown(err)
	})
	return asked
}

// answerOnce answers the first thing that a run asks now. It reports whether there was one.
func (w *world) answerOnce(run client.Run) bool {
	w.t.Helper()
	asked := w.asked(run)
	if len(asked) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var err error
	if asked[0].Type == sdk.TypePermissionRequest {
		_, err = w.client.Decide(ctx, run, asked[0].Call, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	} else {
		_, err = w.client.Answer(ctx, run, asked[0].Call, client.Reply{Text: "Yes."})
	}
	if err != nil {
		w.t.Fatalf("answer %s of run %s: %v", asked[0].Type, run.Name, err)
	}
	return true
}

// finish answers until every run has ended.
func (w *world) finish() {
	w.t.Helper()
	for _, run := range w.runs {
		for more := true; more; more = w.answerOnce(run) {
			w.settled([]client.Run{run})
		}
	}
}

// judge holds what happened to what was promised. The last worker's version reads everything.
func (w *world) judge() {
	w.t.Helper()
	for _, run := range w.runs {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		result, err := w.client.Wait(ctx, run)
		cancel()
		if err != nil || !strings.Contains(string(result.Data), "Paid.") {
			w.t.Errorf("run %s ended with %s, %v", run.Name, result.Data, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for service, perRun := range map[string]int{"find": 1, "pay": 2} {
		if got, want := len(w.called[service]), perRun*len(w.runs); got != want {
			w.t.Errorf("%d calls of %s for %d runs, want %d", got, service, len(w.runs), want)
		}
		for call, times := range w.called[service] {
			if times != 1 {
				w.t.Errorf("%s was called %d times for %s", service, times, call)
			}
		}
	}
	for _, worker := range w.workers {
		worker.stop(true)
		worker.judge()
	}
	newest := w.workers[len(w.workers)-1].program
	if out := w.command(newest, "audit", "verify", "--all"); !strings.Contains(out, "nothing wrong") {
		w.t.Errorf("the audit says:\n%s", out)
	}
	if out := w.command(newest, "dlq", "list", "-o", "json"); strings.Contains(out, `"sequence"`) {
		w.t.Errorf("dead letters:\n%s", out)
	}
}

// until asks again until ok, or time is over.
func (w *world) until(what string, ok func(context.Context) (bool, error)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		done, err := ok(ctx)
		if err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
		if done {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%s: not within %s", what, patience)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ignoreUnknown forgives that a run has not begun yet, and that no worker serves between two turns.
func ignoreUnknown(err error) error {
	if code := sdk.AsError(err).Code; code == sdk.CodeUnknownRun || code == sdk.CodeUnavailable {
		return nil
	}
	return err
}
