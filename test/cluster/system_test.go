package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
	"agentd/test/cluster"
)

const version = "1.0.0"

// adder is an agent that calls a service once.
func adder() sdk.AgentSpec {
	contract := func(of, emits, schema string) sdk.Contract {
		return sdk.Contract{URI: "#/" + of, Type: of, Versions: map[string]sdk.ContractVersion{version: {
			Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{emits: json.RawMessage(schema)},
		}}}
	}
	return sdk.AgentSpec{
		Name: "adder", Version: version, Model: sdk.ModelSpec{Provider: "test", Name: "test", ContextWindow: 100_000},
		Contract: contract("adder", "adder.done", `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
		Services: []sdk.ServiceTool{{
			Version: version, TimeoutMillis: time.Hour.Milliseconds(),
			Contract: contract("calc.add", "calc.added", `{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}`),
		}},
	}
}

func reply(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
	if req.Interactions.Current == 1 {
		return sdktest.Say("it is enough"), nil
	}
	return sdktest.Ask(sdktest.Tool("calc_add", map[string]any{"a": 1})), nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// system is a cluster with the adder's streams, three times each.
type system struct {
	*cluster.Cluster
	t *testing.T
	// control is a connection beside the proxies that clients use.
	control *broker.Conn
}

func start(t *testing.T) *system {
	t.Helper()
	c, err := cluster.Start(t.Context(), t.TempDir())
	check(t, err)
	t.Cleanup(func() {
		c.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	s := &system{Cluster: c, t: t}
	s.control = s.connect(c.Direct())
	plan := worker.Plan([]sdk.AgentSpec{adder()})
	plan.Replicas = 3
	_, err = provision.Apply(t.Context(), s.control, plan)
	check(t, err)
	return s
}

func (s *system) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s.t.Output(), nil)) }

func (s *system) connect(url string) *broker.Conn {
	s.t.Helper()
	conn, err := broker.Connect(s.t.Context(), broker.ConnectOptions{URL: url, Subjects: wire.DefaultSubjects(), Logger: s.logger()})
	check(s.t, err)
	s.t.Cleanup(func() { check(s.t, conn.Close()) })
	return conn
}

// leads is the server that leads a zone's stream, as control sees it.
func (s *system) leads(z streams.Zone) *cluster.Node {
	s.t.Helper()
	stream, err := s.control.JetStream().Stream(s.t.Context(), streams.Name(s.control.Subjects(), z))
	check(s.t, err)
	n, err := s.Node(stream.CachedInfo().Cluster.Leader)
	check(s.t, err)
	return n
}

// other is a server that a connection is not to.
func (s *system) other(c *broker.Conn) *cluster.Node {
	i := slices.IndexFunc(s.Nodes, func(n *cluster.Node) bool { return n.Name != serverOf(c) })
	return s.Nodes[i]
}

// serverOf is the name of the server that a connection is to.
func serverOf(c *broker.Conn) string { return c.JetStream().Conn().ConnectedServerName() }

// at runs a worker, a service and a client, each with a connection of its own to one server, from which they know the others.
func (s *system) at(n *cluster.Node) (*harness.Harness, *client.Client) {
	s.t.Helper()
	h := harness.Start(s.t, harness.Options{
		URL: n.URL(), Agents: []sdk.Agent{{Spec: adder()}}, Model: sdktest.ModelFunc(reply),
	})
	calc, err := service.New(adder().Services[0].Contract, service.Unlisted())
	check(s.t, err)
	service.Handle(calc, func(_ context.Context, _ service.Call, in map[string]any) (map[string]any, error) {
		return map[string]any{"sum": in["a"]}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: n.URL(), Logger: s.logger()}.Run(ctx, calc) }()
	s.t.Cleanup(func() {
		stop()
		check(s.t, <-done)
	})
	c, err := client.Connect(s.t.Context(), client.Options{URL: n.URL(), Logger: s.logger()})
	check(s.t, err)
	s.t.Cleanup(func() { check(s.t, c.Close()) })
	return h, c
}

// within is how long the run of a name takes from now on to its good end; longer fails the test.
func (s *system) within(c *client.Client, name string, most time.Duration) {
	s.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	run, err := c.Start(ctx, client.Request{Agent: "adder", Name: name, Input: map[string]any{}})
	if err == nil {
		_, err = c.Wait(ctx, run)
	}
	took := time.Since(began)
	s.t.Logf("run %s took %s", name, took.Round(time.Millisecond))
	if err != nil {
		s.t.Fatalf("run %s after %s: %v", name, took, err)
	}
	if took > most {
		s.t.Errorf("run %s took %s, want at most %s", name, took, most)
	}
}

// percentile is the longest of the shortest share of durations.
func percentile(all []time.Duration, share float64) time.Duration {
	slices.Sort(all)
	return all[min(int(share*float64(len(all))), len(all)-1)]
}

func name(i int) string { return fmt.Sprint("run-", i) }
