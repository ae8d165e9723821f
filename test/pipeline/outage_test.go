package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
)

// twoSteps is a model that asks for a sum and then says it. Runs whose name begins with a gate's wait there.
func twoSteps(gates map[string]*gate) sdktest.ModelFunc {
	return func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		for prefix, g := range gates {
			if strings.HasPrefix(req.Run, prefix) {
				if err := g.pass(ctx); err != nil {
					return sdk.ModelReply{}, err
				}
			}
		}
		if req.Interactions.Current == 0 {
			return sdktest.Ask(add(1, 2)), nil
		}
		return sdktest.Say("three"), nil
	}
}

// answerSums serves calc.add until the test ends. Calls of runs whose name begins with slow wait at the gate.
func (r *rig) answerSums(slow string, g *gate) {
	r.t.Helper()
	r.answer(func(ctx context.Context, call service.Call) error {
		if g != nil && strings.HasPrefix(call.Event.Subject, slow) {
			return g.pass(ctx)
		}
		return nil
	})
}

// answer serves calc.add until the test ends: with a sum, unless handle fails.
func (r *rig) answer(handle func(context.Context, service.Call) error) {
	r.t.Helper()
	calc, err := service.New(desk().Services[0].Contract)
	r.check("make service", err)
	service.Handle(calc, func(ctx context.Context, call service.Call, _ map[string]float64) (map[string]int, error) {
		return sum(3), handle(ctx, call)
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	server := service.Server{URL: r.server.URL(), Logger: r.log()}
	go func() { done <- server.Run(ctx, calc) }()
	r.t.Cleanup(func() {
		stop()
		r.check("stop service", <-done)
	})
}

// The broker is away while clients start runs, models answer, and services do. Whatever it had confirmed is there when it
// comes back, and nobody has to be started again.
func TestBroker_AwayAndBack(t *testing.T) {
	t.Parallel()
	thinking, working := newGate(), newGate()
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: twoSteps(map[string]*gate{"thinks": thinking})}, 2*time.Second)
	r.answerSums("serves", working)
	workers := []*rigWorker{r.work(0), r.work(0)}
	const each = 5
	var runs []harness.Run
	for i := range each {
		runs = append(runs, r.begin(fmt.Sprint("thinks ", i)), r.begin(fmt.Sprint("serves ", i)))
	}
	r.until("all models and services are at work", func() bool {
		return thinking.came.Load() >= each && working.came.Load() >= each
	})

	r.down(workers[0].conn, workers[1].conn)
	close(thinking.open)
	close(working.open)
	// A client learns that its event was not taken.
	trying, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.client.Start(trying, "desk", r.init("lost")); err == nil {
		t.Error("an init event was confirmed while there was no broker")
	}
	for _, w := range workers {
		if err := w.Ready(t.Context()); err == nil {
			t.Error("a worker is ready without a broker")
		}
	}
	r.up()
	for _, w := range workers {
		r.until("the worker is ready", func() bool { return w.Ready(t.Context()) == nil })
	}
	r.until("the client is back", r.client.Connected)

	// New runs go as before, on either worker.
	for i := range each {
		runs = append(runs, r.begin(fmt.Sprint("later ", i)))
	}
	for _, run := range runs {
		wantResponse(t, r.end(run), "three")
	}
	r.halt(workers[0])
	last := r.begin("last")
	wantResponse(t, r.end(last), "three")
	if counts := sound(t, r.client, r.store); counts.Runs < len(runs)+1 {
		t.Errorf("%d runs are left of %d", counts.Runs, len(runs)+1)
	}
}

