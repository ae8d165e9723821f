package worker

import (
	"slices"
	"sync"
	"testing"

	"agentd/internal/state/memory"
	"agentd/sdk"
)

// The registry may give agents other contracts while the worker begins to reconcile: for the race detector.
func TestReconciling_WhileAgentsChange(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	w := &Worker{Options: Options{Conn: conns[0], Agents: []sdk.Agent{{Spec: sdk.AgentSpec{Name: "desk"}}}}, store: memory.New()}
	var changing sync.WaitGroup
	changing.Go(func() {
		for range 100 {
			w.setting.Lock()
			w.Agents = slices.Clone(w.Agents)
			w.setting.Unlock()
		}
	})
	for range 100 {
		if o, err := w.reconciling(); err != nil || len(o.Agents) != 1 {
			t.Fatalf("%d agents are looked after, %v", len(o.Agents), err)
		}
		if served := w.served(); !served["desk"] {
			t.Fatalf("served are %v", served)
		}
	}
	changing.Wait()
}
