package interop

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Whoever may see all runs sees and cancels those that others have started, also under a name of their own; others are told that they may not.
func TestNodeSDK_RunsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	for _, name := range []string{"trip", "tour"} {
		init := w.Init("desk", map[string]string{"message": "hello"})
		init.Subject, init.ID = name, name
		w.Suspended(w.SendAs("bob", "desk", init), 1)
	}
	want := [][]any{
		{"status", "bob"},
		{"asked", 0.0},
		{"cancelled", "cancelled"},
		{"not theirs", "permission_denied"},
	}
	if diff := cmp.Diff(want, w.nodeSays("others_sdk.mjs")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.NoDeadLetter()
}

// The result of a run is the end that is stored, not one that is heard and refused.
func TestNodeSDK_RefusedEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute)
	nc, err := nats.Connect("nats://worker:hot@" + w.host)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	key, init := wire.NewRunKey("trip"), wire.InitToken("test", "init")
	subject := w.Conn().Subjects().Done("desk", key, init)
	looked, err := nc.SubscribeSync("$JS.API.DIRECT.GET.AGENTD_DONE." + subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	end := func(text string) []byte {
		e := wire.Event{ID: "end", Source: "desk", Type: "desk.done", Subject: "trip", Data: []byte(`{"response":"` + text + `"}`)}
		body, err := e.Encode()
		if err != nil {
			t.Error(err)
		}
		return body
	}
	var published sync.WaitGroup
	published.Go(func() {
		if _, err := looked.NextMsg(harness.Patience); err != nil { // so it listens
			t.Error(err)
		}
		refused := &nats.Msg{Subject: subject, Data: end("refused"), Header: nats.Header{"Nats-Expected-Last-Subject-Sequence": {"7"}}}
		if err := nc.PublishMsg(refused); err != nil {
			t.Error(err)
		}
		if _, err := looked.NextMsg(harness.Patience); err != nil {
			t.Error(err)
		}
		w.PublishRaw(subject, end("stored"))
	})
	run := map[string]any{"agent": "desk", "name": "trip", "init": init}
	got, _ := w.clientSays(nodeSDKClient(t, "client_conformance.mjs"), map[string]any{"do": "wait", "run": run})["result"].(map[string]any)
	published.Wait()
	if diff := cmp.Diff(map[string]any{"response": "stored"}, got["data"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whoever starts a run narrows its constraints, and gives it tags and a trace.
func TestNodeSDK_Terms(t *testing.T) {
	t.Parallel()
	w := newServer(t, docContract(t))
	spec := desk(w.contract, time.Minute)
	spec.Constraints = &sdk.Constraints{}
	w.Harness = harness.Start(t, harness.Options{
		URL: "nats://worker:hot@" + w.host, Agents: []sdk.Agent{{Spec: spec}},
		Model: sdktest.Script(sdktest.Ask(sdktest.Tool("weather_forecast", city("Bern"))), sdktest.Say("done")),
	})
	program := nodeSDKClient(t, "client_conformance.mjs")
	init := wire.InitToken("agentd.client", "trip")
	got := w.clientSays(program, map[string]any{
		"do": "start", "agent": "desk", "data": map[string]any{"message": "hello"}, "key": "trip", "name": "trip", "tracestate": "vendor=1",
		"constraints": map[string]any{"deny": []string{"weather_*"}}, "tags": map[string]any{"tenant": "acme", "order": "7"},
	})
	if diff := cmp.Diff(map[string]any{"run": map[string]any{"agent": "desk", "name": "trip", "init": init}}, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	r := harness.Run{Agent: "desk", Subject: "trip", Key: wire.NewRunKey("trip"), Init: init}
	if told := w.results(r); len(told) != 1 || !strings.Contains(told[0].Text, string(sdk.ViolationTool)) {
		t.Errorf("the model was told %+v", told)
	}
	if end := w.Done(r); end.TraceState != "vendor=1" {
		t.Errorf("the trace of the run's end is %q, want vendor=1", end.TraceState)
	}
	status, _ := w.clientSays(program, map[string]any{"do": "status", "run": map[string]any{"agent": "desk", "name": "trip"}})["status"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"tenant": "acme", "order": "7"}, status["tags"]); diff != "" {
		t.Errorf("tags: -want +got:\n%s", diff)
	}
	w.NoDeadLetter()
}
