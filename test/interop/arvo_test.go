package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentd/sdk/wire"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"agentd/sdk"
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
	w.eventually("the service asks for calls", func() bool { return w.consumerInfo().NumWaiting > 0 })
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
