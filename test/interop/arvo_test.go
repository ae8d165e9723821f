package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// arvoContract is the contract of node/forecast.mjs, as far as agentd is to hold the service and the model to it. It is
// laxer with cities than the service and stricter with days.
func arvoContract(*testing.T) sdk.Contract {
	return sdk.Contract{
		URI: "#/weather/forecast", Type: "com.weather.forecast",
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type":"object","required":["city"],"properties":{
				"city":{"type":"string"},"days":{"type":"integer","default":1}}}`),
			Emits: map[string]json.RawMessage{"evt.weather.forecast.success": json.RawMessage(`{"type":"object","required":["text"],
				"properties":{"text":{"type":"string"},"days":{"type":"integer","maximum":7}}}`)},
		}},
	}
}

// kiritimati is where clocks are furthest ahead: Arvo writes local times and calls them UTC.
const kiritimati = "TZ=Pacific/Kiritimati"

func TestArvo_WhatItAnswersAndWhatItIsSilentAbout(t *testing.T) {
	t.Parallel()
	c := arvoCommand(t)
	c.env = append(c.env, kiritimati)
	cases := []struct {
		name string
		args map[string]any
		// want is in what the model is told. A code makes it an error.
		want string
		code sdk.Code
	}{
		{"an answer", city("Bern"), `{"text":"sunny in Bern","days":1}`, ""},
		{"the first of two events", city("Eldorado"), `{"text":"forecast 1"}`, ""},
		{"an exception", city("Atlantis"), "the weather is unknown in Atlantis", sdk.CodeTool},
		{"an answer that only Arvo takes for valid", map[string]any{"city": "Bern", "days": 100}, "$.days", sdk.CodeContractViolation},
		{"arguments that its contract refuses", city(""), "did not answer in time", sdk.CodeDeadline},
		{"an answer that its contract refuses", city("Carcosa"), "did not answer in time", sdk.CodeDeadline},
		{"a string that is thrown", city("Babel"), "did not answer in time", sdk.CodeDeadline},
		{"no event", city("Dis"), "did not answer in time", sdk.CodeDeadline},
	}
	var calls []map[string]any
	for _, tt := range cases {
		calls = append(calls, tt.args)
	}
	w := newWorld(t, arvoContract(t), 10*time.Second, calls...)
	p := run(t, c, w.host)
	w.served()
	got := w.results(w.start("trip 1"))
	for i, tt := range cases {
		if got[i].IsError != (tt.code != "") || !strings.Contains(got[i].Text, tt.want) || !strings.Contains(got[i].Text, string(tt.code)) {
			t.Errorf("%s: the model was told %+v, want %s %s", tt.name, got[i], tt.code, tt.want)
		}
		if strings.Contains(got[i].Text, ".mjs") {
			t.Errorf("%s: the model was told where in the service it happened: %s", tt.name, got[i].Text)
		}
	}
	w.settled()
	w.NoDeadLetter()
	if n := strings.Count(p.log.String(), "no answer to "); n != 3 {
		t.Errorf("the bridge reports %d violations, want 3", n)
	}
}

// The traps of arvo-event-handler 2.2.13 are there, and do no harm.
func TestArvo_AnswersAreOddAndCountAllTheSame(t *testing.T) {
	t.Parallel()
	c := arvoCommand(t)
	c.env = append(c.env, kiritimati)
	w := newWorld(t, arvoContract(t), time.Minute, city("Bern"), city("Atlantis"))
	run(t, c, w.host)
	const subject = "trip 50%"
	if got := w.results(w.start(subject)); got[0].IsError || !got[1].IsError {
		t.Errorf("the model was told %+v", got)
	}
	answers := w.answers()
	if len(answers) != 2 {
		t.Fatalf("there are %d answers, want 2", len(answers))
	}
	for at, ev := range answers {
		if ev.To != at {
			t.Errorf("an answer to %s is on %s", ev.To, at)
		}
		if ev.ParentID != "" {
			t.Errorf("the answer says what it answers: %s", ev.ParentID)
		}
		if ev.Subject == subject {
			t.Errorf("subject %q came back as it was", ev.Subject)
		}
		if ahead := time.Until(ev.Time); ahead < 13*time.Hour {
			t.Errorf("the clock is only %s ahead", ahead)
		}
		units, schema := sdk.Units(500_000), "#/weather/forecast/1.0.0"
		if ev.Type == "sys.com.weather.forecast.error" {
			units, schema = 250_000, "#/weather/forecast/0.0.0"
		}
		if ev.ExecutionUnits != units || ev.DataSchema != schema {
			t.Errorf("%s has %s units and schema %s, want %s and %s", ev.Type, ev.ExecutionUnits, ev.DataSchema, units, schema)
		}
	}
}

// runNode runs a module that uses the packages of node/package.json, and returns what it writes.
func runNode(t *testing.T, module string, input []byte) []byte {
	t.Helper()
	cmd := exec.Command("node", "--input-type=module", "-e", module)
	cmd.Dir, cmd.Stdin = nodeFolder(t), bytes.NewReader(input)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("with %s: %v\n%s", input, err, complaint.String())
	}
	return out
}

// arvoEvent gives an event in structured mode to the constructor of arvo-core, which fills in nothing, and returns what
// it makes of it.
const arvoEvent = `
import { ArvoEvent } from "arvo-core";
import { text } from "node:stream/consumers";
const known = ["id", "source", "specversion", "type", "subject", "time", "datacontenttype", "dataschema",
  "to", "accesscontrol", "redirectto", "executionunits", "traceparent", "tracestate"];
