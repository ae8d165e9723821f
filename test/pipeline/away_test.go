package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/harness"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// pauses are those that a worker asks for when it hands deliveries back. shortened says that they are not waited for.
type pauses struct {
	mu        sync.Mutex
	asked     []time.Duration
	shortened bool
}

func (p *pauses) around(ctx context.Context, d broker.Delivery, handle func(context.Context, broker.Delivery)) {
	handle(ctx, paused{d, p})
}

func (p *pauses) all() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Duration(nil), p.asked...)
}

type paused struct {
	broker.Delivery
	*pauses
}

func (d paused) Nak(delay time.Duration) error {
	d.mu.Lock()
	d.asked = append(d.asked, delay)
	d.mu.Unlock()
	if d.shortened {
		delay = time.Millisecond
	}
	return d.Delivery.Nak(delay)
}

// away is a model that fails with the errors in turn whenever a run whose name begins with "waits" asks it for the reply after
// a sum, and then gives it. Without errors it fails for ever.
func away(failures ...error) (model sdktest.ModelFunc, asked func() int) {
	var mu sync.Mutex
	n := 0
	return func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !strings.HasPrefix(req.Run, "waits"):
				return sdktest.Say("hi"), nil
			case req.Interactions.Current == 0:
				return sdktest.Ask(add(1, 2)), nil
			case len(failures) == 0:
				n++
				return sdk.ModelReply{}, unreachable
			case n < len(failures):
				n++
				return sdk.ModelReply{}, failures[n-1]
			}
			return sdktest.Say("three"), nil
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return n
		}
}

var unreachable = &sdk.Error{Code: sdk.CodeUnavailable, Message: "the model cannot be reached", Retryable: true}

// Whatever keeps a model from answering but the request itself, the run goes on when the model does: nothing of it is in a
// worker meanwhile, its service is not called again, and nobody is said to have died.
func TestModelAway_RunWaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	limited := &sdk.Error{Code: sdk.CodeRateLimited, Message: "slow down", Retryable: true, RetryAfter: time.Hour}
	key := sdk.Errorf(sdk.CodeConfig, "the key is wrong")
	model, asked := away(unreachable, unreachable, key, errors.New("dial: no route"), unreachable, unreachable, limited, key)
	handed := &pauses{shortened: true}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model, slots: 1, around: handed.around}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	wantResponse(t, r.end(run), "three")
	if asked() != 8 {
		t.Errorf("the model failed %d times, want 8", asked())
	}
	// Each pause doubles, up to ten minutes, and what the run's name adds to it is less than a quarter; the provider's hour is
	// the least that it may be.
	least := []time.Duration{
		30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, time.Hour, 10 * time.Minute,
	}
	pauses := handed.all()
	if len(pauses) != len(least) {
		t.Fatalf("the run was handed back with the pauses %v, want %d", pauses, len(least))
	}
	for i, p := range pauses {
		if p < least[i] || p > least[i]+min(least[i], 10*time.Minute)/4 {
			t.Errorf("pause %d is %v, want %v and up to a quarter more", i+1, p, least[i])
		}
	}
	entries, err := r.work(0).Runner().Journal(t.Context(), run.Key)
	r.check("read the journal", err)
	results := 0
	for _, e := range entries {
		results += len(e.Results)
		if d := e.Head.Driver; d != nil && d.Takeovers > 0 {
			t.Errorf("entry %d counts %d deaths", e.Rev, d.Takeovers)
		}
	}
	if results != 1 {
		t.Errorf("the journal has %d results, want 1", results)
	}
	sound(t, r.client, r.store)
}

// A run that waits for its model leaves the worker's only slot to others, and a cancel ends it at once.
func TestModelAway_CancelEndsTheRunAtOnce(t *testing.T) {
	t.Parallel()
	model, asked := away()
	handed := &pauses{}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model, slots: 1, around: handed.around}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	r.until("the run waits for its model", func() bool { return asked() == 1 && len(handed.all()) == 1 })
	wantResponse(t, r.end(r.begin("another")), "hi")
	if d := r.head(run).Driver; d == nil || d.Owner != "" {
		t.Errorf("the run is driven by %+v", d)
	}
	r.control(run, wire.ControlCancel, `{"reason":"enough"}`)
	wantProblem(t, r.end(run), "desk", sdk.CodeCancelled)
	if n := r.deliveries(broker.ZoneIn); n != 2 {
		t.Errorf("%d messages were delivered before the run ended, want the service's answer and the cancel", n)
	}
	sound(t, r.client, r.store)
}

// Messages and late answers reach a run that waits for its model, and each message has the model asked again.
func TestModelAway_AbsorbsWhatComes(t *testing.T) {
	t.Parallel()
	model, asked := away(unreachable)
	handed := &pauses{}
	spec := desk()
	spec.Services[0].TimeoutMillis = 100
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: model, around: handed.around}, 0)
	r.work(0)
	run := r.begin("waits")
	r.until("the run waits for its model", func() bool { return asked() == 1 && len(handed.all()) == 1 })
	r.answerSums("", nil) // too late: the call has timed out
	r.until("the late answer is acked", func() bool { return r.floors()[1] == 1 })
	if n := asked(); n != 1 {
		t.Errorf("a late answer had the model asked again: %d times", n)
	}
	r.control(run, wire.ControlMessage, `{"message":"still there?"}`)
	ev := r.end(run)
	wantResponse(t, ev, "three")
	var said []string
	entries, err := r.work(0).Runner().Journal(t.Context(), run.Key)
	r.check("read the journal", err)
	for _, e := range entries {
		for _, n := range e.Notes {
			said = append(said, n.Text)
		}
	}
	if diff := cmp.Diff([]string{"still there?"}, said); diff != "" {
		t.Errorf("messages into the run (-want +got):\n%s", diff)
	}
	sound(t, r.client, r.store)
}

// The deadline of a run that waits for its model ends it, however long the pause would be.
func TestModelAway_DeadlineEndsTheRun(t *testing.T) {
	t.Parallel()
	model, _ := away()
	handed := &pauses{}
	spec := desk()
	spec.Limits.DeadlineMillis = 2000
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: model, around: handed.around}, 0)
	r.answerSums("", nil)
	r.work(0)
	run := r.begin("waits")
	wantProblem(t, r.end(run), "desk", sdk.CodeDeadline)
	for _, p := range handed.all() {
		if p > 2*time.Second {
			t.Errorf("the run was handed back for %v, longer than it may take", p)
		}
	}
	sound(t, r.client, r.store)
}

// What the model refuses because of the request would be refused again: that ends the run.
func TestModelRefuses_EndsTheRun(t *testing.T) {
	t.Parallel()
	model, asked := away(sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply"))
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model}, 0)
	r.answerSums("", nil)
	r.work(0)
	p := wantProblem(t, r.end(r.begin("waits")), "desk", sdk.CodeModel)
	if asked() != 1 || p.ErrorMessage != "the content filter stopped the reply" {
		t.Errorf("after %d calls: %q", asked(), p.ErrorMessage)
	}
	sound(t, r.client, r.store)
}

// control sends a control message to a run of desk.
func (r *rig) control(run harness.Run, verb wire.ControlVerb, data string) {
	r.t.Helper()
	r.check(string(verb), r.client.Control(r.t.Context(), verb, "desk", run.Key, "", wire.Event{
		ID: string(verb) + " of " + run.Subject, Source: "com.test.operator", Type: "agentd.run." + string(verb), Subject: run.Subject, Data: []byte(data),
	}))
}
