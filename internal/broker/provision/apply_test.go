package provision

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/internal/days"
	"agentd/internal/finding"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
	"agentd/test/ports"
)

func TestApply_MakesStreamsAsTheWireSays(t *testing.T) {
	t.Parallel()
	c := alone(t)
	apply(t, c, Plan{LongestRun: 3 * days.Day, LongestCall: 5 * days.Day})
	type settings struct {
		Subjects                                         string
		MaxAge, Duplicates                               time.Duration
		Discard                                          jetstream.DiscardPolicy
		DenyDelete, Rollup, Schedules, TTL, Direct, Acks bool
	}
	const window = 2 * time.Minute // the server's own; nobody sends message ids there
	want := map[string]settings{
		"AGENTD_START": {"agentd.start.>", 10 * days.Day, shortestDuplicates, jetstream.DiscardNew, true, false, false, false, false, true},
		"AGENTD_IN":    {"agentd.in.> agentd.ctl.>", 7 * days.Day, shortestDuplicates, jetstream.DiscardNew, true, false, false, false, false, true},
		"AGENTD_OUT":   {"agentd.out.> agentd.void.>", 12 * days.Day, window, jetstream.DiscardNew, false, false, false, false, true, true},
		"AGENTD_DONE":  {"agentd.done.>", 10 * days.Day, window, jetstream.DiscardNew, false, false, false, false, true, true},
		"AGENTD_TMR":   {"agentd.tmr.> agentd.fire.>", 0, window, jetstream.DiscardOld, false, true, true, true, false, true},
		"AGENTD_RUN":   {"agentd.run.> agentd.blob.> agentd.spec.>", 0, window, jetstream.DiscardNew, false, true, false, false, true, true},
		"KV_AGENTD_GRANTS": {
			"$KV.AGENTD_GRANTS.>", 0, window, jetstream.DiscardNew, true, true, false, false, true, true,
		},
		"KV_AGENTD_CONTRACTS": {
			"$KV.AGENTD_CONTRACTS.>", 0, shortestDuplicates, jetstream.DiscardNew, true, false, false, false, true, true,
		},
		"AGENTD_DLQ": {"agentd.dlq.>", 90 * days.Day, window, jetstream.DiscardOld, false, false, false, false, false, true},
	}
	got := map[string]settings{}
	lister := c.JetStream().ListStreams(brokertest.Context(t))
	for info := range lister.Info() {
		cfg := info.Config
		if cfg.Retention != jetstream.LimitsPolicy || cfg.Storage != jetstream.FileStorage || cfg.DenyPurge != (cfg.DenyDelete && cfg.Name != "KV_AGENTD_GRANTS") ||
			cfg.AllowAtomicPublish {
			t.Errorf("stream %s: %+v", cfg.Name, cfg)
		}
		got[cfg.Name] = settings{
			strings.Join(cfg.Subjects, " "), cfg.MaxAge, cfg.Duplicates, cfg.Discard, cfg.DenyDelete, cfg.AllowRollup,
			cfg.AllowMsgSchedules, cfg.AllowMsgTTL, cfg.AllowDirect, !cfg.NoAck,
		}
	}
	if err := lister.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("streams (-want +got):\n%s", diff)
	}
}

func TestApply_MakesConsumers(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	want := map[string][]string{
		"AGENTD_START/unrouted":               {"agentd.start.>"},
		"AGENTD_START/agent_travel_desk":      {"agentd.start.travel_desk", "agentd.start.travel_desk.*"},
		"AGENTD_IN/agent_travel_desk":         {"agentd.in.*.*.travel_desk.>", "agentd.ctl.*.travel_desk.>"},
		"AGENTD_TMR/agent_travel_desk":        {"agentd.fire.travel_desk.>"},
		"AGENTD_OUT/agent_travel_desk":        {"agentd.out.*.com_travel_desk.>", "agentd.void.*.com_travel_desk.>"},
		"AGENTD_OUT/svc_airline_airline_book": {"agentd.out.airline.airline_book.>", "agentd.void.airline.airline_book.>"},
	}
	got := map[string][]string{}
	for _, z := range []streams.Zone{streams.Start, streams.In, streams.Timer, streams.Out} {
		s, err := c.JetStream().Stream(brokertest.Context(t), streams.Name(c.Subjects(), z))
		if err != nil {
			t.Fatal(err)
		}
		lister := s.ListConsumers(brokertest.Context(t))
		for info := range lister.Info() {
			got[info.Stream+"/"+info.Name] = filtersOf(info.Config)
			if cfg := info.Config; cfg.AckPolicy != jetstream.AckExplicitPolicy || cfg.MaxDeliver != -1 ||
				cfg.MaxAckPending != -1 || cfg.AckWait != testPlan.AckWait || cfg.Durable == "" || cfg.BackOff != nil {
				t.Errorf("consumer %s: %+v", info.Name, cfg)
			}
		}
		if err := lister.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("consumers (-want +got):\n%s", diff)
	}
}

