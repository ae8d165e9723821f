package replay

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var recordStores = flag.Bool("record-stores", false, "write what stores keep of waiting runs, where nothing is recorded yet")

const (
	version = "1.0.0"
	// century is the timeout of everything: what was recorded long ago must not be overdue.
	century = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
)

// waits are the runs of a recording by name, each with what it waits for: a service, a question, a turn, a permission
// that holds the call or one that lets the model call again, another agent, or the timer before another attempt.
var waits = map[string]struct{ agent, tool, args string }{
	"service":          {"desk", "shop_book", `{"n":1}`},
	"question":         {"desk", "ask_question", `{"question":"Really?"}`},
	"turn":             {"talk", "", ""},
	"permission-hold":  {"desk", "shop_pay", `{"n":2}`},
	"permission-retry": {"strict", "shop_pay", `{"n":3}`},
	"child":            {"chief", "desk", `{"message":"hello"}`},
	"timer":            {"desk", "shop_slow", `{"n":4}`},
}

func contractOf(name, accepts, emitted, emits string) sdk.Contract {
	return sdk.Contract{URI: "#/" + name, Type: name, Versions: map[string]sdk.ContractVersion{version: {
		Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{emitted: json.RawMessage(emits)},
	}}}
}

// agentsOfRecordings are served by whoever records, and by whoever resumes.
func agentsOfRecordings() []sdk.Agent {
	const number, ok = `{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}`, `{"type":"object"}`
	shop := func(what string) sdk.ServiceTool {
		return sdk.ServiceTool{Version: version, TimeoutMillis: century, Contract: contractOf("shop."+what, number, "shop.done", ok)}
	}
	slow := shop("slow")
	// Long enough to be recorded meanwhile, and over when the recording is read.
	slow.Retry = &sdk.Retry{Attempts: 2, BackoffMillis: 10_000}
	agent := func(name string, mode sdk.PermissionMode, tools ...sdk.ServiceTool) sdk.Agent {
		spec := sdk.AgentSpec{
			Name: name, Version: version, Model: sdk.ModelSpec{Provider: "test", Name: "test"}, Builtin: []string{"ask_question"},
			Contract: contractOf(name, `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
				name+".done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
			Services: tools, Limits: sdk.Limits{DeadlineMillis: century, QuestionTimeoutMillis: century},
		}
		if slices.ContainsFunc(tools, func(s sdk.ServiceTool) bool { return s.Contract.Type == "shop.pay" }) {
			spec.Permissions = &sdk.PermissionPolicy{
				Rules: []sdk.PermissionRule{{Name: "ask", Tools: []string{"shop_pay"}, Verdict: sdk.PermissionAsk}},
				Terms: sdk.PermissionPolicyTerms{Mode: mode, TimeoutMillis: century},
			}
		}
		return sdk.Agent{Spec: spec}
	}
	desk := agent("desk", sdk.PermissionHold, shop("book"), shop("pay"), slow)
	talk := agent("talk", sdk.PermissionHold)
	talk.Spec.Text = sdk.TextConverse
	chief := agent("chief", sdk.PermissionHold, sdk.ServiceTool{Version: version, TimeoutMillis: century, Contract: desk.Spec.Contract})
	return []sdk.Agent{desk, agent("strict", sdk.PermissionRetry, shop("pay")), talk, chief}
}

// calling is the model of the recordings: it calls the run's tool, again where it was told to, and says that it is done.
func calling(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
	name, _, child := strings.Cut(req.Run, "/")
	w := waits[name]
	if child {
		w = waits["service"]
	}
	again := w.agent == "strict" && req.Interactions.Current == 1
	if w.tool != "" && (req.Interactions.Current == 0 || again) {
		return sdktest.Ask(sdktest.Tool(w.tool, json.RawMessage(w.args))), nil
	}
	return sdktest.Say("done"), nil
}

// keeper is a store that can be copied as it is, and be filled with a copy.
type keeper interface {
	open(conn *broker.Conn) runner.Store
	dump(t *testing.T, conn *broker.Conn) any
	restore(t *testing.T, conn *broker.Conn, copied []byte)
}

// inStream keeps runs in JetStream.
type inStream struct{}

type streamMessage struct {
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header,omitempty"`
	Data    []byte      `json:"data"`
}

func (inStream) open(conn *broker.Conn) runner.Store {
	return natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects())
}

func (inStream) dump(t *testing.T, conn *broker.Conn) any {
	var all []streamMessage
	err := conn.Scan(t.Context(), streams.Run, ">", 1, func(m broker.Stored) (bool, error) {
		h := nats.Header(m.Headers)
		for name := range h { // conditions on what was there before
			if strings.HasPrefix(name, "Nats-") {
				h.Del(name)
			}
		}
		all = append(all, streamMessage{m.Subject, h, m.Data})
		return true, nil
	})
	check(t, err)
	return all
}

func (inStream) restore(t *testing.T, conn *broker.Conn, copied []byte) {
	var all []streamMessage
	check(t, json.Unmarshal(copied, &all))
	stream := streams.Name(conn.Subjects(), streams.Run)
	for _, m := range all {
		_, err := conn.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data},
			jetstream.WithExpectStream(stream))
		check(t, err)
	}
}

