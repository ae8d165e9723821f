package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
)

// reply is what a stranger sends: headers and a body.
type reply struct {
	headers nats.Header
	body    string
}

// structured is an answer as one JSON object: the least that is accepted, with the members changed. A member that is set
// to nil is null, one that is set to absent is left out.
func structured(call *harness.Call, members map[string]any) reply {
	event := map[string]any{
		"specversion": "1.0", "id": "1", "source": "stranger", "type": "weather.forecast.done", "data": map[string]string{"text": "fine"},
	}
	maps.Copy(event, members)
	maps.DeleteFunc(event, func(_ string, v any) bool { return v == absent })
	body, err := json.Marshal(event)
	if err != nil {
		panic(fmt.Sprintf("answer to %s: %v", call.Event.ID, err))
	}
	return reply{body: string(body)}
}

const absent = "(absent)"

// binary is the least answer in binary mode, with the headers added.
func binary(headers nats.Header) reply {
	h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"stranger"}, "ce-type": {"weather.forecast.done"}}
	maps.Copy(h, headers)
	return reply{headers: h, body: `{"text":"fine"}`}
}

func (r reply) with(name, value string) reply {
	h := nats.Header{name: {value}}
	maps.Copy(h, r.headers)
	return reply{headers: h, body: r.body}
}

// stranger is a way to answer a call that somebody may think of.
type stranger struct {
	name   string
	answer func(*harness.Call) reply
	// text is what the model is told; code, if there is one, is in it, and it is an error.
	text string
	code sdk.Code
	// dead is the reason of the dead letter that the answer becomes, while the call stays open.
	dead sdk.Code
}

const fine = `{"text":"fine"}`

func members(m map[string]any) func(*harness.Call) reply {
	return func(c *harness.Call) reply { return structured(c, m) }
}

func headers(h nats.Header) func(*harness.Call) reply {
	return func(*harness.Call) reply { return binary(h) }
}

func as(contentType string) func(*harness.Call) reply {
	return func(c *harness.Call) reply { return structured(c, nil).with("Content-Type", contentType) }
}