// While Redis is away no message is settled: what it would have led to is nowhere yet. When it is back, all runs finish.
func TestRedis_AwayAndBack(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	open := func(*broker.Conn) runner.Store {
		store := redisstore.New(redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1}), redisstore.Options{})
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return store
	}
	thinking := newGate()
	r := startRig(t, rig{
		specs: []sdk.AgentSpec{desk()}, model: twoSteps(map[string]*gate{"thinks": thinking}), openStore: open,
	}, 0)
	r.work(0)
	const each = 5
	var runs []harness.Run
	for i := range each {
		runs = append(runs, r.begin(fmt.Sprint("thinks ", i)), r.begin(fmt.Sprint("waits ", i)))
	}
	r.until("all models are at work", func() bool { return thinking.came.Load() >= each })
	for i := range each {
		r.until("the others wait", func() bool { return r.head(runs[2*i+1]).Status == core.StatusWaiting })
	}
	before := r.floors()

	server.Kill()
	close(thinking.open) // the models' replies cannot be written, and are kept with the messages that led to them
	for i := range each {
		runs = append(runs, r.begin(fmt.Sprint("later ", i)))
	}
	r.answerSums("", nil) // the others are answered now
	r.until("everything has been tried, and what led to no reply given back and tried again", func() bool {
		return r.deliveries(streams.Start) >= 3*each+each && r.deliveries(streams.In) >= each
	})
	if diff := r.floors(); diff != before {
		t.Errorf("without Redis, messages were settled: up to %v, before %v", diff, before)
	}

	server.Restart()
	for _, run := range runs {
		wantResponse(t, r.end(run), "three")
	}
	if counts := sound(t, r.client, r.store); counts.Runs != len(runs) {
		t.Errorf("%d runs are left of %d", counts.Runs, len(runs))
	}
}

// floors are up to where init events and answers are settled: of several streams, the sum.
func (r *rig) floors() [2]uint64 {
	r.t.Helper()
	var floors [2]uint64
	for i, ref := range streams.AgentConsumers("desk")[:2] {
		parts, err := r.client.Divided(r.t.Context(), ref)
		r.check("look how streams are divided", err)
		for _, part := range parts {
			floor, err := r.client.AckFloor(r.t.Context(), part)
			r.check("look at consumer", err)
			floors[i] += floor
		}
	}
	return floors
}

// deliveries is how often the agent's consumers of a zone have handed out a message.
func (r *rig) deliveries(z streams.Zone) (n uint64) {
	r.t.Helper()
	for _, info := range consumersOf(r.t, r.client, streams.ConsumerRef{Zone: z, Name: "agent_desk"}) {
		n += info.Delivered.Consumer
	}
	return n
}

// consumersOf are a consumer's on all streams of its zone.
func consumersOf(t *testing.T, conn *broker.Conn, ref streams.ConsumerRef) []*jetstream.ConsumerInfo {
	t.Helper()
	parts, err := conn.Divided(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	var infos []*jetstream.ConsumerInfo
	for _, part := range parts {
		consumer, err := conn.JetStream().Consumer(t.Context(), streams.Name(conn.Subjects(), part.Zone), part.Name)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, consumer.CachedInfo())
	}
	return infos
}

// A worker that is told to stop ends no run: not those that wait, not those at a tool, and not those at a model that does
// not answer within the grace period.
func TestShutdown_CancelsNoRun(t *testing.T) {
	t.Parallel()
	thinking, tooling := newGate(), newGate()
	spec := desk()
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if strings.HasPrefix(req.Run, "tool") && req.Interactions.Current == 0 {
				return sdktest.Ask(sdktest.Tool("look", struct{}{})), nil
			}
			if strings.HasPrefix(req.Run, "tool") {
				return sdktest.Say("three"), nil
			}
			return twoSteps(map[string]*gate{"thinks": thinking})(ctx, req)
		},
	)}, 2*time.Second)
	r.agents[0].Tools = []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "look", Parameters: json.RawMessage(`{"type":"object"}`)},
		Run: func(ctx context.Context, _ sdk.ToolCall) (json.RawMessage, error) {
			return json.RawMessage(`{}`), tooling.pass(ctx)
		},
	}}
	w := r.work(50 * time.Millisecond)
	var runs []harness.Run
	const each = 3
	for i := range each {
		runs = append(runs, r.begin(fmt.Sprint("thinks ", i)), r.begin(fmt.Sprint("tool ", i)), r.begin(fmt.Sprint("waits ", i)))
	}
	r.until("all are where they should be", func() bool {
		waiting := 0
		for i := range each {
			if r.head(runs[3*i+2]).Status == core.StatusWaiting {
				waiting++
			}
		}
		return thinking.came.Load() >= each && tooling.came.Load() >= each && waiting == each
	})
	r.halt(w)
	for _, run := range runs {
		if h := r.head(run); h.Status == core.StatusDone || h.Cancel != nil {
			t.Errorf("after the shutdown run %s is %s (%s)", run.Subject, h.Status, h.Reason)
		}
	}
	close(thinking.open)
	close(tooling.open)
	r.answerSums("", nil)
	r.work(0)
	for _, run := range runs {
		wantResponse(t, r.end(run), "three")
	}
	sound(t, r.client, r.store)
}
