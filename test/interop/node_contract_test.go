package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Whoever waits for a run, follows it or serves is told when the connection is closed, and who gave up themselves, why.
func TestNodeSDK_ClientThatEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	got := w.nodeSays("ended_sdk.mjs")
	closed, before := []any{"closed", "unavailable"}, []any{"closed before", "unavailable"}
	want := [][]any{
		{"timed out", "TimeoutError"},
		{"aborted", "RangeError"},
		{"aborted before", "RangeError"},
		{"a name over two lines", "invalid_event"},
		{"no message", "message_refused"},
		closed, closed, closed, closed, before, before, before,
		{"a service", "unavailable"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a form is filled in with is the answer to its question, a decision on several calls says what it is on, and what no run could use is
// refused at once.
func TestNodeSDK_Answers(t *testing.T) {
	t.Parallel()
	w := newServer(t, docContract(t))
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: answersSpec(w.contract)}},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "When?"})),
			sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern")), sdktest.Tool("weather_forecast", city("Rome"))),
			sdktest.Say("done"),
		),
	})
	run(t, nodeSDKCommand(t), w.host)
	want := [][]any{
		{"an empty answer", "contract_violation"},
		{"a text and data", "contract_violation"},
		{"result", `{"answer":"{\"month\":\"May\"}","content":{"month":"May"}}`},
		{"a decision on nothing", "decision_refused"},
		{"a decision that is none", "decision_refused"},
		{"result", `{"error":{"code":"permission_denied","message":"weather_forecast is not allowed: too far"}}`},
		{"result", `{"text":"sunny in Bern"}`},
		{"done", "completed:answer"},
	}
	if diff := cmp.Diff(want, w.nodeSays("answers_sdk.mjs")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.NoDeadLetter()
}

// nodeSays are the lines of JSON that a client with sdk/node prints.
func (w *world) nodeSays(file string) [][]any {
	w.t.Helper()
	return w.says(nodeSDKClient(w.t, file))
}

// A call that nobody waits for any more is not begun when its turn comes.
func TestNodeSDK_CallVoidedInTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"), city("Oslo"))
	c := nodeSDKService(t, "queued_sdk.mjs")
	c.env = append(c.env, "NATS_USER=worker", "NATS_PASSWORD=hot")
	s := said{w, run(t, c, w.host)}
	r := w.start("trip")
	s.eventually("CALLED Bern")
	queued := w.Suspended(r, 2).Calls[1].ID
	cancelled, err := client.New(w.Conn(), client.Options{}).CancelCall(t.Context(), client.Run{Agent: "desk", Name: "trip"}, queued, "")
	if err != nil || !cancelled {
		t.Fatalf("cancelled %v, %v", cancelled, err)
	}
	w.Void(w.contract.Type)
	nc, err := nats.Connect("nats://worker:hot@" + w.host)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish("continue", nil); err != nil {
		t.Fatal(err)
	}
	if got := w.results(r); len(got) != 2 || !strings.Contains(got[0].Text, "sunny in Bern") || !strings.Contains(got[1].Text, string(sdk.CodeCancelled)) {
		t.Errorf("the model was told %+v", got)
	}
	w.settled()
	s.times(0, "CALLED Oslo")
	w.NoDeadLetter()
}

// Another root has streams and subjects of its own.
func TestNodeSDK_Root(t *testing.T) {
	t.Parallel()
	w := newServer(t, docContract(t))
	ctx, stop := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(stop)
	subjects, err := wire.NewSubjects("acme")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := broker.Connect(ctx, broker.ConnectOptions{URL: "nats://worker:hot@" + w.host, Name: t.Name(), Subjects: subjects})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	plan := provision.Plan{Agents: []provision.Agent{{Name: "desk", Type: "desk"}}, Services: []provision.Service{{Type: w.contract.Type}}}
	if _, err := provision.Apply(ctx, conn, plan); err != nil {
		t.Fatal(err)
	}
	c := nodeSDKCommand(t)
	c.env = append(c.env, "NATS_USER=worker", "NATS_PASSWORD=hot", "AGENTD_ROOT=acme")
	run(t, c, w.host)
	key := wire.NewRunKey("trip")
	call := wire.CallAddress{
		Domain: wire.LocalDomain, Type: wire.NameToken(w.contract.Type), Agent: "desk", Run: key,
		Call: wire.CallID(key, "init", 1, 0, w.contract.Type, []byte(`{"city":"Bern"}`)),
	}
	event := wire.Event{ID: call.Call, Source: "test", Type: w.contract.Type, Subject: "trip", Data: []byte(`{"city":"Bern"}`)}
	if err := conn.Publish(ctx, subjects.Call(call), event); err != nil {
		t.Fatal(err)
	}
	var answer wire.Event
	err = conn.Watch(ctx, streams.In, []string{subjects.Reply(call)}, func(d broker.Delivery) bool {
		answer, err = wire.DecodeEvent(d.Headers(), d.Data())
		return false
	})
	if err != nil || answer.Type != "weather.forecast.done" || answer.DataSchema != sdk.SchemaRef(w.contract.URI, "1.0.0") {
		t.Errorf("the call is answered with %+v, %v", answer, err)
	}

	end := wire.Event{ID: "end", Source: "desk", Type: "desk.done", Subject: "trip", Data: []byte(`{"response":"done"}`)}
	init := wire.InitToken("test", "init")
	if err := conn.Publish(ctx, subjects.Done("desk", key, init), end); err != nil {
		t.Fatal(err)
	}
	waiting := nodeSDKClient(t, "client_conformance.mjs")
	waiting.env = append(waiting.env, "AGENTD_ROOT=acme")
	asked := map[string]any{"do": "wait", "run": map[string]any{"agent": "desk", "name": "trip", "init": init}}
	if got := w.clientSays(waiting, asked); got["result"] == nil {
		t.Errorf("who waits is told %v", got)
	}
}
