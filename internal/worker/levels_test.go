package worker

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"agentd/internal/broker/streams"
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

// Whether streams are full is shown as watch has seen it last: nobody is asked for it once more.
func TestLevels_ShowWhichStreamsWatchHasSeenFull(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	conn, ctx := conns[0], t.Context()
	stream, err := conn.JetStream().Stream(ctx, streams.Name(conn.Subjects(), streams.Start))
	if err != nil {
		t.Fatal(err)
	}
	bounded := stream.CachedInfo().Config
	bounded.MaxMsgs = 1
	if _, err := conn.JetStream().UpdateStream(ctx, bounded); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.JetStream().Publish(ctx, conn.Subjects().Start("desk"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	reader := sdkmetric.NewManualReader()
	shown, err := telemetry.Start(ctx, telemetry.Options{Metrics: reader})
	if err != nil {
		t.Fatal(err)
	}
	levels, err := shown.Levels()
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{Options: Options{Conn: conn, Logger: slog.New(slog.DiscardHandler)}}
	full := func() map[string]float64 {
		w.showRooms(levels)
		var all metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &all); err != nil {
			t.Fatal(err)
		}
		seen := map[string]float64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name != "agentd.stream.full" {
					continue
				}
				for _, p := range m.Data.(metricdata.Gauge[float64]).DataPoints {
					name, _ := p.Attributes.Value("messaging.destination.name")
					seen[name.AsString()] = p.Value
				}
			}
		}
		return seen
	}
	if got := full(); len(got) > 0 {
		t.Errorf("before anybody has looked %v are shown", got)
	}
	w.tellRooms(ctx)
	if err := conn.Close(); err != nil { // who asks now gets no answer
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"AGENTD_START": 1, "AGENTD_IN": 0}, full()); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}
