// Package interop shows that services which agentd's authors did not write answer the calls of agents: programs in other
// languages, on a server that gives them no more than the permissions in docs/services.md. Their sources are in the
// folders beside this file, and are examples for whoever writes another.
package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/internal/harness"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ackWait is how long a delivery to a service lasts here, where services are killed.
const ackWait = time.Second

// world is an agent, desk, with one service, on a server that listens.
type world struct {
	*harness.Harness
	t *testing.T
	// host is the server's address, with the port.
	host     string
	contract sdk.Contract
	log      *serverLog
	// nc is stranger's.
	nc *nats.Conn
}

// docBlock is the code block of docs/services.md that contains text.
func docBlock(t *testing.T, language, text string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(doc), -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	t.Fatalf("docs/services.md has no block with %q", text)
	return ""
}

// docContract is the contract of docs/services.md.
func docContract(t *testing.T) sdk.Contract {
	t.Helper()
	c, err := contracts.Parse("weather.yaml", []byte(docBlock(t, "yaml", "weather.forecast")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newWorld starts the server and the agent. In its first turn the model makes the calls, each with these arguments, and
// then it is done. A call times out after timeout.
func newWorld(t *testing.T, contract sdk.Contract, timeout time.Duration, calls ...map[string]any) *world {
	t.Helper()
	w := newServer(t, contract)
	w.startAgent(timeout, calls...)
	return w
}

// newServer is a world with no agent yet, and nothing of what agentd provision makes.
func newServer(t *testing.T, contract sdk.Contract) *world {
	t.Helper()
	w := &world{t: t, contract: contract, log: &serverLog{}}
	w.host = w.startServer()
	return w
}

// startAgent starts the agent, as newWorld does.
func (w *world) startAgent(timeout time.Duration, calls ...map[string]any) {
	w.t.Helper()
	var asks []sdk.ToolRequest
	for _, arguments := range calls {
		asks = append(asks, sdktest.Tool(toolbox.Name(w.contract.Type), arguments))
	}
	w.Harness = harness.Start(w.t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: desk(w.contract, timeout)}},
		Model: sdktest.Script(sdktest.Ask(asks...), sdktest.Say("done")),
	})
}

// city are the arguments of a call.
func city(name string) map[string]any { return map[string]any{"city": name} }

func desk(service sdk.Contract, timeout time.Duration) sdk.AgentSpec {
	return sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "test", Name: "test"},
		Contract: sdk.Contract{URI: "#/desk", Type: "desk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: []byte(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`),
			Emits: map[string]json.RawMessage{
				"desk.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
			},
		}}},
		Services: []sdk.ServiceTool{{Contract: service, Version: "1.0.0", TimeoutMillis: timeout.Milliseconds()}},
	}
}

// startServer starts a server with two users: worker, who may do everything, and weather, who may do what docs/services.md
// gives to a service that does not use sdk/service.
func (w *world) startServer() (host string) {
	w.t.Helper()
	var config strings.Builder
	for line := range strings.SplitSeq(docBlock(w.t, "conf", "permissions"), "\n") {
		if !strings.Contains(line, "# sdk/service") {
			config.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&config, "host: 127.0.0.1\nport: -1\njetstream {store_dir: %q}\n", filepath.Join(w.t.TempDir(), "data"))
	return w.serve(strings.NewReplacer(
		"$WEATHER_PASSWORD", "cold", "users = [", "users = [\n{user: worker, password: hot}",
		"weather_forecast", wire.NameToken(w.contract.Type),
	).Replace(config.String()))
}

// serve starts a server with a configuration.
func (w *world) serve(text string) (host string) {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	options.NoSigs = true
	ns, err := server.NewServer(options)
	if err != nil {
		w.t.Fatal(err)
	}
	ns.SetLoggerV2(w.log, false, false, false)
	ns.Start()
	w.t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(harness.Patience) {
		w.t.Fatal("the server does not start")
	}
	return strings.TrimPrefix(ns.ClientURL(), "nats://")
}

// serverLog keeps what the server complains about.
type serverLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

func (l *serverLog) Warnf(format string, v ...any)  { l.Errorf(format, v...) }
func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

func (l *serverLog) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(&l.text, format+"\n", v...)
}

// violations are the subjects that a user was refused.
func (l *serverLog) violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, "Violation") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// consumer is the name of the service's consumer.
func (w *world) consumer() string {
	return streams.ServiceConsumer(w.contract.Domain, w.contract.Type).Name
}

func (w *world) consumerInfo() *jetstream.ConsumerInfo {
	w.t.Helper()
	c, err := w.Conn().JetStream().Consumer(w.t.Context(), "AGENTD_OUT", w.consumer())
	if err != nil {
		w.t.Fatal(err)
	}
	return c.CachedInfo()
}

// served waits until a service asks for calls: a process may take long to start.
func (w *world) served() {
	w.t.Helper()
	w.eventually("the service asks for calls", func() bool { return w.consumerInfo().NumWaiting > 0 })
}

// shorten makes deliveries to the service last for ackWait only.
func (w *world) shorten() {
	w.t.Helper()
	config := w.consumerInfo().Config
	config.AckWait = ackWait
	if _, err := w.Conn().JetStream().UpdateConsumer(w.t.Context(), "AGENTD_OUT", config); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until every call and void is acknowledged.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("all deliveries acknowledged", func() bool {
		info := w.consumerInfo()
		return info.NumPending == 0 && info.NumAckPending == 0
	})
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	poll.Until(w.t, harness.Patience, what, ok)
}

// result is what the model is told of a call.
type result struct {
	Text    string
	IsError bool
}

// results waits for the end of a run and returns what the model was told, in the order of the calls.
func (w *world) results(r harness.Run) []result {
	w.t.Helper()
	if ev := w.Done(r); ev.Type != "desk.done" {
		w.t.Fatalf("run %s ended with %s %s", r.Subject, ev.Type, ev.Data)
	}
	var told []result
	for _, m := range w.Messages(r) {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolResult {
				told = append(told, result{c.Text, c.IsError})
			}
		}
	}
	return told
}

// start starts a run under a subject of its own.
func (w *world) start(subject string) harness.Run {
	w.t.Helper()
	ev := w.Init("desk", map[string]string{"message": "hello"})
	ev.Subject, ev.ID = subject, subject
	return w.Send("desk", ev)
}

// answers are the events on the service's reply subjects.
func (w *world) answers() map[string]wire.Event {
	w.t.Helper()
	filter := w.Conn().Subjects().Root() + ".in.*." + wire.NameToken(w.contract.Type) + ".>"
	stream, err := w.Conn().JetStream().Stream(w.t.Context(), "AGENTD_IN")
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := stream.Info(w.t.Context(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		w.t.Fatal(err)
	}
	events := map[string]wire.Event{}
	for subject, n := range info.State.Subjects {
		m, err := stream.GetLastMsgForSubject(w.t.Context(), subject)
		if err != nil {
			w.t.Fatal(err)
		}
		if n != 1 {
			w.t.Errorf("%s has %d answers, want 1", subject, n)
		}
		if events[subject], err = wire.DecodeEvent(m.Header, m.Data); err != nil {
			w.t.Errorf("answer on %s: %v", subject, err)
		}
	}
	return events
}