var envelopes = []stranger{
	{name: "the least, without headers", answer: members(nil), text: fine},
	{name: "a line feed at the end", answer: func(c *harness.Call) reply { return reply{body: structured(c, nil).body + "\r\n"} }, text: fine},
	{name: "nulls", answer: members(map[string]any{
		"subject": nil, "time": nil, "datacontenttype": nil, "dataschema": nil, "to": nil, "accesscontrol": nil, "redirectto": nil,
		"executionunits": nil, "traceparent": nil, "tracestate": nil, "parentid": nil, "domain": nil, "agent": nil, "mine": nil,
	}), text: fine},
	{name: "empty texts", answer: members(map[string]any{"subject": "", "parentid": "", "domain": "", "time": ""}), text: fine},
	{name: "content type with parameters", answer: as("application/cloudevents+json; charset=UTF-8"), text: fine},
	{name: "content type in capitals", answer: as("Application/CloudEvents+JSON"), text: fine},
	{name: "content type of any JSON", answer: as("application/json"), text: fine},
	{name: "content type of a form", answer: as("application/x-www-form-urlencoded"), text: fine},
	{name: "batch", answer: as("application/cloudevents-batch+json"), dead: sdk.CodeInvalidEvent},
	{name: "a list of events", answer: func(c *harness.Call) reply { return reply{body: "[" + structured(c, nil).body + "]"} }, dead: sdk.CodeInvalidEvent},
	{name: "bare data", answer: func(*harness.Call) reply { return reply{body: fine} }, dead: sdk.CodeInvalidEvent},
	{name: "nothing at all", answer: func(*harness.Call) reply { return reply{} }, dead: sdk.CodeInvalidEvent},

	{name: "data's type with parameters", answer: members(map[string]any{"datacontenttype": "application/json; charset=utf-8"}), text: fine},
	{name: "data's type of Arvo", answer: members(map[string]any{"datacontenttype": "application/cloudevents+json;charset=UTF-8;profile=arvo"}), text: fine},
	{name: "data's type of a vendor", answer: members(map[string]any{"datacontenttype": "application/vnd.weather+json"}), text: fine},
	{name: "data's type is text", answer: members(map[string]any{"datacontenttype": "text/plain"}), dead: sdk.CodeInvalidEvent},
	{name: "data as bytes", answer: members(map[string]any{
		"data": absent, "data_base64": base64.StdEncoding.EncodeToString([]byte(`{ "text": "fine" }`)),
	}), text: fine},
	{name: "data as text", answer: members(map[string]any{"data": fine}), dead: sdk.CodeInvalidEvent},
	{name: "no data", answer: members(map[string]any{"data": absent}), text: "$.text", code: sdk.CodeContractViolation},
	{name: "numbers that no float holds", answer: members(map[string]any{
		"data": json.RawMessage(`{"text":"fine","n":12345678901234567890,"m":1.50}`),
	}), text: `{"text":"fine","n":12345678901234567890,"m":1.50}`},

	{name: "binary", answer: headers(nil), text: fine},
	{name: "binary, headers in capitals", answer: func(*harness.Call) reply {
		return reply{nats.Header{"CE-SPECVERSION": {"1.0"}, "CE-ID": {"1"}, "Ce-Source": {"s"}, "cE-tYpE": {"weather.forecast.done"}}, fine}
	}, text: fine},
	{name: "binary, the type of data as a header of HTTP", answer: headers(nats.Header{"Content-Type": {"application/json"}}), text: fine},
	{name: "binary, the type of data as an attribute", answer: headers(nats.Header{"ce-datacontenttype": {"application/json;charset=utf-8"}}), text: fine},
	{name: "binary, encoded values", answer: headers(nats.Header{"ce-subject": {"50%25%20of%20Z%C3%BCrich"}, "ce-mine": {`"a \"b\""`}}), text: fine},
	{name: "binary, values as they are", answer: headers(nats.Header{"ce-subject": {"Zürich HB €"}}), text: fine},
	{name: "binary, fractional units", answer: headers(nats.Header{"ce-executionunits": {"0.25"}}), text: fine},
	{name: "binary, a percent sign as it is", answer: headers(nats.Header{"ce-subject": {"50% of Zürich"}}), text: fine},
	{name: "binary, an attribute twice", answer: headers(nats.Header{"ce-mine": {"1", "2"}}), dead: sdk.CodeInvalidEvent},

	{name: "time in microseconds", answer: members(map[string]any{"time": "2026-11-21T02:58:44.123456+00:00"}), text: fine},
	{name: "time without a colon", answer: members(map[string]any{"time": "2026-11-21T02:58:44-0500"}), text: fine},
	{name: "time with a space", answer: members(map[string]any{"time": "2026-11-21 02:58:44+00:00"}), text: fine},
	{name: "time without an offset", answer: members(map[string]any{"time": "2026-11-21T02:58:44.123456"}), text: fine},
	{name: "binary, time in nanoseconds", answer: headers(nats.Header{"ce-time": {"2026-11-21T02:58:44.123456789Z"}}), text: fine},
	{name: "time as a number", answer: members(map[string]any{"time": 1795229924}), dead: sdk.CodeInvalidEvent},

	{name: "whole units", answer: members(map[string]any{"executionunits": 7}), text: fine},
	{name: "units with a point", answer: members(map[string]any{"executionunits": json.RawMessage("7.0")}), text: fine},
	{name: "fractional units", answer: members(map[string]any{"executionunits": 0.1}), text: fine},
	{name: "units with an exponent", answer: members(map[string]any{"executionunits": json.RawMessage("2.5e-3")}), text: fine},
	{name: "units as text", answer: members(map[string]any{"executionunits": "7"}), dead: sdk.CodeInvalidEvent},
	{name: "attributes of others", answer: members(map[string]any{
		"partitionkey": "a", "sequence": 7, "sampledrate": 1.5, "dataref": "https://example.com/1", "knative": true, "expirytime": "soon",
	}), text: fine},
	{name: "an attribute that is an object", answer: members(map[string]any{"mine": map[string]int{"a": 1}}), dead: sdk.CodeInvalidEvent},
	{name: "an attribute in capitals", answer: members(map[string]any{"parentId": "x"}), dead: sdk.CodeInvalidEvent},
}

