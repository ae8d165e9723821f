package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/sdk"
)

// fullEvent has a value in every attribute.
func fullEvent() Event {
	return Event{
		ID: "c3-0-abcdefghijklmnopqrstuvwxyz", Source: "agentd.in.airline.book.desk.001.run.call",
		Type: "airline.book_reservation", Subject: "trip 7 → Zürich", Time: time.Date(2026, 11, 21, 3, 58, 44, 408_999_999,
			time.FixedZone("", 3600)),
		DataContentType: "application/json", DataSchema: "#/airline/book/1.0.0",
		Data: json.RawMessage(" {\"price\" : 1.50, \"id\":9007199254740993,\n\"tag\":\"<\\u0041>\"} "),
		To:   "airline.book_reservation", AccessControl: "tenant:acme", RedirectTo: "agentd.in.x", ParentID: "init-1",
		ExecutionUnits: 11_250_000, Domain: "airline", Agent: "travel.desk", TraceParent: "00-0af7-b7ad-01",
		TraceState: "a=b", Extensions: map[string]any{
			"zone": "eu", "attempt": json.Number("2"), "dry": true, "none": nil,
		},
	}
}

func TestEvent_EncodeWritesEveryAttribute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   Event
		want string
	}{
		{
			"full", fullEvent(),
			`{"id":"c3-0-abcdefghijklmnopqrstuvwxyz","source":"agentd.in.airline.book.desk.001.run.call","specversion":"1.0",` +
				`"type":"airline.book_reservation","subject":"trip 7 → Zürich","datacontenttype":"application/json",` +
				`"dataschema":"#/airline/book/1.0.0","data":{"price":1.50,"id":9007199254740993,"tag":"<\u0041>"},` +
				`"time":"2026-11-21T02:58:44.408Z","attempt":2,"dry":true,"none":null,"zone":"eu","to":"airline.book_reservation",` +
				`"accesscontrol":"tenant:acme","redirectto":"agentd.in.x","executionunits":11.25,"traceparent":"00-0af7-b7ad-01",` +
				`"tracestate":"a=b","parentid":"init-1","domain":"airline","agent":"travel.desk"}`,
		},
		{
			"least",
			Event{ID: "1", Source: "/cli", Type: "desk.init"},
			`{"id":"1","source":"/cli","specversion":"1.0","type":"desk.init","subject":null,"datacontenttype":"application/json",` +
				`"dataschema":null,"data":{},"time":null,"to":null,"accesscontrol":null,"redirectto":null,"executionunits":0,` +
				`"traceparent":null,"tracestate":null,"parentid":null,"domain":null,"agent":null}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.in.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvent_EncodeListsEveryFault(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, MaxDepth) + "{}" + strings.Repeat("}", MaxDepth)
	for _, c := range []struct {
		name  string
		in    Event
		paths []string
	}{
		{"empty", Event{}, []string{"$.id", "$.source", "$.type"}},
		{
			"bad texts",
			Event{ID: "\xff", Source: "a\nb", Type: strings.Repeat("t", MaxAttribute+1), DataContentType: "text/plain", To: "\u0085"},
			[]string{"$.id", "$.source", "$.type", "$.to", "$.datacontenttype"},
		},
		{"data is not an object", Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(`[1]`)}, []string{"$.data"}},
		{"data is null", Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(`null`)}, []string{"$.data"}},
		{"data is broken", Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(`{"a":[1,]}`)}, []string{"$.data.a"}},
		{
			"a name twice in data",
			Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(`{"a":{"b":1,"b":1}}`)},
			[]string{"$.data.a.b"},
		},
		{
			"data too deep",
			Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(deep)},
			[]string{"$.data" + strings.Repeat(".a", 45) + "…"},
		},
		{
			"year",
			Event{ID: "1", Source: "s", Type: "t", Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			[]string{"$.time"},
		},
		{
			"extensions",
			Event{ID: "1", Source: "s", Type: "t", Extensions: map[string]any{
				"a": 1, "b": json.Number("1e"), "c": "\x00", "data": "x", "Upper": "x", "id": "x",
			}},
			[]string{`$["Upper"]`, "$.a", "$.b", "$.c", "$.data", "$.id"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.in.Encode()
			if got != nil {
				t.Errorf("returned %s beside an error", got)
			}
			wantFaults(t, err, c.paths...)
		})
	}
}

func TestEvent_MarshalsAsEncodingJSONExpects(t *testing.T) {
	t.Parallel()
	want := Event{ID: "1", Source: "s", Type: "t", DataContentType: ContentTypeJSON, Data: json.RawMessage(`{"a":1.0}`)}
	text, err := json.Marshal(map[string]Event{"event": want})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]Event
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got["event"]); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"id":1}`), &want); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || want.ID != "1" {
		t.Errorf("Unmarshal of a bad event = %v, and left %+v", err, want)
	}
}

