// Package deploy_test checks that what /deploy shows of agentd is what agentd has: a worker runs, and its /metrics is read.
package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
	"agentd/test/poll"
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
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true, Port: ports.Free(t)})
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
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{URL: s.URL(), Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	start := func(event wire.Event) {
		if err := conn.Start(t.Context(), "desk", event); err != nil {
			t.Fatal(err)
		}
	}
	start(wire.Event{ID: "1", Source: "test", Type: "desk", Subject: "first", Data: json.RawMessage(`{}`)})
	start(wire.Event{ID: "2", Source: "test", Type: "desk", Subject: "second", Data: json.RawMessage(`{}`)})
	cancelled := wire.Event{ID: "3", Source: "test", Type: "cancel", Subject: "first", Data: json.RawMessage(`{}`)}
	answered := wire.DefaultSubjects().Call(wire.CallAddress{
		Domain: "local", Type: "shop_find", Agent: "desk", Run: wire.NewRunKey("nobody"), Call: "c1-0-aaaaaaaaaaaaaaaaaaaaaaaaaa",
	})
	orphan := wire.Event{ID: "4", Source: "test", Type: "shop.found", Subject: "nobody", Data: json.RawMessage(`{}`)}
	if err := conn.Answer(t.Context(), answered, orphan); err != nil {
		t.Fatal(err)
	}
	var text string
	suspended := regexp.MustCompile(`agentd_runs_suspended_total{[^}]*} 2\n`)
	eventually(t, "two suspended runs and a dead letter", func() bool {
		text = read(t, url+"/metrics")
		return suspended.MatchString(text) && strings.Contains(text, "agentd_dead_letters_total{")
	})
	if err := conn.Control(t.Context(), wire.ControlCancel, "desk", wire.NewRunKey("first"), "", cancelled); err != nil {
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
	poll.Until(t, patience, what, holds)
}

// rare is what a worker measures that does not happen in metrics: another worker's death, waiting for a minute, answers, a reply
// that is none, and failures of models; and what the program of a service measures.
func rare(t *testing.T) string {
	t.Helper()
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Scrape: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shown.Close(); err != nil {
			t.Error(err)
		}
	})
	levels, err := shown.Levels()
	if err != nil {
		t.Fatal(err)
	}
	levels.SetRuns([]telemetry.Runs{{Agent: "desk", Status: "waiting", Count: 1, Oldest: 60}},
		[]telemetry.Parked{{Agent: "desk", Why: "model", Count: 1, Oldest: 60}})
	watcher := shown.Observer()
	ctx := watcher.Begin(t.Context(), &runner.Message{})
	watcher.Loaded(ctx, &core.Head{}, 0)
	watcher.Appended(ctx, &core.Entry{Change: core.Change{Head: core.Head{Agent: "desk", Driver: &core.Driver{Takeovers: 1}}}}, 1)
	watcher.Appended(ctx, &core.Entry{Change: core.Change{
		Head: core.Head{Agent: "desk"}, Guards: []core.GuardHit{{Guard: core.GuardRepeat, Tool: "note"}}, Offered: &core.Offered{},
		Judged: &core.Judged{Judge: "empty", Times: 1},
	}}, 1)
	watcher.Answered(ctx, runner.Attempt{Agent: "desk", Type: "shop.find", Millis: 5, Outcome: "ok"})
	watcher.End(ctx, runner.Verdict{}, nil)
	shown.Delivered(ctx, "agent_desk", 2)
	_, _, end := shown.Serve(ctx, &wire.Event{Type: "shop.find"})
	end(ctx, nil)
	broken := sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, io.ErrUnexpectedEOF }}
	if _, err := watcher.Tool(ctx, broken, sdk.ToolCall{Tool: "note"}); err == nil {
		t.Error("the tool does not fail")
	}
	models := shown.Models(func(sdk.ModelSpec) (sdk.Provider, error) {
		return sdktest.Script(), nil
	})
	model, err := models(sdk.ModelSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.Generate(ctx, sdk.ModelRequest{Model: "small"}, nil); err == nil {
		t.Error("the model does not fail")
	}
	recorder := httptest.NewRecorder()
	shown.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

// labels are the labels of each metric, by the names that Prometheus has for it.
func labels(texts ...string) map[string][]string {
	have := map[string][]string{}
	for _, text := range texts {
		for _, m := range sample.FindAllStringSubmatch(text, -1) {
			have[m[1]] = append(have[m[1]], "")
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				have[m[1]] = append(have[m[1]], l[1])
			}
		}
	}
	return have
}

func TestMetrics_AreThoseOfTheDashboardAndTheDocs(t *testing.T) {
	texts := []string{metrics(t), rare(t)}
	for _, text := range texts {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("metric %s: %s", p.Metric, p.Text)
		}
	}
	have := labels(texts...)
	for _, expression := range expressions(t) {
		for _, m := range metricName.FindAllStringSubmatch(grouping.ReplaceAllString(expression, ""), -1) {
			name := m[1]
			if have[name] == nil {
				t.Errorf("the dashboard shows %s, which no worker has: %s", name, expression)
			}
			for _, label := range asked(expression) {
				if !slices.Contains(have[name], label) {
					t.Errorf("the dashboard asks for %q, which %s has not: %s", label, name, expression)
				}
			}
		}
	}
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| metric | labels |")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for line := range strings.SplitSeq(table, "\n") {
		names, of, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range documentedName.FindAllStringSubmatch(names, -1) {
			documented[m[1]] = true
			series := have[m[1]]
			if series == nil {
				series = have[m[1]+"_count"] // of a histogram
			}
			if series == nil {
				t.Errorf("docs/operations.md has %s, which nothing measures", m[1])
			}
			for _, l := range quotedName.FindAllStringSubmatch(of, -1) {
				if strings.Contains(l[1], "_") && !slices.Contains(series, l[1]) {
					t.Errorf("docs/operations.md has the label %s, which %s has not", l[1], m[1])
				}
			}
		}
	}
	for _, text := range texts {
		for _, m := range family.FindAllStringSubmatch(text, -1) {
			if name := m[1]; name != "target_info" && !documented[name] {
				t.Errorf("docs/operations.md does not have %s", name)
			}
		}
	}
}

// Parts of what Prometheus is served, of its queries, and of the docs.
var (
	sample         = regexp.MustCompile(`(?m)^([a-z_]+)(?:{(.*)})? \S+$`)
	label          = regexp.MustCompile(`([a-z_]+)="`)
	family         = regexp.MustCompile(`(?m)^# TYPE ([a-z_]+) `)
	metricName     = regexp.MustCompile(`\b((?:agentd|gen_ai|messaging)_[a-z_]+)(?:[{[)]|$)`)
	grouping       = regexp.MustCompile(`by \(([^)]*)\)`)
	selector       = regexp.MustCompile(`([a-z_]+)(?:=~|!=|=)"`)
	documentedName = regexp.MustCompile("`((?:agentd|gen_ai|messaging)_[a-z_]+)`")
	quotedName     = regexp.MustCompile("`([a-z_]+)`")
)

// asked are the labels that a query groups and selects by.
func asked(expression string) []string {
	var all []string
	for _, m := range grouping.FindAllStringSubmatch(expression, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			all = append(all, strings.TrimSpace(name))
		}
	}
	for _, m := range selector.FindAllStringSubmatch(expression, -1) {
		all = append(all, m[1])
	}
	return all
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
