package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/killed"
	"agentd/test/setback"
)

func TestMain(m *testing.M) {
	killed.Main()
	goleak.VerifyTestMain(m)
}

// patience is how long anything may take.
const patience = time.Minute

const version = "1.0.0"

func contract(contractType, accepts, emits, schema string) sdk.Contract {
	return sdk.Contract{URI: "#/" + contractType, Type: contractType, Versions: map[string]sdk.ContractVersion{version: {
		Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
	}}}
}

func chat(name string, tools ...sdk.Contract) sdk.AgentSpec {
	s := sdk.AgentSpec{
		Name: name, Version: version, Model: sdk.ModelSpec{Provider: "test", Name: name},
		Contract: contract(name, `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
			name+".done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
	}
	for _, c := range tools {
		// Longer than any test's clock is put forward: nothing times out.
		s.Services = append(s.Services, sdk.ServiceTool{Version: version, TimeoutMillis: (20 * 24 * time.Hour).Milliseconds(), Contract: c})
	}
	return s
}

// desk asks a calculator, or another agent.
func desk() (parent, child sdk.AgentSpec) {
	calculator := contract("calc.add", `{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}`,
		"calc.added", `{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`)
	child = chat("clerk", calculator)
	return chat("desk", calculator, child.Contract), child
}

// plan is what the model does: its first message is a list of steps, one a turn: "add", "clerk:<steps>", "both:<steps>", or "say".
func plan(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
	steps := strings.Split(req.Messages[0].PlainText(), " ")
	turn := req.Interactions.Current
	if turn >= len(steps) {
		return sdktest.Say("done"), nil
	}
	step, rest, _ := strings.Cut(steps[turn], ":")
	switch step {
	case "add":
		return sdktest.Ask(sdktest.Tool("calc_add", map[string]int{"a": turn})), nil
	case "both":
		return sdktest.Ask(sdktest.Tool("calc_add", map[string]int{"a": turn}), sdktest.Tool("clerk", map[string]string{"message": rest})), nil
	case "clerk":
		return sdktest.Ask(sdktest.Tool("clerk", map[string]string{"message": rest})), nil
	}
	return sdktest.Say(step), nil
}

// rig is a broker, a store and a worker whose clocks can be put forward.
type rig struct {
	t     *testing.T
	conn  *broker.Conn
	store state.Store
	redis *redistest.Server
	// cold has the broker provisioned with a stream for archives.
	cold   bool
	agents []sdk.Agent
	model  sdk.Provider
	log    *slog.Logger
	// partitions is how many there are; 0 is harness.Partitions().
	partitions int
	// ahead is how much the clock of workers and passes is ahead.
	ahead atomic.Int64
	// mode is how the server keeps calls, terminal events and timers.
	mode streams.PersistMode
	// interval is that of the worker's own passes; 0 makes none.
	interval time.Duration

	worker *worker.Worker
	stop   func()
	runs   int
}

// onRedis opens the store in a redis-server instead of in JetStream.
func onRedis(r *rig) {
	r.redis = redistest.StartServer(r.t)
	store, _, err := redisstore.Open(r.t.Context(), r.redis.URL(), redisstore.Options{})
	r.check("open redis", err)
	r.t.Cleanup(func() { r.check("close redis", store.Close()) })
	r.store = store
}

// restarting has lost runs restarted.
func restarting(r *rig) {
	for i := range r.agents {
		r.agents[i].Spec.OnStateLoss = sdk.StateLossRestart
	}
}

func start(t *testing.T, options ...func(*rig)) *rig {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("start server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("stop server: %v", err)
		}
	})
	return startOn(t, broker.ConnectOptions{InProcess: server}, options...)
}

// startOn is start on a server that is there.
func startOn(t *testing.T, at broker.ConnectOptions, options ...func(*rig)) *rig {
	t.Helper()
	parent, child := desk()
	r := &rig{
		t: t, agents: []sdk.Agent{{Spec: parent}, {Spec: child}}, model: sdktest.ModelFunc(plan),
		log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	at.Name, at.Subjects, at.Logger = t.Name(), wire.DefaultSubjects(), r.log
	var err error
	r.conn, err = broker.Connect(r.context(), at)
	r.check("connect", err)
	t.Cleanup(func() { r.check("close connection", r.conn.Close()) })
	for _, o := range options {
		o(r)
	}
	r.provision()
	if r.store == nil {
		r.store, err = worker.JournalStore(r.context(), r.conn)
		r.check("open store", err)
	}
	r.storeLost() // there was none before
	r.work()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) provision() {
	r.t.Helper()
	var specs []sdk.AgentSpec
	for _, a := range r.agents {
		specs = append(specs, a.Spec)
	}
	plan := worker.Plan(specs)
	plan.Cold = r.cold
	plan.PersistMode, plan.Partitions = r.mode, cmp.Or(r.partitions, harness.Partitions())
	_, err := provision.Apply(r.context(), r.conn, plan)
	r.check("provision", err)
}

// setBack are the zones whose streams may be set back.
func (r *rig) setBack() []streams.Zone {
	l, err := streams.NewLayout(max(1, cmp.Or(r.partitions, harness.Partitions())))
	r.check("look how streams are divided", err)
	return setback.Zones(l)
}

func (r *rig) check(doing string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", doing, err)
	}
}

func (r *rig) context() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// work starts a worker, which stop ends.
func (r *rig) work() {
	r.t.Helper()
	r.worker = r.newWorker()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.worker.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		r.check("worker", <-done)
	})
}

// storeLost has runs kept in the rig's store from now on, as agentd reconcile --store-lost does.
func (r *rig) storeLost() {
	r.t.Helper()
	r.check("have runs kept in the store", worker.MoveTo(r.context(), r.conn, r.store))
}

func (r *rig) newWorker() *worker.Worker {
	r.t.Helper()
	w, err := worker.New(worker.Options{
		Conn: r.conn, Store: r.store, Agents: r.agents, Grace: 100 * time.Millisecond, Logger: r.log,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return r.model, nil }, Env: clock{r},
		Reconcile: worker.Reconcile{Interval: r.interval},
	})
	r.check("new worker", err)
	return w
}

// clock is runner.Env on the rig's clock.
type clock struct{ r *rig }

func (c clock) Now() int64 { return c.r.now().UnixMilli() }

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }

func (c clock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func (clock) Parallel(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

var randoms atomic.Int64

func (clock) Beat(f func(), d time.Duration, beat func() bool) {
	defer broker.Beat(d, beat)()
	f()
}

func (clock) Random() string { return fmt.Sprintf("random-%020d", randoms.Add(1)) }

// later puts the clocks forward.
func (r *rig) later(d time.Duration) { r.ahead.Add(int64(d)) }

// options are those of a pass in an hour from now.
func (r *rig) options() reconcile.Options {
	r.t.Helper()
	o, err := r.newWorker().Reconciling(r.context()) // a process of its own, as it were
	r.check("options", err)
	o.Now = func() time.Time { return r.now().Add(time.Hour) }
	o.History = sdk.DefaultHistory
	return o
}

// pass makes a pass, and returns its report with the findings.
func (r *rig) pass(change ...func(*reconcile.Options)) (reconcile.Report, []reconcile.Finding) {
	r.t.Helper()
	o := r.options()
	var all []reconcile.Finding
	o.Found = func(f reconcile.Finding) {
		r.t.Logf("found: %+v", f)
		all = append(all, f)
	}
	for _, c := range change {
		c(&o)
	}
	report, err := reconcile.Run(r.context(), o)
	r.check("reconcile", err)
	return report, all
}

// nothing makes a pass that must find nothing.
func (r *rig) nothing() {
	r.t.Helper()
	if report, all := r.pass(); len(all) > 0 || report.Purged+report.Removed > 0 {
		r.t.Errorf("something was found: %+v, %+v", report, all)
	}
}

// kinds counts findings.
func kinds(all []reconcile.Finding) map[reconcile.Kind]int {
	count := map[reconcile.Kind]int{}
	for _, f := range all {
		count[f.Kind]++
	}
	return count
}
