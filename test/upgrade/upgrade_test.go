package upgrade

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
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
)

var enabled = flag.Bool("upgrade", false, "build the older worker and let both serve; takes minutes")

const (
	runs = 200
	// patience is how long anything may take, the building of both versions aside.
	patience = 5 * time.Minute
)

func TestUpgrade(t *testing.T) {
	if !*enabled {
		t.Skip("make upgrade runs it")
	}
	older, newer := build(t)
	for _, store := range []string{"jetstream", "redis"} {
		t.Run(store, func(t *testing.T) {
			w := start(t, store)
			w.serveTurns(older, newer)
			w.finish()
			w.judge(newer)
		})
	}
}

// world is what the workers share.
type world struct {
	t           *testing.T
	environment []string
	client      *client.Client
	runs        []client.Run

	mu sync.Mutex
	// paid counts the payments by the key of their call.
	paid    map[string]int
	workers []*worker
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
	model := httptest.NewServer(mockllm.New(script))
	t.Cleanup(model.Close)
	w := &world{t: t, paid: map[string]int{}, environment: []string{
		"NATS_URL=" + server.URL(), "OPENAI_BASE_URL=" + model.URL + "/v1", "OPENAI_API_KEY=none", "AGENTD_LOG_FORMAT=json",
	}}
	if store == "redis" {
		w.environment = append(w.environment, "REDIS_URL="+redistest.Start(t))
	}
	w.client, err = client.Connect(t.Context(), client.Options{URL: server.URL(), As: "ann", Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.client.Close(); err != nil {
			t.Error(err)
		}
	})
	w.serveBills(server.URL())
	return w
}

// serveBills answers the calls until the test ends.
func (w *world) serveBills(url string) {
	find, err := service.FromFile("testdata/contracts/find.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	type bill struct {
		Euros int `json:"euros"`
	}
	service.Handle(find, func(context.Context, service.Call, map[string]any) (bill, error) { return bill{12}, nil })
	pay, err := service.FromFile("testdata/contracts/pay.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	type receipt struct {
		Receipt string `json:"receipt"`
	}
	service.Handle(pay, func(_ context.Context, c service.Call, b bill) (receipt, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paid[c.Event.Subject+" "+c.IdempotencyKey]++
		return receipt{fmt.Sprintf("R-%d", b.Euros)}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: url}.Run(ctx, find, pay) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// serveTurns starts the runs and decides what they ask, a part of them in each turn, while one version serves, or both do. What
// is asked under one version is decided under the next one.
func (w *world) serveTurns(older, newer string) {
	w.command(older, "provision")
	turns := [][]string{{older}, {newer}, {older, newer}, {older}, {newer}}
	for i, programs := range turns {
		if i == 1 {
			w.command(newer, "provision")
		}
		var serving []*worker
		for _, program := range programs {
			serving = append(serving, w.work(program))
		}
		asked := w.runs
		for range runs / len(turns) {
			w.begin()
		}
		for _, r := range asked {
			w.answerOnce(r)
		}
		for _, r := range w.runs {
			w.settled(r)
		}
		for j, worker := range serving {
			worker.stop((i+j)%2 == 0)
		}
	}
	w.work(newer)
}

// begin starts one more run.
func (w *world) begin() {
	w.t.Helper()
	run, err := w.client.Start(w.t.Context(), client.Request{
		Agent: "clerk", Input: map[string]string{"message": "Pay the bills."}, Key: fmt.Sprint("bills-", len(w.runs)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.runs = append(w.runs, run)
}

// settled waits until a run asks somebody, or has ended.
func (w *world) settled(run client.Run) {
	w.t.Helper()
	w.until(fmt.Sprintf("run %s asks or ends", run.Name), func(ctx context.Context) (bool, error) {
		s, err := w.client.Status(ctx, run)
		if err != nil || s.Status == wire.StatusDone {
			return err == nil, ignoreUnknown(err)
		}
		asked, err := w.client.Asked(ctx, run)
		return len(asked) > 0, ignoreUnknown(err)
	})
}

// answerOnce answers the first thing that a run asks now. It reports whether there was one.
func (w *world) answerOnce(run client.Run) bool {
	w.t.Helper()
	var asked []client.Call
	w.until(fmt.Sprintf("run %s is asked", run.Name), func(ctx context.Context) (ok bool, err error) {
		asked, err = w.client.Asked(ctx, run)
		return err == nil, ignoreUnknown(err)
	})
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
		for {
			w.settled(run)
			if !w.answerOnce(run) {
				break
			}
		}
	}
}

// judge holds what happened to what was promised.
func (w *world) judge(newer string) {
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
	if len(w.paid) != 2*runs {
		w.t.Errorf("%d payments for %d runs of two", len(w.paid), runs)
	}
	for call, times := range w.paid {
		if times != 1 {
			w.t.Errorf("%s was paid %d times", call, times)
		}
	}
	for _, worker := range w.workers {
		worker.stop(true)
		worker.judge()
	}
	if out := w.command(newer, "audit", "verify", "--all"); !strings.Contains(out, "nothing wrong") {
		w.t.Errorf("the audit says:\n%s", out)
	}
	if out := w.command(newer, "dlq", "list", "-o", "json"); strings.Contains(out, `"sequence"`) {
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
