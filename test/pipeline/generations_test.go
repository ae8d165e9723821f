package pipeline

import (
	"context"
	"sync"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// refuser is a model that asks for a sum and then refuses, until it is mended.
type refuser struct {
	mu     sync.Mutex
	mended bool
}

func (m *refuser) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case req.Interactions.Current == 0:
		return sdktest.Ask(add(1, 2)), nil
	case m.mended:
		return sdktest.Say("three"), nil
	}
	return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply")
}

func (m *refuser) mend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mended = true
}

// A run that ended with an error goes on from there when it is retried, as often as it takes: each generation has a terminal event of its
// own, the service that has answered is not called again, and the audit finds nothing wrong.
func TestRunRetry_GoesOnFromWhereTheRunEnded(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		model := &refuser{}
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model, openStore: open}, 0)
		calls := r.countSums()
		r.work(0)
		first := r.begin("retried")
		wantProblem(t, r.end(first), "desk", sdk.CodeModel)
		wantProblem(t, r.end(r.retry(first, "again")), "desk", sdk.CodeModel)
		sound(t, r.client, r.store)
		model.mend()
		wantResponse(t, r.end(r.retry(first, "once more")), "three")
		wantProblem(t, r.end(first), "desk", sdk.CodeModel)
		if n := calls()["retried"]; n != 1 {
			t.Errorf("the service was called %d times, want once", n)
		}
		sound(t, r.client, r.store)
	})
}

// retry asks for another generation of a run of desk.
func (r *rig) retry(run harness.Run, id string) harness.Run {
	r.t.Helper()
	ev := wire.Event{ID: id, Source: "com.test.operator", Type: wire.TypeRetry, Subject: run.Subject}
	r.check("retry", r.client.Control(r.t.Context(), wire.ControlRetry, run.Agent, run.Key, "", ev))
	run.Init = wire.InitToken(ev.Source, ev.ID)
	return run
}
