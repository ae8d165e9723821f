package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"agentd/internal/config"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

// deskFile has agents whose contracts are those that agentd makes for them.
const deskFile = `
models: {test: {base_url: "http://127.0.0.1:1/v1"}}
contracts: [weather.yaml]
agents:
  - name: desk
    model: {provider: test, name: test, context_window: 100000}
    tools: {services: [{contract: weather.forecast, as: forecast}], builtin: [ask_question]}
    permissions: {require: [forecast]}
  - name: talker
    model: {provider: test, name: test, context_window: 100000}
    text: converse
`

const weatherFile = `
uri: https://example.com/weather
type: weather.forecast
description: The weather of a city.
versions:
  1.0.0:
    accepts: {type: object, properties: {city: {type: string}}, required: [city]}
    emits: {weather.forecast.done: {type: object, properties: {text: {type: string}}, required: [text]}}
`

// strictly has the CloudEvents SDK for JavaScript make an event of each of the events, strictly, and returns its complaints.
const strictly = `
import { CloudEvent } from "cloudevents";
import { text } from "node:stream/consumers";
const complaint = (event) => { try { new CloudEvent(event); return ""; } catch (e) { return e.message; } };
console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(complaint)));
`

// recorder keeps the events that are published, with their subjects.
type recorder struct {
	mu       sync.Mutex
	subjects []string
	events   []json.RawMessage
}