// inRedis keeps runs in Redis.
type inRedis struct {
	client *redis.Client
	store  *redisstore.Store
}

type redisKey struct {
	Key    string            `json:"key"`
	String string            `json:"string,omitempty"`
	Hash   map[string]string `json:"hash,omitempty"`
	List   []string          `json:"list,omitempty"`
	Set    []string          `json:"set,omitempty"`
	Scored []redis.Z         `json:"scored,omitempty"`
}

func (r inRedis) dump(t *testing.T, _ *broker.Conn) any {
	ctx := t.Context()
	names, err := r.client.Keys(ctx, "*").Result()
	check(t, err)
	var all []redisKey
	for _, name := range names {
		kind, err := r.client.Type(ctx, name).Result()
		check(t, err)
		k := redisKey{Key: name}
		switch kind {
		case "string":
			k.String, err = r.client.Get(ctx, name).Result()
		case "hash":
			k.Hash, err = r.client.HGetAll(ctx, name).Result()
		case "list":
			k.List, err = r.client.LRange(ctx, name, 0, -1).Result()
		case "set":
			k.Set, err = r.client.SMembers(ctx, name).Result()
		case "zset":
			k.Scored, err = r.client.ZRangeWithScores(ctx, name, 0, -1).Result()
		default:
			t.Fatalf("key %s is a %s", name, kind)
		}
		check(t, err)
		all = append(all, k)
	}
	return all
}

func (r inRedis) restore(t *testing.T, _ *broker.Conn, copied []byte) {
	var all []redisKey
	check(t, json.Unmarshal(copied, &all))
	ctx := t.Context()
	for _, k := range all {
		var err error
		switch {
		case k.Hash != nil:
			err = r.client.HSet(ctx, k.Key, k.Hash).Err()
		case k.List != nil:
			err = r.client.RPush(ctx, k.Key, values(k.List)...).Err()
		case k.Set != nil:
			err = r.client.SAdd(ctx, k.Key, values(k.Set)...).Err()
		case k.Scored != nil:
			err = r.client.ZAdd(ctx, k.Key, k.Scored...).Err()
		default:
			err = r.client.Set(ctx, k.Key, k.String, 0).Err()
		}
		check(t, err)
	}
}

func (r inRedis) open(*broker.Conn) runner.Store { return r.store }

func values(texts []string) []any {
	list := make([]any, len(texts))
	for i, text := range texts {
		list[i] = text
	}
	return list
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStores_RunsOfOlderVersionsEnd fills each store with what an older version left in it, has reconcile send what the
// runs wait for, which no broker knows any more, answers everything, and sees every run to its terminal event.
func TestStores_RunsOfOlderVersionsEnd(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) keeper{"jetstream": openStream, "redis": openRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob("testdata/stores/v*/" + name + ".json")
			check(t, err)
			current := filepath.Join("testdata/stores/v1", name+".json")
			if *recordStores && len(files) == 0 {
				recordRuns(t, open(t), current)
				files = []string{current}
			}
			if len(files) == 0 {
				t.Error("nothing is recorded of this store")
			}
			for _, file := range files {
				resumeRuns(t, open(t), file)
			}
		})
	}
}

