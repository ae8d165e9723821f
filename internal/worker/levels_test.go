package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/telemetry"
	"agentd/sdk/wire"
)

// Parked runs are counted by what they wait for, with how long the first of them has; a pause counts where nothing else keeps the run.
func TestCensus_CountsWhatRunsWaitFor(t *testing.T) {
	t.Parallel()
	const now = 1_790_000_100_000
	model := func(since int64) *core.Parking {
		return &core.Parking{Why: core.ParkModel, Key: "test.gpt", Since: since, Until: now + 1000, Tries: 1}
	}
	c := newCensus(now)
	for i, h := range []core.Head{
		{Status: core.StatusWaiting, Parked: model(now - 90_000)},
		{Status: core.StatusWaiting, Parked: model(now - 30_000)},
		{Status: core.StatusWaiting, Parked: model(now - 10_000), Paused: &core.Pause{At: now - 80_000}},
		{Status: core.StatusWaiting, Paused: &core.Pause{At: now - 5000}},
		{Status: core.StatusDone, Reason: core.ReasonCancelled},
	} {
		h.V, h.Run, h.Agent = 3, "run", "desk"
		if h.Status == core.StatusWaiting {
			h.Timer = now + 1000
		}
		e := core.Entry{V: 3, Rev: uint64(i) + 1, Etag: "e", At: now - 2000, Change: core.Change{Kind: core.KindParked, Head: h}}
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		c.add(runner.StoredRun{Run: wire.NewRunKey("run"), Last: runner.Record{Data: data}})
	}
	want := census{
		now,
		map[[2]string]telemetry.Runs{{"desk", "waiting"}: {Agent: "desk", Status: "waiting", Count: 4, Oldest: 2}},
		map[[2]string]telemetry.Parked{
			{"desk", "model"}:  {Agent: "desk", Why: "model", Count: 3, Oldest: 90},
			{"desk", "paused"}: {Agent: "desk", Why: "paused", Count: 1, Oldest: 5},
		},
	}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(census{})); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
