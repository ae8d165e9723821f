package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
	"agentd/test/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func greeter() sdk.Agent {
	return sdk.Agent{Spec: sdk.AgentSpec{
		Name: "greeter", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "script", Name: "script"},
		Contract: sdk.Contract{URI: "#/greeter", Type: "greeter", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object"}`),
			Emits:   map[string]json.RawMessage{"greeter.done": json.RawMessage(`{"type":"object"}`)},
		}}},
	}}
}

func scripted(sdk.ModelSpec) (sdk.Provider, error) { return sdktest.Script(sdktest.Say("Hello!")), nil }

func startServer(t *testing.T, port int) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true, Port: port, PortOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start runs a worker; stop asks it to stop and returns what Run returned.
func start(t *testing.T, o worker.Options) (serving <-chan struct{}, stop func() error) {
	t.Helper()
	began := make(chan struct{})
	tell := o.Serving
	o.Agents, o.Serving = []sdk.Agent{greeter()}, func() {
		if tell != nil {
			tell()
		}
		close(began)
	}
	if o.Models == nil {
		o.Models = scripted
	}
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, o) }()
	return began, func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("the worker does not stop")
		}
	}
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s does not happen", what)
	}
}

// greet starts a run and returns how it ended.
func greet(t *testing.T, url string) wire.Event {
	t.Helper()
	return greetAs(t, url, t.Name())
}