// drawText makes text that an attribute may hold; ASCII alone when plain.
func drawText(t *rapid.T, label string, least int) string {
	allowed := rapid.Rune().Filter(func(r rune) bool { return !unicode.IsControl(r) })
	return string(rapid.SliceOfN(allowed, least, 24).Draw(t, label))
}

// drawEvent makes events as Decode returns them: with compact data, a content type and times in milliseconds.
func drawEvent(t *rapid.T) Event {
	object := map[string]any{"x": drawJSON(t, 3)}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	e := Event{
		ID: drawText(t, "id", 1), Source: drawText(t, "source", 1), Type: drawText(t, "type", 1),
		Subject: drawText(t, "subject", 0), DataSchema: drawText(t, "dataschema", 0), Data: data,
		DataContentType: rapid.SampledFrom([]string{ContentTypeJSON, "application/cloudevents+json;charset=UTF-8;profile=arvo"}).
			Draw(t, "datacontenttype"),
		To: drawText(t, "to", 0), AccessControl: drawText(t, "accesscontrol", 0), RedirectTo: drawText(t, "redirectto", 0),
		ParentID: drawText(t, "parentid", 0), ExecutionUnits: sdk.Units(rapid.Int64().Draw(t, "units")),
		Domain: drawText(t, "domain", 0), Agent: drawText(t, "agent", 0), TraceParent: drawText(t, "traceparent", 0),
		TraceState: drawText(t, "tracestate", 0),
	}
	if rapid.Bool().Draw(t, "timed") {
		e.Time = time.UnixMilli(rapid.Int64Range(-62_000_000_000_000, 253_402_300_799_999).Draw(t, "time")).UTC()
	}
	for range rapid.IntRange(0, 3).Draw(t, "extensions") {
		name := "x" + rapid.StringMatching(`[a-z0-9]{1,8}`).Draw(t, "extension")
		if e.Extensions == nil {
			e.Extensions = map[string]any{}
		}
		switch rapid.IntRange(0, 3).Draw(t, "type of extension") {
		case 0:
			e.Extensions[name] = nil
		case 1:
			e.Extensions[name] = rapid.Bool().Draw(t, "bool")
		case 2:
			e.Extensions[name] = json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,9})?(e[+-]?[0-9]{1,5})?`).Draw(t, "number"))
		default:
			e.Extensions[name] = drawText(t, "value", 0)
		}
	}
	return e
}

func TestEvent_DecodeUndoesEncode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawEvent(t)
		body, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEvent(map[string][]string{"Content-Type": {ContentTypeStructured}}, body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("event (-want +got):\n%s", diff)
		}
		again, err := got.Encode()
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("bytes changed: %v\n%s\n%s", err, body, again)
		}
	})
}

// FuzzDecodeEvent also feeds every accepted event through Encode: what a worker takes in, it can send on. And whether an
// event is accepted, and what is wrong with it, must not depend on whether it was scanned.
func FuzzDecodeEvent(f *testing.F) {
	full, err := fullEvent().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ContentTypeStructured, "", "", full)
	f.Add("", "ce-id", "a%20b", []byte(`{}`))
	f.Add("text/plain", "Ce-Time", `"2026-11-21T02:58+0100"`, []byte(`{"a":1}`))
	f.Add("application/cloudevents-batch+json", "", "", []byte(`[]`))
	f.Add("", "", "", []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"e30=","executionunits":1e-7}`))
	f.Add("", "", "", []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":1,"a":2}}`))
	f.Add("", "ce-id", "1", []byte(strings.Repeat(`{"a":`, MaxDepth+1)+"1"+strings.Repeat("}", MaxDepth+1)))
	f.Add("", "ce-X-Evil", "%00", []byte("{\"a\":\"\xff\"}"))
	f.Add("", "", "", []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{},"data_base64":"e30=","mine":1e999999999}`))
	f.Fuzz(func(t *testing.T, contentType, name, value string, body []byte) {
		headers := map[string][]string{"Content-Type": {contentType}}
		if name != "" {
			headers[name] = append(headers[name], value)
			headers["ce-specversion"], headers["ce-source"], headers["ce-type"] = []string{"1.0"}, []string{"s"}, []string{"t"}
		}
		quick, quickErr := decodeStructured(body)
		scanned, scannedErr := decodeScanned(body)
		if diff := cmp.Diff(scanned, quick); diff != "" || fmt.Sprint(quickErr) != fmt.Sprint(scannedErr) {
			t.Fatalf("not scanned: %v, scanned: %v, event (-scanned +not):\n%s", quickErr, scannedErr, diff)
		}
		event, err := DecodeEvent(headers, body)
		if err != nil {
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || len(err.Error()) > 32<<10 {
				t.Fatalf("refused with %d bytes: %v", len(err.Error()), err)
			}
			return
		}
		encoded, err := event.Encode()
		if err != nil {
			t.Fatalf("accepted what it cannot encode: %v", err)
		}
		back, err := DecodeEvent(nil, encoded)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := back.Encode(); err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("bytes changed: %v\n%s\n%s", err, encoded, again)
		}
	})
}