const { data, ...rest } = JSON.parse(await text(process.stdin));
const context = Object.fromEntries(known.filter((name) => name in rest).map((name) => [name, rest[name]]));
const extensions = Object.fromEntries(Object.entries(rest).filter(([name]) => !known.includes(name)));
console.log(JSON.stringify(new ArvoEvent(context, data, extensions)));
`

func TestArvo_ConstructorTakesEveryEventAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, arvoContract(t), time.Minute, city("Bern"))
	r := w.start("trip/1")
	call := w.Call(w.contract.Type)
	call.Answer("evt.weather.forecast.success", map[string]string{"text": "sunny"})
	for what, ev := range map[string]wire.Event{"call": call.Event, "terminal event": w.Done(r)} {
		if what == "terminal event" {
			ev.Type = "com.agent.desk" // Arvo wants three parts
		}
		want, err := ev.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := wire.DecodeEvent(nil, runNode(t, arvoEvent, want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ev, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-ours +what Arvo has):\n%s", what, diff)
		}
	}
}

// cloudEvents has the CloudEvents SDK for JavaScript write an event in both modes.
const cloudEvents = `
import { CloudEvent, HTTP } from "cloudevents";
import { text } from "node:stream/consumers";
const { id, subject } = JSON.parse(await text(process.stdin));
const event = new CloudEvent({ type: "weather.forecast.done", source: "/weather", subject, parentid: id,
  executionunits: 7, datacontenttype: "application/json", data: { text: "fine" } });
console.log(JSON.stringify([HTTP.binary(event), HTTP.structured(event)]));
`

func TestCloudEvents_AnswersOfTheJavaScriptSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"), city("Oslo"))
	r := w.start("trip")
	for mode := range 2 {
		call := w.Call(w.contract.Type)
		event, err := call.Event.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var messages []struct {
			Headers map[string]any
			Body    json.RawMessage
		}
		if err := json.Unmarshal(runNode(t, cloudEvents, event), &messages); err != nil {
			t.Fatal(err)
		}
		m := reply{headers: nats.Header{}}
		for name, value := range messages[mode].Headers {
			m.headers[name] = []string{fmt.Sprint(value)}
		}
		if err := json.Unmarshal(messages[mode].Body, &m.body); err != nil {
			t.Fatal(err)
		}
		w.send(call, m)
	}
	for _, got := range w.results(r) {
		if got != (result{Text: fine}) {
			t.Errorf("the model was told %+v", got)
		}
	}
	w.NoDeadLetter()
}

// arvoParent has arvo-core make the event by which an orchestrator, in the middle of a run of its own, starts the agent as its child.
const arvoParent = `
import { ArvoOrchestrationSubject, createArvoOrchestratorContract, createArvoOrchestratorEventFactory } from "arvo-core";
import { z } from "zod";
const contract = createArvoOrchestratorContract({ uri: "#/orc/desk", name: "desk", versions: {
  "1.0.0": { init: z.object({ message: z.string() }), complete: z.object({ response: z.string() }) } } });