func TestApply_TwiceChangesNothing(t *testing.T) {
	t.Parallel()
	c := alone(t)
	if made := apply(t, c, testPlan); len(made) != 9+6 || made[0] != (Change{Kind: "stream", Name: "AGENTD_START", Action: "created"}) {
		t.Errorf("at first: %v; want 9 streams and 6 consumers", made)
	}
	if changes := apply(t, c, testPlan); changes != nil {
		t.Errorf("the second time: %v", changes)
	}
	if findings, err := Verify(brokertest.Context(t), c, testPlan); err != nil || findings != nil {
		t.Errorf("verified: %v, %v", findings, err)
	}
}

func TestApply_UpdatesWhatThePlanChanged(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	p := testPlan
	p.LongestRun, p.AckWait = 60*days.Day, time.Second
	p.Agents = []Agent{{Name: "travel.desk", Type: "com.travel.bureau"}}
	changes := apply(t, c, p)
	for _, want := range []Change{
		{"stream", "AGENTD_START", "updated", "max_age 37d → 67d"},
		{"stream", "AGENTD_OUT", "updated", "max_age 37d → 67d"},
		{"stream", "AGENTD_DONE", "updated", "max_age 37d → 67d"},
		{
			"consumer", "AGENTD_OUT/agent_travel_desk", "updated", "ack_wait 1h → 1s, filter_subjects " +
				"[agentd.out.*.com_travel_desk.> agentd.void.*.com_travel_desk.>] → [agentd.out.*.com_travel_bureau.> agentd.void.*.com_travel_bureau.>]",
		},
	} {
		if !slices.Contains(changes, want) {
			t.Errorf("%v is not among %v", want, changes)
		}
	}
	if findings, err := Verify(brokertest.Context(t), c, p); err != nil || findings != nil {
		t.Errorf("verified: %v, %v", findings, err)
	}
}

func TestApply_KeepsWhatOthersNeed(t *testing.T) {
	t.Parallel()
	c := alone(t)
	long := Plan{LongestRun: 60 * days.Day, AckWait: testPlan.AckWait, Agents: []Agent{{Name: "slow", Type: "com.slow"}}}
	apply(t, c, long)
	out, err := c.JetStream().Stream(brokertest.Context(t), "AGENTD_OUT")
	if err != nil {
		t.Fatal(err)
	}
	cfg := out.CachedInfo().Config
	cfg.MaxBytes, cfg.Description = 1<<30, "ours"
	if _, err := c.JetStream().UpdateStream(brokertest.Context(t), cfg); err != nil {
		t.Fatal(err)
	}
	for _, change := range apply(t, c, testPlan) {
		if change.Action != "created" {
			t.Errorf("%v", change)
		}
	}
	if findings, err := Verify(brokertest.Context(t), c, long); err != nil || findings != nil {
		t.Errorf("for the first program: %v, %v", findings, err)
	}
	out, err = c.JetStream().Stream(brokertest.Context(t), "AGENTD_OUT")
	if err != nil {
		t.Fatal(err)
	}
	if cfg := out.CachedInfo().Config; cfg.MaxBytes != 1<<30 || cfg.Description != "ours" {
		t.Errorf("the operator's settings are gone: %+v", cfg)
	}
}

