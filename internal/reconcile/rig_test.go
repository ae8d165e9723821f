package reconcile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/test/killed"

	"agentd/sdk/wire"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
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
	mode broker.PersistMode
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
	_, err := r.conn.Provision(r.context(), plan)
	r.check("provision", err)
}

// setBack are the zones whose streams may be set back.
func (r *rig) setBack() []broker.Zone {
	l, err := broker.NewLayout(max(1, cmp.Or(r.partitions, harness.Partitions())))
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

// begun is a run that was started.
type begun struct {
	agent, subject, init string
	key                  wire.RunKey
}

// begin starts a run of desk with a plan.
func (r *rig) begin(steps string) begun {
	r.t.Helper()
	r.runs++
	ev := wire.Event{
		ID: fmt.Sprint("init-", r.runs), Source: "com.test.client", Type: "desk", Subject: fmt.Sprint("run ", r.runs),
		Time: time.UnixMilli(1_790_000_000_000), Data: json.RawMessage(fmt.Sprintf(`{"message":%q}`, steps)),
	}
	r.check("start a run", r.conn.Start(r.context(), "desk", ev))
	return begun{"desk", ev.Subject, wire.InitToken(ev.Source, ev.ID), wire.NewRunKey(ev.Subject)}
}

// child is the run that a run's open call started.
func (r *rig) child(b begun) begun {
	r.t.Helper()
	call := r.head(b).Calls[0].ID
	subject := b.subject + "/" + call
	return begun{"clerk", subject, wire.InitToken("", call), wire.NewRunKey(subject)}
}

// await polls until holds.
func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within %s", what, patience)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// head is the run's head; the zero Head if it has no journal.
func (r *rig) head(b begun) core.Head {
	r.t.Helper()
	rec, err := r.store.Head(r.context(), b.key)
	if err != nil {
		return core.Head{}
	}
	e, err := core.DecodeEntry(rec.Data)
	r.check("decode", err)
	return e.Head
}

// waiting waits until a run waits in that step.
func (r *rig) waiting(b begun, step int) {
	r.t.Helper()
	r.await(fmt.Sprintf("%s waits in step %d", b.subject, step), func() bool {
		h := r.head(b)
		return h.Status == core.StatusWaiting && h.Round == step
	})
}

// call is where the run's open call is.
func (r *rig) call(b begun) wire.CallAddress {
	r.t.Helper()
	h := r.head(b)
	if len(h.Calls) != 1 {
		r.t.Fatalf("%s has %d open calls, want 1", b.subject, len(h.Calls))
	}
	return wire.CallAddress{
		Domain: wire.LocalDomain, Type: wire.NameToken(h.Calls[0].Type), Agent: b.agent, Run: b.key, Call: h.Calls[0].ID,
	}
}

// answer answers a call of the calculator.
func (r *rig) answer(at wire.CallAddress) {
	r.t.Helper()
	r.check("answer", r.conn.Publish(r.context(), r.conn.Subjects().Reply(at), wire.Event{
		ID: "answer-" + at.Call, Source: "calc.add", Type: "calc.added", Subject: "any", ParentID: at.Call,
		Time: time.UnixMilli(1_790_000_000_000), Data: json.RawMessage(`{"sum":1}`),
		DataSchema: sdk.SchemaRef("#/calc.add", version),
	}))
}

// done waits for the terminal event of a client's run, and returns the code of its error: "" if it is none.
func (r *rig) done(b begun) sdk.Code {
	r.t.Helper()
	return r.doneWithin(b, patience)
}

func (r *rig) doneWithin(b begun, d time.Duration) sdk.Code {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), d)
	defer cancel()
	ev, err := r.conn.WaitDone(ctx, b.agent, b.key, b.init)
	r.check("wait for the end of "+b.subject, err)
	var problem struct {
		Code sdk.Code `json:"code"`
	}
	r.check("decode terminal event", json.Unmarshal(ev.Data, &problem))
	return problem.Code
}

// settled waits until workers have acked all that is on the broker.
func (r *rig) settled() {
	r.t.Helper()
	r.await("all messages are acked", func() bool {
		for _, a := range r.agents {
			for _, ref := range r.consumers(a.Spec.Name) {
				consumer, err := r.conn.JetStream().Consumer(r.context(), broker.StreamName(r.conn.Subjects(), ref.Zone), ref.Name)
				r.check("look at consumer", err)
				if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
					return false
				}
			}
		}
		return true
	})
}

// consumers are those of an agent, in the order of broker.AgentConsumers.
func (r *rig) consumers(agent string) []broker.ConsumerRef {
	r.t.Helper()
	refs, err := r.conn.Divided(r.context(), broker.AgentConsumers(agent)...)
	r.check("look how streams are divided", err)
	return refs
}