const parent = ArvoOrchestrationSubject.new({ orchestator: "arvo.orc.parent", version: "1.0.0",
  initiator: "com.test.client", meta: { redirectto: "com.reply.here" } });
console.log(JSON.stringify(createArvoOrchestratorEventFactory(contract.version("1.0.0")).init({
  source: "arvo.orc.parent", redirectto: "arvo.orc.parent", data: { parentSubject$$: parent, message: "hello" } })));
`

// arvoChild has arvo-core take a completion, and find the parent's run in it.
const arvoChild = `
import { ArvoEvent, ArvoOrchestrationSubject } from "arvo-core";
import { text } from "node:stream/consumers";
const { data, ...context } = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(ArvoOrchestrationSubject.parse(new ArvoEvent(context, data, {}).subject)));
`

func TestArvo_OrchestratorHasAnAgentAsItsChild(t *testing.T) {
	t.Parallel()
	spec := desk(docContract(t), time.Minute)
	spec.Contract = sdk.Contract{URI: "#/orc/desk", Type: "arvo.orc.desk", Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object","properties":{"parentSubject$$":{"type":["string","null"]},"message":{"type":"string"}},
				"required":["message"]}`),
		Emits: map[string]json.RawMessage{"arvo.orc.desk.done": json.RawMessage(
			`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`)},
	}}}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Say("done"))})
	init, err := wire.DecodeEvent(nil, runNode(t, arvoParent, nil))
	if err != nil {
		t.Fatal(err)
	}
	var asked struct {
		Parent string `json:"parentSubject$$"`
	}
	if err := json.Unmarshal(init.Data, &asked); err != nil || asked.Parent == "" || asked.Parent == init.Subject {
		t.Fatalf("Arvo asks for %q in the run %q: %v", asked.Parent, init.Subject, err)
	}
	end := h.Done(h.Send("desk", init))
	if end.Type != "arvo.orc.desk.done" || end.Subject != asked.Parent || end.To != "arvo.orc.parent" || end.ParentID != init.ID ||
		end.Source != "arvo.orc.desk" || end.DataSchema != "#/orc/desk/1.0.0" {
		t.Errorf("the completion is %+v", end)
	}
	encoded, err := end.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var of struct {
		Orchestrator struct{ Name string }
	}
	if err := json.Unmarshal(runNode(t, arvoChild, encoded), &of); err != nil || of.Orchestrator.Name != "arvo.orc.parent" {
		t.Errorf("Arvo takes the completion for one of %+v: %v", of, err)
	}

	// What is refused goes to the parent's run too; a subject that no event can have is refused.
	init.Subject, init.ID, init.Data = "again", "again", json.RawMessage(`{"parentSubject$$":"the parent","message":7}`)
	if end := h.Done(h.Send("desk", init)); end.Subject != "the parent" || end.Type != "sys.arvo.orc.desk.error" {
		t.Errorf("the refusal is %+v", end)
	}
	init.Subject, init.ID, init.Data = "wrong", "wrong", json.RawMessage(`{"parentSubject$$":"a\u0000b","message":"hello"}`)
	end = h.Done(h.Send("desk", init))
	if end.Subject != init.Subject || !strings.Contains(string(end.Data), `parentSubject$$`) {
		t.Errorf("a parent that cannot be is answered with %s under %q", end.Data, end.Subject)
	}
}
