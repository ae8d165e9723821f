package deploy_test

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompose_FinishesARunWhoseWorkerIsKilledInOneTrace(t *testing.T) {
	provider := localEngine(t)
	w := start(t, standIns(t, provider), "collector", "nats", "redis", "model")
	w.eventually("the server is provisioned", func() bool {
		code, _ := w.ends("provision", nil) // the server may not be there yet
		return code == 0
	})
	w.begin("worker-1", "worker-2", "travel")
	w.healthy("worker-1")
	w.healthy("worker-2")

	w.command("client", "run", "travel.desk", "--subject", "trip", "--detach",
		"--message", "Two nights in Lisbon from 4 December 2026, please. I live in Berlin.")
	// The run asks the traveller, and is suspended.
	var asked span
	w.eventually("the question", func() (ok bool) {
		asked, ok = find(w.spans(), func(s span) bool {
			return s.kind() == "AGENT" && s.Attributes["agentd.run.status"] == "waiting" && strings.Contains(s.Attributes["agentd.run.round"], "2")
		})
		return ok
	})
	other := map[string]string{"worker-1": "worker-2", "worker-2": "worker-1"}[asked.Host]
	if other == "" {
		t.Fatalf("the run was driven on host %q, which is not a worker", asked.Host)
	}
	at := time.Duration(0) // killed
	if err := w.running[asked.Host].Stop(t.Context(), &at); err != nil {
		t.Fatal(err)
	}
	out := w.command("operator", "runs", "follow", "trip", "--answer", "Yes, book both")
	if !strings.Contains(out, "TRIP-TP-533-casa-do-rio") {
		t.Errorf("the run ended with:\n%s", out)
	}
	w.stopsGracefully(other)
	w.stopsGracefully("travel")

	spans := w.spans()
	w.connected(spans)
	if _, ok := find(spans, func(s span) bool { return s.kind() == "AGENT" && s.Host == other }); !ok {
		t.Errorf("%s drove nothing", other)
	}
	for _, kind := range []string{"AGENT", "LLM", "TOOL"} {
		if _, ok := find(spans, func(s span) bool { return s.kind() == kind && s.Service == "agentd" }); !ok {
			t.Errorf("no %s span", kind)
		}
	}
	w.backAndForth(spans)
}

// stopsGracefully has a service asked to stop, and checks that it ends as it should.
func (w *world) stopsGracefully(name string) {
	w.t.Helper()
	grace := 30 * time.Second
	c := w.running[name]
	if err := c.Stop(w.t.Context(), &grace); err != nil {
		w.t.Fatal(err)
	}
	state, err := c.State(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if state.ExitCode != 0 {
		w.t.Errorf("%s ends with code %d", name, state.ExitCode)
	}
}

// connected checks that the spans are one tree: each has its parent, but for the client's.
func (w *world) connected(spans []span) {
	w.t.Helper()
	known := map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	for _, s := range spans {
		switch {
		case s.Trace != spans[0].Trace:
			w.t.Errorf("span %q of %s is in another trace", s.Name, s.Service)
		case s.Parent == "" && s.Service != "client":
			w.t.Errorf("span %q of %s has no parent", s.Name, s.Service)
		case s.Parent != "" && !known[s.Parent]:
			w.t.Errorf("the parent of span %q of %s is missing", s.Name, s.Service)
		}
	}
}

// backAndForth checks the way from the client to a service and back.
func (w *world) backAndForth(spans []span) {
	w.t.Helper()
	served, ok := find(spans, func(s span) bool { return s.Service == "traveldesk" && s.Name == "process hotels.search" })
	if !ok {
		w.t.Fatal("the service has no span")
	}
	byID := map[string]span{}
	for _, s := range spans {
		byID[s.ID] = s
	}
	var way []string
	for s := served; s.ID != ""; s = byID[s.Parent] {
		way = append(way, s.Service+": "+s.Name)
	}
	want := []string{
		"traveldesk: process hotels.search", "agentd: execute_tool search_hotels", "agentd: invoke_agent travel.desk",
		"client: run travel.desk",
	}
	if !slices.Equal(way, want) {
		w.t.Errorf("the service's span is below %q, want %q", way, want)
	}
	if _, ok := find(spans, func(s span) bool { return s.kind() == "AGENT" && slices.Contains(s.Links, served.ID) }); !ok {
		w.t.Error("no activation links to the service's answer")
	}
}