// stream is the one that has a subject.
func (r *rig) stream(subject string) jetstream.Stream {
	r.t.Helper()
	layout, err := r.conn.Layout(r.context())
	r.check("look how streams are divided", err)
	stream, err := r.conn.JetStream().Stream(r.context(), broker.StreamName(r.conn.Subjects(), layout.ZoneOf(subject)))
	r.check("open stream", err)
	return stream
}

// messages are the subjects of a kind with how many messages each has.
func (r *rig) messages(z broker.Zone, kind wire.Kind) map[string]int {
	r.t.Helper()
	count := map[string]int{}
	r.check("scan", r.conn.Deliveries(r.context(), z, []string{r.conn.Subjects().All(kind)}, func(d broker.Delivery) bool {
		count[d.Subject()]++
		return true
	}))
	return count
}

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

// length is how many entries the run has.
func (r *rig) length(b begun) int {
	r.t.Helper()
	entries, err := r.store.Entries(r.context(), b.key, runner.Version{})
	r.check("read journal", err)
	return len(entries)
}

// rollBack removes all but the first entries of a run from the store, as a failover to an older state does.
func (r *rig) rollBack(b begun, keep int) {
	r.t.Helper()
	entries, err := r.store.Entries(r.context(), b.key, runner.Version{})
	r.check("read journal", err)
	if r.redis == nil {
		stream := r.stream(r.conn.Subjects().Journal(b.key))
		for _, e := range entries[keep:] {
			r.check("delete entry", stream.DeleteMsg(r.context(), e.Position))
		}
		return
	}
	c := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	partition := fmt.Sprintf("agentd:{p%s}:", b.key.Partition)
	last := entries[keep-1]
	r.check("cut the list", c.LTrim(r.context(), partition+"l:"+b.key.Token, 0, int64(keep-1)).Err())
	r.check("set the head back", c.HSet(r.context(), partition+"h:"+b.key.Token, "rev", last.Rev, "etag", last.Etag).Err())
	r.check("close", c.Close())
}

// delete removes the last message on a subject.
func (r *rig) delete(subject string) {
	r.t.Helper()
	stream := r.stream(subject)
	m, err := stream.GetLastMsgForSubject(r.context(), subject)
	r.check("read "+subject, err)
	r.check("delete "+subject, stream.DeleteMsg(r.context(), m.Sequence))
}

// streams are the sequences of the last messages that all streams have, without those by which workers see that they can write.
func (r *rig) streams() map[broker.Zone]uint64 {
	r.t.Helper()
	last := map[broker.Zone]uint64{}
	var zones []broker.Zone
	for _, whole := range []broker.Zone{
		broker.ZoneStart, broker.ZoneIn, broker.ZoneOut, broker.ZoneDone, broker.ZoneTimer, broker.ZoneRun, broker.ZoneDLQ,
	} {
		parts, err := r.conn.Zones(r.context(), whole)
		r.check("look how streams are divided", err)
		zones = append(zones, parts...)
	}
	for _, z := range zones {
		stream, err := r.conn.JetStream().Stream(r.context(), broker.StreamName(r.conn.Subjects(), z))
		r.check("look at stream", err)
		for last[z] = stream.CachedInfo().State.LastSeq; last[z] > 0; last[z]-- {
			m, err := stream.GetMsg(r.context(), last[z])
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			r.check("read stream", err)
			if !strings.Contains(m.Subject, "."+broker.LeaseToken+".") && string(m.Data) != "probe" {
				break
			}
		}
	}
	return last
}

// forget makes a consumer anew, on all streams of its zone, which takes all that there is for read.
func (r *rig) forget(ref broker.ConsumerRef) {
	r.t.Helper()
	r.anew(ref, func(cfg *jetstream.ConsumerConfig, last uint64) {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last+1
	})
}

// rewind makes a consumer anew, on all streams of its zone, which reads everything again.
func (r *rig) rewind(ref broker.ConsumerRef) {
	r.t.Helper()
	r.anew(ref, func(*jetstream.ConsumerConfig, uint64) {})
}

func (r *rig) anew(ref broker.ConsumerRef, change func(cfg *jetstream.ConsumerConfig, last uint64)) {
	r.t.Helper()
	for _, part := range r.divided(ref) {
		stream, err := r.conn.JetStream().Stream(r.context(), broker.StreamName(r.conn.Subjects(), part.Zone))
		r.check("open stream", err)
		consumer, err := stream.Consumer(r.context(), part.Name)
		r.check("open consumer", err)
		cfg := consumer.CachedInfo().Config
		r.check("delete consumer", stream.DeleteConsumer(r.context(), part.Name))
		change(&cfg, stream.CachedInfo().State.LastSeq)
		_, err = stream.CreateConsumer(r.context(), cfg)
		r.check("create consumer", err)
	}
}

// divided are a consumer's on all streams of its zone.
func (r *rig) divided(refs ...broker.ConsumerRef) []broker.ConsumerRef {
	r.t.Helper()
	parts, err := r.conn.Divided(r.context(), refs...)
	r.check("look how streams are divided", err)
	return parts
}
