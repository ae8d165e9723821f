// Package deploy_test checks that what /deploy shows of agentd is what agentd has: a worker runs, and its /metrics is read.
package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/worker"
	"agentd/test/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func contract(name string) sdk.Contract {
	return sdk.Contract{URI: "#/" + name, Type: name, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`), Emits: map[string]json.RawMessage{name + ".done": json.RawMessage(`{"type":"object"}`)},
	}}}
}

// desk uses a tool and asks a service, which does not answer.
func desk() (sdk.Agent, sdk.Provider) {
	agent := sdk.Agent{
		Spec: sdk.AgentSpec{
			Name: "desk", Version: "1.0.0", Contract: contract("desk"), Model: sdk.ModelSpec{Provider: "script", Name: "script"},
			Services: []sdk.ServiceTool{{Contract: contract("shop.find"), Version: "1.0.0"}},
		},
		Tools: []sdk.Tool{{
			Definition: sdk.ToolDefinition{Name: "note", Parameters: json.RawMessage(`{"type":"object"}`)},
			Run:        func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return json.RawMessage(`{}`), nil },
		}},
	}
	reply := sdktest.Ask(sdktest.Tool("note", map[string]any{}), sdktest.Tool("shop_find", map[string]any{}))
	reply.Usage = sdk.Usage{Prompt: 5, Completion: 3}
	return agent, sdktest.Script(reply)
}

// metrics are what a worker serves to Prometheus after two runs were suspended, one of them was cancelled, and a message
// was dead-lettered.
func metrics(t *testing.T) string {
	t.Helper()
	s, err := broker.StartServer(broker.ServerOptions{Dir: t.TempDir(), Listen: true, Port: ports.Free(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	agent, model := desk()
	address := fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, worker.Options{
			URL: s.URL(), Provision: true, HTTP: address, Agents: []sdk.Agent{agent}, Grace: patience,
			Models: func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil },
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	url := "http://" + address
	eventually(t, "readiness", func() bool { return status(url+"/readyz") == http.StatusOK })
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{URL: s.URL(), Subjects: sdk.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	start := func(event sdk.Event) {
		if err := conn.Start(t.Context(), "desk", event); err != nil {
			t.Fatal(err)
		}
	}
	start(sdk.Event{ID: "1", Source: "test", Type: "desk", Subject: "first", Data: json.RawMessage(`{}`)})
	start(sdk.Event{ID: "2", Source: "test", Type: "desk", Subject: "second", Data: json.RawMessage(`{}`)})
	cancelled := sdk.Event{ID: "3", Source: "test", Type: "cancel", Subject: "first", Data: json.RawMessage(`{}`)}
	if err := conn.Control(t.Context(), sdk.ControlCancel, "desk", sdk.NewRunKey("nobody"), cancelled); err != nil {
		t.Fatal(err)
	}
	var text string
	suspended := regexp.MustCompile(`agentd_runs_suspended_total{[^}]*} 2\n`)
	eventually(t, "two suspended runs and a dead letter", func() bool {
		text = read(t, url+"/metrics")
		return suspended.MatchString(text) && strings.Contains(text, "agentd_dead_letters_total{")
	})
	if err := conn.Control(t.Context(), sdk.ControlCancel, "desk", sdk.NewRunKey("first"), cancelled); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a run that was suspended", func() bool {
		text = read(t, url+"/metrics")
		return strings.Contains(text, "agentd_run_suspended_duration_seconds_count") && strings.Contains(text, "agentd_runs_finished_total{")
	})
	return text
}

func status(url string) int {
	response, err := http.Get(url)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

func read(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// unmeasured are metrics of what does not happen in this test: a worker that dies, and the program of a service.
var unmeasured = []string{"agentd_takeovers_total", "agentd_redeliveries_total", "agentd_runs_current", "agentd_runs_oldest_age_seconds"}

func TestMetrics_AreThoseOfTheDashboardAndTheDocs(t *testing.T) {
	text := metrics(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)[{ ]`).FindAllStringSubmatch(text, -1) {
		have[m[1]] = true
	}
	labels := map[string]bool{"le": true}
	for _, m := range regexp.MustCompile(`[{,]([a-z_]+)="`).FindAllStringSubmatch(text, -1) {
		labels[m[1]] = true
	}
	for _, expression := range expressions(t) {
		for _, name := range regexp.MustCompile(`\b(?:agentd|gen_ai|messaging)_[a-z_]+(?:_total|_bucket|_count|_sum|_seconds|_lag|_current|_active|_unacknowledged)\b`).FindAllString(expression, -1) {
			if !have[name] && !slices.Contains(unmeasured, name) {
				t.Errorf("the dashboard shows %s, which no worker has: %s", name, expression)
			}
		}
		for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				if label = strings.TrimSpace(label); !labels[label] && label != "agentd_run_status" && label != "error_type" {
					t.Errorf("the dashboard groups by %q, which no metric has: %s", label, expression)
				}
			}
		}
	}
	documented, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE ([a-z_]+) `).FindAllStringSubmatch(text, -1) {
		if name := m[1]; name != "target_info" && !strings.Contains(string(documented), "`"+name+"`") {
			t.Errorf("docs/operations.md does not have %s", name)
		}
	}
}

// expressions are the queries of the dashboard.
func expressions(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("grafana/agentd.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "{, ") || strings.Contains(target.Expr, "{}") {
				t.Errorf("panel %q: %s", p.Title, target.Expr)
			}
			all = append(all, target.Expr)
		}
	}
	return all
}