var meanings = []stranger{
	{name: "attributes that lead elsewhere", answer: members(map[string]any{
		"to": "agentd.start.desk", "redirectto": "agentd.start.desk", "domain": "human.interaction", "agent": "another",
		"accesscontrol": "root", "subject": "another run", "source": "agentd.in.local.other",
	}), text: fine},
	{name: "the call as parent", answer: func(c *harness.Call) reply { return structured(c, map[string]any{"parentid": c.Event.ID}) }, text: fine},
	{name: "an attempt of the call as parent", answer: func(c *harness.Call) reply {
		return structured(c, map[string]any{"parentid": c.Event.ID + "-r2"})
	}, text: fine},
	{name: "another parent", answer: members(map[string]any{"parentid": "something-else"}), dead: sdk.CodeUnknownRun},
	{name: "its id as it is elsewhere", answer: members(map[string]any{"id": "same"}), text: fine},
	{name: "its id as it is elsewhere, again", answer: members(map[string]any{"id": "same"}), text: fine},

	{name: "the schema that was called", answer: members(map[string]any{"dataschema": "#/weather/forecast/1.0.0"}), text: fine},
	{name: "a version that nobody has", answer: members(map[string]any{"dataschema": "#/weather/forecast/7.0.0"}), text: "$.dataschema", code: sdk.CodeContractViolation},
	{name: "another type", answer: members(map[string]any{"type": "weather.forecast.failed"}), text: "$.type", code: sdk.CodeContractViolation},
	{name: "the type of the call", answer: members(map[string]any{"type": "weather.forecast"}), text: "$.type", code: sdk.CodeContractViolation},
	{name: "the error of another contract", answer: members(map[string]any{"type": "sys.weather.other.error"}), text: "$.type", code: sdk.CodeContractViolation},
	{name: "data outside the contract", answer: members(map[string]any{"data": map[string]int{"text": 7}}), text: "$.text", code: sdk.CodeContractViolation},

	{name: "an error of Arvo", answer: members(map[string]any{
		"type": "sys.weather.forecast.error", "dataschema": "#/weather/forecast/0.0.0",
		"data": map[string]any{"errorName": "Error", "errorMessage": "no sky", "errorStack": "at sky.js:1"},
	}), text: `"message":"no sky"`, code: sdk.CodeTool},
	{name: "an error with a code", answer: members(map[string]any{
		"type": "sys.weather.forecast.error", "data": map[string]any{"errorMessage": "later", "code": "unavailable", "retryable": false},
	}), text: "later", code: sdk.CodeUnavailable},
	{name: "an error that says nothing", answer: members(map[string]any{"type": "sys.weather.forecast.error", "data": map[string]any{}}), text: "the service failed", code: sdk.CodeTool},
	{name: "an error in a form of its own", answer: members(map[string]any{
		"type": "sys.weather.forecast.error", "data": map[string]any{"errorMessage": []int{1}, "retryable": "yes"},
	}), text: "the service failed", code: sdk.CodeTool},
	{name: "a large answer", answer: members(map[string]any{
		"data": map[string]string{"text": strings.Repeat("sun", 200_000)},
	}), text: strings.Repeat("sun", 200_000)},
}

// Every call of one run is answered in another way. What is refused leaves its call open, and a proper answer follows.
func TestAnswers_OfStrangers(t *testing.T) {
	t.Parallel()
	for name, strangers := range map[string][]stranger{"envelope": envelopes, "meaning": meanings} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerEach(t, strangers)
		})
	}
}

func answerEach(t *testing.T, strangers []stranger) {
	var calls []map[string]any
	for i := range strangers {
		calls = append(calls, city(fmt.Sprint(i)))
	}
	w := newWorld(t, docContract(t), time.Minute, calls...)
	r := w.start("trip")
	for range strangers {
		call := w.Call(w.contract.Type)
		i := 0
		if _, err := fmt.Sscan(call.Data()["city"].(string), &i); err != nil {
			t.Fatal(err)
		}
		s := strangers[i]
		w.send(call, s.answer(call))
		if s.dead == "" {
			w.Until(r, "answered by: "+s.name, func(state core.State) bool { return answered(state, call.Event.ID) })
			continue
		}
		if d := w.DeadLetter(); d.Reason != string(s.dead) {
			t.Errorf("%s: dead-lettered as %s (%s), want %s", s.name, d.Reason, d.Detail, s.dead)
		}
		w.send(call, structured(call, nil))
	}
	for i, got := range w.results(r) {
		s := strangers[i]
		if s.dead != "" {
			s.text = fine
		}
		if !strings.Contains(got.Text, s.text) || !strings.Contains(got.Text, string(s.code)) || got.IsError != (s.code != "") {
			t.Errorf("%s: the model was told %.300s, want %.300s %s", s.name, got.Text, s.text, s.code)
		}
	}
	w.NoDeadLetter()
}

// answered reports whether a call has its result.
func answered(state core.State, id string) bool {
	return !slices.ContainsFunc(state.Calls, func(c core.Call) bool { return c.ID == id && !c.Closed() })
}

