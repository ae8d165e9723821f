package pipeline

import (
	"context"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/core"
	"agentd/internal/finding"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// pacer is a model that asks for a sum and then says it, and tells how often each run has asked it. The replies of runs in held wait
// until they are let go.
type pacer struct {
	mu    sync.Mutex
	asked map[string]int
	held  map[string]*gate
}

func (p *pacer) Generate(ctx context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	p.mu.Lock()
	p.asked[req.Run]++
	held := p.held[req.Run]
	p.mu.Unlock()
	if held != nil {
		if err := held.pass(ctx); err != nil {
			return sdk.ModelReply{}, err
		}
	}
	if req.Interactions.Current == 0 {
		return sdktest.Ask(add(1, 2)), nil
	}
	return sdktest.Say("three"), nil
}

func (p *pacer) calls(run string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[run]
}

// agentWaits waits until the run is parked because its agent is paused.
func (r *rig) agentWaits(run harness.Run) {
	r.t.Helper()
	r.until(run.Subject+" waits for its agent", func() bool {
		h := r.head(run)
		return h.Status == core.StatusWaiting && h.Parked != nil && h.Parked.Why == core.ParkPaused && h.Parked.Until > 0
	})
}

// An agent that is paused begins no run, and those under way wait at their next step: the reply that was under way is kept, and its call
// is not made before the agent is resumed. A cancel ends one all the same. A run that begins meanwhile begins then.
func TestAgentPause_RunsWaitAndGoOn(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		underWay, asking := newGate(), newGate()
		p := &pacer{asked: map[string]int{}, held: map[string]*gate{"under way": underWay, "cancelled": asking}}
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p, openStore: open}, 0)
		r.work(0)
		suspended, first, cancelled := r.begin("suspended"), r.begin("under way"), r.begin("cancelled")
		r.until("a call is open", func() bool { return r.head(suspended).Status == core.StatusWaiting })
		r.until("two replies are under way", func() bool { return underWay.came.Load() == 1 && asking.came.Load() == 1 })
		r.check("pause", r.client.PauseAgent(t.Context(), "desk", broker.AgentPause{For: broker.Endless}))
		_, err := provision.Apply(t.Context(), r.client, worker.Plan(r.specs))
		r.check("provision", err)
		pause, err := r.client.AgentPause(t.Context(), "desk")
		r.check("look", err)
		if want := (broker.AgentPause{For: broker.Endless}); pause != want {
			t.Fatalf("after provisioning the pause is %+v, want %+v", pause, want)
		}
		late := r.begin("late")
		r.answerSums("", nil)
		r.agentWaits(suspended)
		close(underWay.open)
		close(asking.open)
		r.agentWaits(first)
		r.agentWaits(cancelled)
		r.control(cancelled, "cancel", `{"reason":"enough"}`)
		wantProblem(t, r.end(cancelled), "desk", sdk.CodeCancelled)
		for run, want := range map[string]int{"suspended": 1, "under way": 1, "cancelled": 1, "late": 0} {
			if n := p.calls(run); n != want {
				t.Errorf("run %q has asked its model %d times while the agent was paused, want %d", run, n, want)
			}
		}
		if h := r.head(late); h.Run != "" {
			t.Errorf("a run began while its agent was paused: %+v", h)
		}
		if f := r.examine(desk())["agent_paused"]; f.Severity != finding.SeverityWarning {
			t.Errorf("doctor finds %+v", f)
		}
		r.marks(wire.KeyAgentPaused, 2) // not that of the one that was cancelled
		r.resume("desk", 2)
		for _, run := range []harness.Run{suspended, first, late} {
			wantResponse(t, r.end(run), "three")
			if n := p.calls(run.Subject); n != 2 {
				t.Errorf("run %q has asked its model %d times, want 2", run.Subject, n)
			}
		}
		if f, found := r.examine(desk())["agent_paused"]; found {
			t.Errorf("doctor finds %+v", f)
		}
		sound(t, r.client, r.store)
	})
}

// resume resumes an agent, and expects so many runs to wait for that.
func (r *rig) resume(agent string, want int) {
	r.t.Helper()
	n, err := r.client.ResumeAgent(r.t.Context(), agent)
	r.check("resume", err)
	if n != want {
		r.t.Errorf("%d runs were woken, want %d", n, want)
	}
}

// With drain, runs that have begun go on to their end, and only new ones wait.
func TestAgentPause_DrainLetsRunsEnd(t *testing.T) {
	t.Parallel()
	p := &pacer{asked: map[string]int{}}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p}, 0)
	r.work(0)
	begun := r.begin("begun")
	r.until("a call is open", func() bool { return r.head(begun).Status == core.StatusWaiting })
	r.check("pause", r.client.PauseAgent(t.Context(), "desk", broker.AgentPause{For: time.Hour, Drain: true}))
	pause, err := r.client.AgentPause(t.Context(), "desk")
	r.check("look", err)
	if !pause.Drain || pause.For > time.Hour || pause.For < 59*time.Minute {
		t.Errorf("the pause is %+v, want one of an hour that drains", pause)
	}
	late := r.begin("late")
	r.answerSums("", nil)
	wantResponse(t, r.end(begun), "three")
	if n := p.calls("late"); n != 0 {
		t.Errorf("a run began while its agent was paused, and asked its model %d times", n)
	}
	r.resume("desk", 0)
	wantResponse(t, r.end(late), "three")
	sound(t, r.client, r.store)
}

// A pause that ends by itself lets runs begin, and the runs that waited are woken by whoever resumes the agent after all.
func TestAgentPause_EndsByItself(t *testing.T) {
	t.Parallel()
	p := &pacer{asked: map[string]int{}}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: p}, 0)
	r.answerSums("", nil)
	since := time.Now()
	r.check("pause", r.client.PauseAgent(t.Context(), "desk", broker.AgentPause{For: 4 * time.Second}))
	r.work(0)
	wantResponse(t, r.end(r.begin("late")), "three")
	if waited := time.Since(since); waited < 3*time.Second {
		t.Errorf("a run of a paused agent ended after %s", waited)
	}
	sound(t, r.client, r.store)
}