func openStream(*testing.T) keeper { return inStream{} }

func openRedis(t *testing.T) keeper {
	server := redistest.StartServer(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	store := redisstore.New(client, redisstore.Options{})
	t.Cleanup(func() { check(t, store.Close()) })
	return inRedis{client: client, store: store}
}

func startOn(t *testing.T, k keeper) *harness.Harness {
	t.Helper()
	return harness.Start(t, harness.Options{
		Agents: agentsOfRecordings(), Model: sdktest.ModelFunc(calling), OpenStore: k.open,
	})
}

// recordRuns writes what a store keeps of one waiting run of each kind.
func recordRuns(t *testing.T, k keeper, file string) {
	h := startOn(t, k)
	for name, w := range waits {
		ev := h.Init(w.agent, map[string]string{"message": "hello"})
		ev.Subject, ev.ID = name, "init of "+name
		r := h.Send(w.agent, ev)
		if name == "timer" {
			h.Call("shop.slow").Fail(wire.Problem{ErrorName: "Busy", ErrorMessage: "come back", Retryable: true})
			h.Until(r, "waits for its timer", func(s core.State) bool {
				return s.Status == core.StatusWaiting && s.Calls[0].RetryAt > 0
			})
		}
		h.Until(r, "waits", func(s core.State) bool { return s.Status == core.StatusWaiting })
	}
	h.Call("shop.book")
	h.Call("shop.book") // the child's
	h.StopWorkers()
	data, err := json.MarshalIndent(k.dump(t, h.Conn()), "", " ")
	check(t, err)
	check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(t, os.WriteFile(file, append(data, '\n'), 0o644))
}

func resumeRuns(t *testing.T, k keeper, file string) {
	h := startOn(t, k)
	copied, err := os.ReadFile(file)
	check(t, err)
	k.restore(t, h.Conn(), copied)
	o, err := h.Worker().Reconciling(t.Context())
	check(t, err)
	o.OlderThan = time.Nanosecond
	report, err := reconcile.Run(t.Context(), o)
	check(t, err)
	// Seven runs and a child. Each has a timer and, but for the one that waits for it alone, a call.
	want := map[reconcile.Kind]int{reconcile.TimerLost: 8, reconcile.CallLost: 7}
	if diff := cmp.Diff(want, report.Found); diff != "" || report.Unrepaired > 0 {
		t.Errorf("what was missing (-want +got):\n%s", diff)
	}
	allow := func(c *harness.Call) {
		hash, _ := c.Data()["args_sha256"].(string)
		c.Answer(sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: hash})
	}
	for range 2 {
		h.Call("shop.book").Answer("shop.done", struct{}{})
		allow(h.Call(sdk.TypePermissionRequest))
	}
	for range 2 {
		h.Call("shop.pay").Answer("shop.done", struct{}{})
	}
	second := h.Call("shop.slow")
	for !strings.HasSuffix(second.Event.ID, "-r2") { // the first attempt is sent again, too
		second = h.Call("shop.slow")
	}
	second.Answer("shop.done", struct{}{})
	h.Call(sdk.TypeQuestion).Answer("agentd.question.answered", map[string]string{"answer": "yes"})
	h.Call(sdk.TypeConversationTurn).Answer("agentd.conversation.answered", map[string]any{"message": "bye", "end": true})
	for name, w := range waits {
		r := harness.Run{Subject: name, Key: wire.NewRunKey(name), Agent: w.agent, Init: wire.InitToken("com.test.client", "init of "+name)}
		if ev := h.Done(r); ev.Type != w.agent+".done" {
			t.Errorf("run %s ends with %s: %s", name, ev.Type, ev.Data)
		}
	}
}