func TestApply_RepairsAnUnsafeStream(t *testing.T) {
	t.Parallel()
	c := alone(t)
	_, err := c.JetStream().CreateStream(brokertest.Context(t), jetstream.StreamConfig{
		Name: "AGENTD_IN", Subjects: []string{"agentd.in.>", "agentd.ctl.>"}, AllowRollup: true, MaxAge: days.Day,
		Duplicates: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	before := codes(t, c, testPlan)
	for _, want := range []string{"rollup_allowed", "duplicates_window", "max_age", "delete_allowed", "stream_missing", "consumer_missing"} {
		if !slices.Contains(before, want) {
			t.Errorf("%s is not among %v", want, before)
		}
	}
	apply(t, c, testPlan)
	if after := codes(t, c, testPlan); after != nil {
		t.Errorf("after provisioning: %v", after)
	}
}

// A stream that others publish to and that takes schedules cannot be repaired: the server never takes them away again.
func TestApply_RefusesAStreamWithSchedules(t *testing.T) {
	t.Parallel()
	c := alone(t)
	_, err := c.JetStream().CreateStream(brokertest.Context(t), jetstream.StreamConfig{
		Name: "AGENTD_IN", Subjects: []string{"agentd.in.>", "agentd.ctl.>"}, AllowMsgSchedules: true, AllowMsgTTL: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Apply(brokertest.Context(t), c, testPlan); err == nil {
		t.Error("it is provisioned with schedules")
	}
	if !slices.Contains(codes(t, c, testPlan), "rollup_allowed") {
		t.Error("verifying does not find it")
	}
}

func TestApply_RefusesNamesThatMakeNoSubjects(t *testing.T) {
	t.Parallel()
	c := alone(t)
	p := Plan{Agents: []Agent{{"a.>", "ok"}, {"b", ""}}, Services: []Service{{"x y", "*"}}}
	_, err := Apply(brokertest.Context(t), c, p)
	if !isCode(err, sdk.CodeConfig) {
		t.Fatalf("got %v", err)
	}
	for _, path := range []string{"$.agents[0].name", "$.agents[1].type", "$.services[0].domain", "$.services[0].type"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is not in %v", path, err)
		}
	}
	if _, err := c.JetStream().Stream(brokertest.Context(t), "AGENTD_START"); err == nil {
		t.Error("a stream was made all the same")
	}
}

// svc_a_b_c is the consumer of type b.c in domain a and of type c in domain a.b: one would take the other's calls away.
func TestApply_RefusesServicesOfOneName(t *testing.T) {
	t.Parallel()
	c := alone(t)
	one, other := Service{Domain: "a", Type: "b.c"}, Service{Domain: "a.b", Type: "c"}
	if _, err := Apply(brokertest.Context(t), c, Plan{Services: []Service{one, other}}); !isCode(err, sdk.CodeConfig) {
		t.Errorf("in one plan: %v", err)
	}
	apply(t, c, Plan{Services: []Service{one}})
	if _, err := Apply(brokertest.Context(t), c, Plan{Services: []Service{other}}); !isCode(err, sdk.CodeConfig) {
		t.Errorf("of two programs: %v", err)
	}
	if got := codes(t, c, Plan{Services: []Service{other}}); !slices.Contains(got, "filters") {
		t.Errorf("verifying finds %v", got)
	}
	if got := codes(t, c, Plan{Services: []Service{one}}); got != nil {
		t.Errorf("the first service's consumer was changed: %v", got)
	}
}

func TestApply_SharesAServerByRoot(t *testing.T) {
	t.Parallel()
	s := brokertest.Server(t, embedded.Options{})
	subjects, err := wire.NewSubjects("blue")
	if err != nil {
		t.Fatal(err)
	}
	blue := brokertest.Connect(t, broker.ConnectOptions{InProcess: s, Subjects: subjects})
	changes := apply(t, blue, testPlan)
	if changes[0].Name != "BLUE_START" {
		t.Errorf("got %v", changes)
	}
	if len(apply(t, brokertest.Connect(t, broker.ConnectOptions{InProcess: s}), testPlan)) != len(changes) {
		t.Error("two roots share streams")
	}
	mustPublish(t, blue.Start(brokertest.Context(t), "travel.desk", event("e")))
	if n := stored(t, blue, streams.Start); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// Whoever may publish answers must not be able to wipe the stream, or to make the server publish elsewhere.
func TestStreams_TakeNoInstructionsFromPublishers(t *testing.T) {
	t.Parallel()
	s := brokertest.Server(t, embedded.Options{})
	c := brokertest.Connect(t, broker.ConnectOptions{InProcess: s})
	apply(t, c, testPlan)
	reply := c.Subjects().Reply(testCall)
	mustPublish(t, c.Publish(brokertest.Context(t), reply, event("answer")))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for _, h := range []nats.Header{
		{"Nats-Rollup": {"all"}},
		{"Nats-Schedule": {"@at " + time.Now().Format(time.RFC3339)}, "Nats-Schedule-Target": {reply}},
		{"Nats-TTL": {"1s"}},
		{"Nats-Batch-Id": {"x"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}},
	} {
		ack, err := nc.RequestMsgWithContext(brokertest.Context(t), &nats.Msg{Subject: reply + "x", Header: h})
		if err != nil || !strings.Contains(string(ack.Data), `"error"`) {
			t.Errorf("%v: %v, %v; want it to be refused", h, ack, err)
		}
	}
	if n := stored(t, c, streams.In); n != 1 {
		t.Errorf("%d messages; want the answer only", n)
	}
}

// The server changes the persistence of no stream: whoever wants another is told what to do, and so is who wants replicas of one that has none.
func TestApply_PersistMode(t *testing.T) {
	t.Parallel()
	rebuilt := map[string]bool{"AGENTD_OUT": true, "AGENTD_DONE": true, "AGENTD_TMR": true}
	for mode, other := range map[streams.PersistMode]streams.PersistMode{
		streams.PersistDefault: streams.PersistAsync, streams.PersistAsync: streams.PersistDefault, "": streams.PersistDefault,
	} {
		async := mode != streams.PersistDefault
		t.Run("as is asked for "+string(mode), func(t *testing.T) {
			t.Parallel()
			c := alone(t)
			is, other := Plan{PersistMode: mode, Index: true}, Plan{PersistMode: other, Index: true}
			apply(t, c, is)
			for _, planned := range (Plan{}).Streams(c.Subjects()) {
				name := planned.Name
				s, err := c.JetStream().Stream(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if got := s.CachedInfo().Config.PersistMode == jetstream.AsyncPersistMode; got != (async && rebuilt[name]) {
					t.Errorf("the persistence of %s is asynchronous: %v", name, got)
				}
			}
			for what, do := range map[string]func(context.Context, Broker, Plan) ([]Change, error){"provision": Apply, "a dry run": Planned} {
				for _, p := range []Plan{is, {Index: true}} { // who asks for nothing leaves what there is
					if changes, err := do(t.Context(), c, p); err != nil || len(changes) != 0 {
						t.Errorf("%s again, with %q: %v, %v", what, p.PersistMode, changes, err)
					}
				}
				changes, err := do(t.Context(), c, other)
				if err != nil || len(changes) != len(rebuilt) {
					t.Fatalf("%s: %v, %v", what, changes, err)
				}
				for _, change := range changes {
					if !rebuilt[change.Name] || change.Action != "kept" || !strings.Contains(change.What, "agentd provision --rebuild OUT,DONE,TMR") {
						t.Errorf("%s: %+v", what, change)
					}
				}
			}
			findings, err := Verify(t.Context(), c, other)
			if err != nil || len(findings) != len(rebuilt) {
				t.Errorf("findings: %v, %v", findings, err)
			}
			for _, f := range findings {
				if f.Code != "persist_mode" || f.Severity != finding.SeverityWarning || f.Remedy != remedyRemake {
					t.Errorf("finding %+v", f)
				}
			}
			if findings, err := Verify(t.Context(), c, Plan{}); err != nil || len(findings) > 0 {
				t.Errorf("who asks for nothing finds %v, %v", findings, err)
			}
			for _, p := range []Plan{{Unreconciled: true}, {Unreconciled: true, PersistMode: streams.PersistAsync}} {
				changes, err := Planned(t.Context(), c, p)
				refused := errors.Is(err, &sdk.Error{Code: sdk.CodeConfig})
				if refused != (p.PersistMode == streams.PersistAsync) || !refused && (len(changes) > 0) != async {
					t.Errorf("where nobody brings back what the server forgets, and %q is asked for: %v, %v", p.PersistMode, changes, err)
				}
			}
			if _, err := Apply(t.Context(), c, Plan{PersistMode: "sync"}); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
				t.Errorf("a persistence that there is not: %v", err)
			}
			if _, err := Planned(t.Context(), c, Plan{Replicas: 3}); async != errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
				t.Errorf("with replicas: %v", err)
			}
		})
	}
}

// Clients of a leaf node see its process, and not that of the server with the streams: nobody would notice that one's restart.
func TestApply_BehindALeafNode(t *testing.T) {
	t.Parallel()
	port := ports.Free(t)
	hub := natsserver.Start(t, server.Options{
		Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub", LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: port},
	})
	address, err := url.Parse(fmt.Sprintf("nats://127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	leaf := natsserver.Start(t, server.Options{
		Port: server.RANDOM_PORT, JsAccDefaultDomain: map[string]string{"$G": "hub"},
		LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{address}}}},
	})
	brokertest.Eventually(t, "the leaf node is connected", func() bool { return hub.NumLeafNodes() == 1 && leaf.NumLeafNodes() == 1 })
	c := brokertest.Connect(t, broker.ConnectOptions{URL: leaf.ClientURL()})
	brokertest.Eventually(t, "it reaches the server with the streams", func() bool {
		_, err := c.JetStream().AccountInfo(brokertest.Context(t))
		return err == nil
	})
	apply(t, c, Plan{PersistMode: streams.PersistAsync})
	state, err := c.ZoneState(brokertest.Context(t), streams.Out)
	if err != nil || state.PersistMode != streams.PersistDefault {
		t.Errorf("calls are kept %s: %v", state.PersistMode, err)
	}
}
