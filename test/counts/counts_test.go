package counts

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/packed"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/state/sealed"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

const (
	version = "1.0.0"
	// turns is how many calls of a service a run makes before its final text, and timeout the time that each has: the timers of
	// runs that have ended fire within the test.
	turns   = 3
	timeout = 2 * time.Second
	// patience is how long anything may take.
	patience = time.Minute
)

func adder() sdk.AgentSpec {
	contract := func(of, accepts, emits, schema string) sdk.Contract {
		return sdk.Contract{URI: "#/" + of, Type: of, Versions: map[string]sdk.ContractVersion{version: {
			Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
		}}}
	}
	return sdk.AgentSpec{
		Name: "adder", Version: version, Model: sdk.ModelSpec{Provider: "test", Name: "test", ContextWindow: 500_000},
		Contract: contract("adder", `{"type":"object"}`, "adder.done",
			`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{
			Version: version, TimeoutMillis: timeout.Milliseconds(),
			Contract: contract("calc.add", `{"type":"object"}`, "calc.added",
				`{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`),
		}},
	}
}

// text is of the size that a turn of a conversation adds.
func text(words int) string { return strings.Repeat("and so it goes on ", words) }

// talk is what a run says: in each turn the model a text, and a call with an argument and a result of such texts.
type talk struct {
	turns                  int
	said, argument, result func() string
	// plain has the journal stored as it is, with each change by itself, as where models take their time.
	plain bool
}

// usual is the talk of the runs whose costs are counted.
var usual = talk{turns, func() string { return text(10) }, func() string { return text(20) }, func() string { return text(20) }, false}

func (a talk) model(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
	n := req.Interactions.Current
	if n == a.turns {
		return sdktest.Say("it is enough"), nil
	}
	reply := sdktest.Ask(sdktest.Tool("calc_add", map[string]any{"a": n, "b": 1, "why": a.argument()}))
	reply.Text = a.said()
	return reply, nil
}

// system is a worker, a service and a client, each with a connection of its own, on real servers.
type system struct {
	t *testing.T
	talk
	// worker, service and client count what each publishes; redis what commands the worker sends.
	worker, service, client *tap
	commands                *commands
	// conn is the client's connection, and control that of the test, which nobody counts.
	conn, control *broker.Conn
	// store keeps what the worker packs.
	store  runner.Store
	packed runner.Store
	serves *worker.Worker
}

// openStore opens the worker's store.
type openStore func(t *testing.T, conn *broker.Conn, counted *commands) runner.Store

func jetStream(_ *testing.T, conn *broker.Conn, _ *commands) runner.Store {
	return natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())
}

func redisServer(t *testing.T, _ *broker.Conn, counted *commands) runner.Store {
	t.Helper()
	options, err := redis.ParseURL(redistest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	store := redisstore.New(redis.NewClient(options), redisstore.Options{Command: counted.count})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func start(t *testing.T, open openStore, of talk, change ...func(*provision.Plan)) *system {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	check(t, err)
	t.Cleanup(func() { check(t, server.Close()) })
	return startOn(t, server, open, of, change...)
}

// startOn is start on a server that is there.
func startOn(t *testing.T, server broker.InProcess, open openStore, of talk, change ...func(*provision.Plan)) *system {
	t.Helper()
	tapOf := func() *tap { return &tap{server: server, counts: map[string]int{}} }
	s := &system{t: t, talk: of, worker: tapOf(), service: tapOf(), client: tapOf(), commands: &commands{}}
	s.conn, s.control = s.connect(s.client), s.connect(server)
	spec := adder()
	plan := worker.Plan([]sdk.AgentSpec{spec})
	for _, c := range change {
		c(&plan)
	}
	_, err := provision.Apply(t.Context(), s.control, plan)
	check(t, err)
	// Nobody looks what a server that was started again has forgotten: that happens once, seconds after the start of a worker.
	for _, token := range []string{wire.NameToken(spec.Name), broker.Unserved} {
		check(t, s.control.NoteRefilled(t.Context(), token, s.control.Server()))
	}
	s.serve(spec)
	s.work(spec, open)
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *system) connect(server broker.InProcess) *broker.Conn {
	s.t.Helper()
	conn, err := broker.Connect(s.t.Context(), broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
	check(s.t, err)
	s.t.Cleanup(func() { check(s.t, conn.Close()) })
	return conn
}

func (s *system) work(spec sdk.AgentSpec, open openStore) {
	s.t.Helper()
	conn := s.connect(s.worker)
	s.store = open(s.t, conn, s.commands)
	keys, err := sealed.NewKeyring(sealed.Options{})
	check(s.t, err)
	s.packed = packed.New(sealed.New(s.store, keys, nil), s.plain)
	w, err := worker.New(worker.Options{
		Conn: conn, Store: s.packed, Agents: []sdk.Agent{{Spec: spec}},
		Models:       func(sdk.ModelSpec) (sdk.Provider, error) { return sdktest.ModelFunc(s.model), nil },
		PlainEntries: s.plain,
	})
	check(s.t, err)
	s.serves = w
	s.background(w.Run)
}

func (s *system) serve(spec sdk.AgentSpec) {
	s.t.Helper()
	calc, err := service.New(spec.Services[0].Contract, service.Unlisted())
	check(s.t, err)
	service.Handle(calc, func(_ context.Context, _ service.Call, in map[string]any) (map[string]any, error) {
		return map[string]any{"sum": in["a"], "why": s.result()}, nil
	})
	s.background(func(ctx context.Context) error { return service.Server{InProcess: s.service}.Run(ctx, calc) })
}

func (s *system) background(run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		check(s.t, <-done)
	})
}

// run starts a run and waits for its end.
func (s *system) run(name string) wire.RunKey {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	ev := wire.Event{ID: name, Source: "com.test.client", Type: "adder", Subject: name, Data: []byte(`{"message":"hello"}`)}
	check(s.t, s.conn.Start(ctx, "adder", ev))
	key := wire.NewRunKey(name)
	done, err := s.control.WaitDone(ctx, "adder", key, wire.InitToken(ev.Source, ev.ID))
	check(s.t, err)
	if done.Type != "adder.done" {
		s.t.Fatalf("run %s ended with %s: %s", name, done.Type, done.Data)
	}
	return key
}

// settle waits until nothing is left to do: every message is acknowledged, no timer is armed, and all have asked for more.
func (s *system) settle() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	subjects := s.control.Subjects()
	timers := streams.Name(subjects, streams.Timer)
	for !s.idle(ctx, timers, subjects.All(wire.KindTimer)) {
		if ctx.Err() != nil {
			s.t.Fatal("never idle")
		}
	}
}

func (s *system) idle(ctx context.Context, timers, armed string) bool {
	s.t.Helper()
	js := s.control.JetStream()
	stream, err := js.Stream(ctx, timers)
	check(s.t, err)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(armed))
	check(s.t, err)
	for subject := range info.State.Subjects {
		if !strings.Contains(subject, "."+streams.LeaseToken+".") { // notes stay
			return false
		}
	}
	refs := append(streams.AgentConsumers("adder"), streams.ConsumerRef{Zone: streams.Start, Name: streams.UnroutedConsumer},
		streams.ServiceConsumer("", "calc.add"))
	for _, ref := range refs {
		consumer, err := js.Consumer(ctx, streams.Name(s.control.Subjects(), ref.Zone), ref.Name)
		check(s.t, err)
		if i := consumer.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 || i.NumWaiting == 0 {
			return false
		}
	}
	return true
}

// stored is how many messages each stream has taken since it was made, those that are gone included.
func (s *system) stored() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for info := range s.control.JetStream().ListStreams(s.t.Context()).Info() {
		_, zone, _ := strings.Cut(info.Config.Name, "_")
		counts["stored "+zone] = int(info.State.LastSeq)
	}
	return counts
}

// journal is how many entries and bytes runs have, and how many of these are kept.
func (s *system) journal(runs []wire.RunKey) map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for _, run := range runs {
		kept, err := s.store.Entries(s.t.Context(), run, runner.Version{})
		check(s.t, err)
		for _, r := range kept {
			counts["kept"] += len(r.Data)
		}
		records, err := s.packed.Entries(s.t.Context(), run, runner.Version{})
		check(s.t, err)
		for _, r := range records {
			counts["entries"]++
			counts["bytes"] += len(r.Data)
			_, err := core.DecodeEntry(r.Data)
			check(s.t, err)
		}
	}
	return counts
}

// cost is what runs cost, one after the other, each of them on the average, in hundredths.
func (s *system) cost(names []string) map[string]int {
	s.t.Helper()
	before := s.stored()
	for _, tap := range []*tap{s.worker, s.service, s.client} {
		tap.reset()
	}
	s.commands.reset()
	began := time.Now()
	var keys []wire.RunKey
	for _, name := range names {
		keys = append(keys, s.run("run "+name))
	}
	s.settle()
	cost := map[string]int{}
	each := func(n int) int { return n * 100 / len(names) }
	for prefix, counted := range map[string]*tap{"": s.worker, "service: ": s.service, "client: ": s.client} {
		for what, n := range counted.reset() {
			if what == onceASecond {
				n = max(n-1-int(time.Since(began)/time.Second), 0)
			}
			cost[prefix+what] = each(n)
			cost["messages"] += (each(n) + 50) / 100 * 100 // what comes now and then, whoever runs, does not count
		}
	}
	for command, n := range s.commands.reset() {
		cost["redis "+command] = each(n)
	}
	for stream, n := range s.stored() {
		cost[stream] = each(n - before[stream])
	}
	for what, n := range s.journal(keys) {
		cost[what] = each(n)
	}
	return cost
}

// onceASecond is what a worker sends at most once a second, however many runs there are: it asks whether an agent has a consumer for its init
// events.
const onceASecond = "api CONSUMER.INFO"

// most is the most of everything that one run may cost: whoever makes it cheaper lowers the numbers. A run makes turns calls and
// ends; nothing else goes on, and nobody watches. What is not listed must not be there.
var (
	onBoth = map[string]int{
		"client: start": 1, "out": turns, "done": 1, "tmr": 1, "service: in": turns, "entries": 2 + turns,
		// Each turn's answer, the init event to its agent and to whoever looks for those without one, and the timer.
		"ack": turns + 3, "service: ack": turns,
		// One request brings as many messages as there are slots; half of one is rounded down.
		"pull": 0, "service: pull": 0,
		onceASecond: 0,
		// A timer is stored once when it is armed, and once when it fires.
		"stored START": 1, "stored OUT": turns, "stored IN": turns, "stored DONE": 1, "stored TMR": 2,
		"bytes": 10_800, "kept": 3_400,
	}
	onRedis = map[string]int{
		"messages": 19,
		// The head is read for the timer of the run that has ended, which is confirmed too. That timer may be older than the end: the journal
		// is read, and the terminal event looked for.
		"redis evalsha": 2 + turns, "redis lindex": 1, "redis hget": 1, "redis lrange": 1, "api STREAM.MSG": 1,
	}
	onJetStream = map[string]int{
		"messages": 27,
		"run":      2 + turns, "stored RUN": 2 + turns, "api STREAM.MSG": 3, "api DIRECT.GET": 1,
	}
)

func TestCounts(t *testing.T) {
	for name, of := range map[string]struct {
		open openStore
		most map[string]int
	}{"redis": {redisServer, onRedis}, "jetstream": {jetStream, onJetStream}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most := maps.Clone(onBoth)
			maps.Copy(most, of.most)
			got := start(t, of.open, usual).least(most)
			for _, what := range slices.Sorted(maps.Keys(got)) {
				each := float64(got[what]) / 100
				t.Logf("%-20s %8.1f", what, each)
				if tooMuch(got[what], most[what]) {
					t.Errorf("a run costs %.1f %s, and may cost %d", each, what, most[what])
				}
			}
		})
	}
}

// tooMuch reports whether a cost in hundredths is above a limit. A pull that has waited for long is made anew, whoever runs.
func tooMuch(cost, most int) bool { return cost >= 100*most+50 }

// least is the least that runs cost in up to three rounds: what a slow machine delivers again does not count, and what a run
// costs is in each round.
func (s *system) least(most map[string]int) map[string]int {
	s.t.Helper()
	s.run("the first, which connects and learns")
	s.settle()
	var least map[string]int
	for _, names := range []string{"abcdefghij", "klmnopqrst", "ABCDEFGHIJ"} {
		cost := s.cost(strings.Split(names, ""))
		if least == nil {
			least = cost
		}
		fits := true
		for what := range least {
			least[what] = min(least[what], cost[what])
			fits = fits && !tooMuch(least[what], most[what])
		}
		if fits {
			break
		}
	}
	return least
}

// commands counts what a client of Redis sends.
type commands struct {
	tap
}

func (c *commands) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[name]++
}