// send publishes on the call's reply subject as a service may, without waiting for the stream.
func (w *world) send(call *harness.Call, r reply) {
	w.t.Helper()
	m := &nats.Msg{Subject: strings.Replace(call.Subject, ".out.", ".in.", 1), Header: r.headers, Data: []byte(r.body)}
	if err := w.stranger().PublishMsg(m); err != nil {
		w.t.Fatal(err)
	}
}

// stranger is a connection with a service's rights.
func (w *world) stranger() *nats.Conn {
	w.t.Helper()
	if w.nc != nil {
		return w.nc
	}
	nc, err := nats.Connect("nats://weather:cold@"+w.host, nats.CustomInboxPrefix("_INBOX_agentd_weather"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	w.nc = nc
	return nc
}

// However often and however carefully an answer is published, one is the result, and the others change nothing.
func TestAnswers_PublishedInEveryWay(t *testing.T) {
	t.Parallel()
	expectNothing := nats.Header{"Nats-Expected-Last-Subject-Sequence": {"0"}}
	for _, tt := range []struct {
		name string
		// headers are sent with both answers; stored says that the second one is stored too.
		headers []nats.Header
		stored  bool
	}{
		{"twice", []nats.Header{nil, nil}, true},
		{"twice, if there is none", []nats.Header{expectNothing, expectNothing}, false},
		{"if there is none, and once more", []nats.Header{expectNothing, nil}, true},
		{"with ids of messages", []nats.Header{{"Nats-Msg-Id": {"a"}}, {"Nats-Msg-Id": {"b"}}}, true},
		{"to the stream by name", []nats.Header{{"Nats-Expected-Stream": {"AGENTD_IN"}}, {"Nats-Expected-Stream": {"AGENTD_IN"}}}, true},
	} {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, acknowledged %v", tt.name, stored), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, docContract(t), time.Minute, city("Bern"))
				r := w.start("trip")
				call := w.Call(w.contract.Type)
				js, err := jetstream.New(w.stranger())
				if err != nil {
					t.Fatal(err)
				}
				for i, h := range tt.headers {
					text := structured(call, map[string]any{"id": fmt.Sprint(i), "data": map[string]string{"text": fmt.Sprint("answer ", i)}})
					m := &nats.Msg{Subject: strings.Replace(call.Subject, ".out.", ".in.", 1), Header: maps.Clone(h), Data: []byte(text.body)}
					if !stored {
						err = w.stranger().PublishMsg(m)
					} else if _, err = js.PublishMsg(t.Context(), m); err != nil && i == 1 && !tt.stored {
						err = nil
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				// Two that are stored in the same moment are handled side by side.
				got := w.results(r)
				if len(got) != 1 || got[0].Text != `{"text":"answer 0"}` && (!tt.stored || got[0].Text != `{"text":"answer 1"}`) {
					t.Errorf("the model was told %+v", got)
				}
				w.eventually("the second answer read", func() bool { return w.unread() == 0 })
				w.NoDeadLetter()
			})
		}
	}
}

// unread is how many messages of AGENTD_IN the agent has not acknowledged.
func (w *world) unread() uint64 {
	w.t.Helper()
	c, err := w.Conn().JetStream().Consumer(w.t.Context(), "AGENTD_IN", "agent_desk")
	if err != nil {
		w.t.Fatal(err)
	}
	info := c.CachedInfo()
	return info.NumPending + uint64(info.NumAckPending)
}

// Whoever responds to messages instead of publishing answers acknowledges a call unanswered, or talks to a worker that
// waits for the stream. Neither harms the run.
func TestAnswers_ThatAreResponsesReachNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), 2*time.Second, city("Bern"))
	nc, err := nats.Connect("nats://worker:hot@" + w.host) // a service may not subscribe to calls
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	responded := make(chan error, 16)
	if _, err := nc.Subscribe("agentd.out.>", func(m *nats.Msg) { responded <- m.Respond([]byte(fine)) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r := w.start("trip")
	js, err := jetstream.New(w.stranger())
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := js.Consumer(t.Context(), "AGENTD_OUT", w.consumer())
	if err != nil {
		t.Fatal(err)
	}
	m, err := consumer.Next(jetstream.FetchMaxWait(harness.Patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.stranger().Publish(m.Reply(), []byte(fine)); err != nil {
		t.Fatal(err)
	}
	got := w.results(r)
	if len(got) != 1 || !got[0].IsError || !strings.Contains(got[0].Text, string(sdk.CodeDeadline)) {
		t.Errorf("the model was told %+v", got)
	}
	if err := <-responded; err != nil {
		t.Error(err)
	}
	w.NoDeadLetter()
}