// greetAs is greet with a name for the run.
func greetAs(t *testing.T, url, name string) wire.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{URL: url, Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	event := wire.Event{ID: "1", Source: "test", Type: "greeter", Subject: name, Data: json.RawMessage(`{"message":"Hi"}`)}
	if err := conn.Start(ctx, "greeter", event); err != nil {
		t.Fatal(err)
	}
	done, err := conn.WaitDone(ctx, "greeter", wire.NewRunKey(name), wire.InitToken("test", "1"))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// Who was told that a worker serves may ask it at once.
func TestRun_AnswersBeforeItSaysThatItServes(t *testing.T) {
	server := startServer(t, -1)
	c, err := client.Connect(t.Context(), client.Options{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var answer error
	serving, stop := start(t, worker.Options{URL: server.URL(), Provision: true, Serving: func() {
		_, answer = c.Status(t.Context(), client.Run{Agent: "greeter", Name: "nobody"})
	}})
	await(t, "serving", serving)
	if !errors.Is(answer, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("a question of a run that is not there gives %v, want %s", answer, sdk.CodeUnknownRun)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// until polls url until it answers with that status.
func until(t *testing.T, url string, status int) (body string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		got, body := get(t, url)
		if got == status {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answers %d %q; want %d", url, got, body, status)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestRun_ServesAgents(t *testing.T) {
	s := startServer(t, ports.Free(t))
	serving, stop := start(t, worker.Options{URL: s.URL(), Provision: true})
	await(t, "serving", serving)
	if done := greet(t, s.URL()); done.Type != "greeter.done" {
		t.Errorf("the run ended with %s %s", done.Type, done.Data)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestRun_WaitsForNATSAndTellsItsReadiness(t *testing.T) {
	port := ports.Free(t)
	url, health := fmt.Sprintf("nats://127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	serving, stop := start(t, worker.Options{URL: url, Provision: true, HTTP: health})
	until(t, "http://"+health+"/livez", http.StatusOK)
	until(t, "http://"+health+"/readyz", http.StatusServiceUnavailable)
	s := startServer(t, port)
	await(t, "serving", serving)
	until(t, "http://"+health+"/readyz", http.StatusOK)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if reason := until(t, "http://"+health+"/readyz", http.StatusServiceUnavailable); reason == "" {
		t.Error("no reason is given")
	}
	if err := stop(); err != nil {
		t.Errorf("a worker that is stopped while NATS is away: %v", err)
	}
}

func TestRun_IsNotReadyWhileItFinishesItsSteps(t *testing.T) {
	s := startServer(t, ports.Free(t))
	health := fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
	asked, release := make(chan struct{}), make(chan struct{})
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		close(asked)
		<-release
		return sdktest.Say("Hello!"), nil
	})
	serving, stop := start(t, worker.Options{
		URL: s.URL(), Provision: true, HTTP: health, Grace: patience,
		Models: func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil },
	})
	await(t, "serving", serving)
	until(t, "http://"+health+"/readyz", http.StatusOK)
	ended := make(chan wire.Event, 1)
	go func() { ended <- greet(t, s.URL()) }()
	await(t, "the model call", asked)
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	until(t, "http://"+health+"/readyz", http.StatusServiceUnavailable)
	until(t, "http://"+health+"/livez", http.StatusOK)
	close(release)
	if done := <-ended; done.Type != "greeter.done" {
		t.Errorf("the run ended with %s %s", done.Type, done.Data)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestRun_EndsWhenAskedToWhileNATSIsAway(t *testing.T) {
	_, stop := start(t, worker.Options{URL: fmt.Sprintf("nats://127.0.0.1:%d", ports.Free(t))})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestRun_SaysWhatIsMissingOnTheBroker(t *testing.T) {
	s := startServer(t, ports.Free(t))
	err := worker.Run(t.Context(), worker.Options{
		URL: s.URL(), Agents: []sdk.Agent{greeter()}, Models: scripted, Logger: slog.New(slog.DiscardHandler),
	})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"AGENTD_START", "AGENTD_IN/agent_greeter", "agentd provision"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestRun_RefusesWrongAgentsBeforeItConnects(t *testing.T) {
	nobody := greeter()
	nobody.Spec.Name, nobody.Spec.System = "nobody", "{{.Nothing"
	keyless := greeter()
	keyless.Spec.Model = sdk.ModelSpec{Provider: "openai", Name: "gpt-4o-mini"}
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("OPENAI_BASE_URL", "")
	err := worker.Run(t.Context(), worker.Options{Agents: []sdk.Agent{nobody, keyless}})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"nobody", "template", "greeter", "API key"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	useless := greeter()
	useless.Tools, useless.Toolsets = []sdk.Tool{{Definition: sdk.ToolDefinition{Name: "look"}}}, []sdk.Toolset{nil}
	err = worker.Run(t.Context(), worker.Options{Agents: []sdk.Agent{useless}})
	want := []sdk.Fault{{Path: "$.Tools[0].Run", Expected: "a function", Got: "nil"}, {Path: "$.Toolsets[0]", Expected: "a toolset", Got: "nil"}}
	if e := sdk.AsError(err); e.Code != sdk.CodeConfig || !slices.Equal(e.Faults, want) {
		t.Errorf("tools that cannot be run: %v", err)
	}
	o := worker.Options{Agents: []sdk.Agent{greeter()}}
	if err := o.Extend("greeter", nil); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("no code to extend an agent with: %v", err)
	}
	if err := worker.Run(t.Context(), worker.Options{}); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("without agents: %v", err)
	}
}

// Permissions in a file may be about tools that are added in Go, so they are held to the tools when the worker starts.
func TestRun_HoldsTheFilesPermissionsToToolsInGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	const file = "agents: [{name: clerk, model: {name: m}, permissions: {require: [pay]}}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{
		"pay": "",
		"pya": `agent clerk: config: the agent names tools or arguments that do not exist; $.permissions.rules[0].tools[0]: ` +
			`expected a tool of the agent, got "pay"; did you mean "pya"?`,
	} {
		o, err := worker.FromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		err = o.Extend("clerk", func(a *sdk.Agent) {
			a.Tools = []sdk.Tool{{Definition: sdk.ToolDefinition{Name: tool}, Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return nil, nil
			}}}
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Models = scripted
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // what is wrong is said before it connects
		got := ""
		if err := worker.Run(ctx, o); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("with the tool %s: %q, want %q", tool, got, want)
		}
	}
}

// A number of replicas that is none must not count as 0: what was to be waited for would not be.
func TestOptions_WaitForReplicasOfRedis(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	const file = "redis: {url: 'redis://localhost', replicas: 2, replica_timeout: 3s}\nagents: [{name: clerk, model: {name: m}}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := worker.FromFile(path)
	if err != nil || o.RedisReplicas != 2 || o.RedisReplicaTimeout != 3*time.Second {
		t.Errorf("from the file: %d replicas, %s, %v", o.RedisReplicas, o.RedisReplicaTimeout, err)
	}
	for text, want := range map[string]int{"": 0, "3": 3} {
		t.Setenv("AGENTD_REDIS_REPLICAS", text)
		if o := worker.FromEnvironment(); o.RedisReplicas != want {
			t.Errorf("from the environment %q: %d replicas", text, o.RedisReplicas)
		}
	}
	for _, text := range []string{"two", "-1"} {
		t.Setenv("AGENTD_REDIS_REPLICAS", text)
		o := worker.FromEnvironment()
		o.Agents, o.Models = []sdk.Agent{greeter()}, scripted
		if err := worker.Run(t.Context(), o); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "AGENTD_REDIS_REPLICAS") {
			t.Errorf("from the environment %q: %v", text, err)
		}
	}
}