func (r *recorder) hear(m *nats.Msg) {
	if m.Header.Get("Content-Type") != wire.ContentTypeStructured {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subjects, r.events = append(r.subjects, m.Subject), append(r.events, slices.Clone(m.Data))
}

// talkative runs whatever makes agents, services, people and operators publish an event of another kind.
func talkative(t *testing.T) *recorder {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"agentd.yaml": deskFile, "weather.yaml": weatherFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(filepath.Join(dir, "agentd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, contract: docContract(t), log: &serverLog{}}
	w.host = w.startServer()
	nc, err := nats.Connect("nats://worker:hot@" + w.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	heard := &recorder{}
	everything, err := nc.Subscribe("agentd.>", heard.hear)
	if err != nil {
		t.Fatal(err)
	}
	question := sdktest.Tool("ask_question", map[string]string{"question": "Which city?"})
	forecast := sdktest.Tool("forecast", city("Bern"))
	var agents []sdk.Agent
	for _, spec := range cfg.Agents {
		agents = append(agents, sdk.Agent{Spec: spec})
	}
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: agents,
		Model: sdktest.Script(sdktest.Ask(forecast), sdktest.Ask(question), sdktest.Say("sunny"), sdktest.Say("Where to?"), sdktest.Ask(question)),
	})
	people, err := client.Connect(t.Context(), client.Options{URL: "nats://worker:hot@" + w.host, As: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = people.Close() })
	serveWeather(t, w.host, dir)

	trip := w.begin(people, "desk", "trip")
	if _, err := people.Decide(t.Context(), trip, w.asked(people, trip, sdk.TypePermissionRequest).Call, sdk.PermissionDecision{
		Decision: sdk.DecisionAllow,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := people.Answer(t.Context(), trip, w.asked(people, trip, sdk.TypeQuestion).Call, client.Reply{Text: "Bern"}); err != nil {
		t.Fatal(err)
	}
	if _, err := people.Wait(t.Context(), trip); err != nil {
		t.Fatal(err)
	}
	talk := w.begin(people, "talker", "talk")
	w.asked(people, talk, sdk.TypeConversationTurn)
	if err := people.Cancel(t.Context(), talk, "enough"); err != nil { // its turn gets a void
		t.Fatal(err)
	}
	if _, err := people.Wait(t.Context(), talk); err == nil {
		t.Error("a cancelled run succeeded")
	}
	for agent, want := range map[string]sdk.Code{"nobody": sdk.CodeUnknownAgent, "desk": sdk.CodeContractViolation} {
		refused, err := people.Start(t.Context(), client.Request{Agent: agent, Name: "refused by " + agent, Input: map[string]int{"message": 7}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := people.Wait(t.Context(), refused); sdk.AsError(err).Code != want {
			t.Errorf("%s answers %v, want %s", agent, err, want)
		}
	}
	if err := everything.Drain(); err != nil {
		t.Fatal(err)
	}
	w.eventually("all that was published is heard", func() bool { return !everything.IsValid() })
	return heard
}

func serveWeather(t *testing.T, host, dir string) {
	t.Helper()
	weather, err := service.FromFile(filepath.Join(dir, "weather.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service.Handle(weather, func(context.Context, service.Call, struct{}) (map[string]string, error) {
		return map[string]string{"text": "sunny"}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: "nats://worker:hot@" + host}.Run(ctx, weather) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("service: %v", err)
		}
	})
}

// begin starts a run under a name of its own.
func (w *world) begin(c *client.Client, agent, name string) client.Run {
	w.t.Helper()
	run, err := c.Start(w.t.Context(), client.Request{Agent: agent, Name: name, Input: map[string]string{"message": "hello"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// asked waits until a person is asked something of that type.
func (w *world) asked(c *client.Client, run client.Run, contractType string) (asked client.Call) {
	w.t.Helper()
	w.eventually(contractType, func() bool {
		calls, err := c.Asked(w.t.Context(), run)
		i := slices.IndexFunc(calls, func(call client.Call) bool { return call.Type == contractType })
		if err == nil && i >= 0 {
			asked = calls[i]
		}
		return err == nil && i >= 0
	})
	return asked
}

// The libraries of CloudEvents hold events to the letter of its specification.
func TestCloudEvents_LibrariesTakeEveryEventThatIsPublished(t *testing.T) {
	t.Parallel()
	heard := talkative(t)
	heard.mu.Lock()
	defer heard.mu.Unlock()
	kinds, types := map[string]bool{}, map[string]bool{}
	for i, text := range heard.events {
		kinds[strings.Split(heard.subjects[i], ".")[1]] = true
		var peer event.Event
		if err := cmp.Or(peer.UnmarshalJSON(text), peer.Validate()); err != nil {
			t.Errorf("the SDK for Go refuses what is on %s: %v\n%s", heard.subjects[i], err, text)
		}
		types[peer.Type()] = true
	}
	if got, want := slices.Sorted(maps.Keys(kinds)), []string{"ctl", "done", "in", "out", "start", "stream", "void"}; !slices.Equal(got, want) {
		t.Errorf("events are on %s, want %s", got, want)
	}
	for _, want := range []string{
		"weather.forecast", "weather.forecast.done", sdk.TypePermissionRequest, sdk.TypePermissionDecided, sdk.TypeQuestion,
		sdk.TypeConversationTurn, wire.VoidType(sdk.TypeConversationTurn), "desk", "desk.done", "sys.desk.error", "sys.talker.error",
		"sys.nobody.error", "agentd.live.run.started", "agentd.live.turn.started", "agentd.live.permission.requested",
	} {
		if !types[want] {
			t.Errorf("no event of type %s was published", want)
		}
	}
	input, err := json.Marshal(heard.events)
	if err != nil {
		t.Fatal(err)
	}
	var complaints []string
	if err := json.Unmarshal(runNode(t, strictly, input), &complaints); err != nil {
		t.Fatal(err)
	}
	if len(complaints) != len(heard.events) {
		t.Fatalf("the SDK for JavaScript looked at %d events of %d", len(complaints), len(heard.events))
	}
	for i, complaint := range complaints {
		if complaint != "" {
			t.Errorf("the SDK for JavaScript refuses what is on %s: %s\n%s", heard.subjects[i], complaint, heard.events[i])
		}
	}
}

// starts has the CloudEvents SDK for JavaScript make init events in binary mode, which the NATS client publishes: one whose attributes
// hold what the SDK does not encode, and one whose data is a text.
const starts = `
import { CloudEvent, HTTP } from "cloudevents";
import { connect, headers } from "@nats-io/transport-node";
import { text } from "node:stream/consumers";
const { servers, user, pass } = JSON.parse(await text(process.stdin));
const nc = await connect({ servers, user, pass });
const start = (attributes) => {
  const { headers: values, body } = HTTP.binary(new CloudEvent({ type: "desk", source: "/shop", ...attributes }));
  const h = headers();
  for (const [name, value] of Object.entries(values)) h.set(name, value);
  nc.publish("agentd.start.desk", body, { headers: h });
};
start({ id: "1", subject: "50% of Zürich", accesscontrol: "für % alle", data: { message: "hello" } });
start({ id: "2", data: "hello" });
await nc.flush();
await nc.close();
`

func TestCloudEvents_InitEventsOfTheJavaScriptSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute)
	input, err := json.Marshal(map[string]string{"servers": w.host, "user": "worker", "pass": "hot"})
	if err != nil {
		t.Fatal(err)
	}
	runNode(t, starts, input)
	of := func(name, id string) harness.Run {
		r := harness.Run{Agent: "desk", Subject: name, Init: wire.InitToken("/shop", id)}
		r.Subject = cmp.Or(r.Subject, wire.DefaultSubject(r.Init))
		r.Key = wire.NewRunKey(r.Subject)
		return r
	}
	if end := w.Done(of("50% of Zürich", "1")); end.Type != "desk.done" || end.AccessControl != "für % alle" {
		t.Errorf("the run ended with %s %s for %q", end.Type, end.Data, end.AccessControl)
	}
	if end := w.Done(of("", "2")); end.Type != "sys.desk.error" || !strings.Contains(string(end.Data), `"path":"$.data"`) {
		t.Errorf("data that is a text was answered with %s %s", end.Type, end.Data)
	}
	if d := w.DeadLetter(); d.Reason != string(sdk.CodeInvalidEvent) {
		t.Errorf("dead letter %+v", d)
	}
}
