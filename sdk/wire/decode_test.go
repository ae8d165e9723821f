package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

// least is the structured form of the least event, with more members put in.
func least(more string) []byte {
	return []byte(`{"specversion":"1.0","id":"1","source":"s","type":"t"` + more + `}`)
}

func leastEvent() Event {
	return Event{ID: "1", Source: "s", Type: "t", DataContentType: ContentTypeJSON, Data: json.RawMessage(`{}`)}
}

func TestDecodeEvent_ChoosesTheMode(t *testing.T) {
	t.Parallel()
	binary := func(contentType string) map[string][]string {
		h := map[string][]string{"ce-specversion": {"1.0"}, "CE-ID": {"1"}, "Ce-Source": {"s"}, "ce-type": {"t"}}
		if contentType != "" {
			h["content-type"] = []string{contentType}
		}
		return h
	}
	for _, c := range []struct {
		name    string
		headers map[string][]string
		body    string
	}{
		{"structured", map[string][]string{"Content-Type": {"application/cloudevents+json"}}, string(least(""))},
		{"structured, any spelling", map[string][]string{"CONTENT-TYPE": {" Application/CloudEvents+JSON; charset=utf-8"}}, string(least(""))},
		{"structured, broken parameters", map[string][]string{"Content-Type": {"application/cloudevents+json; a b"}}, string(least(""))},
		{"structured, no format named", map[string][]string{"Content-Type": {"application/cloudevents"}}, string(least(""))},
		{"structured without headers", nil, string(least(""))},
		{"structured, content type of plain JSON", map[string][]string{"Content-Type": {"application/json"}}, string(least(""))},
		{"structured beside foreign headers", map[string][]string{"Nats-Msg-Id": {"x"}, "agentd-reply": {"y"}}, string(least(""))},
		{"binary", binary(""), `{}`},
		{"binary, content type is not an attribute", binary("text/plain"), `{}`},
		{"binary, no body", binary(""), ``},
		{"binary, null", binary(""), " null\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeEvent(c.headers, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(leastEvent(), got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
	for contentType, want := range map[string]string{
		"application/cloudevents-batch+json": "batch mode", "application/cloudevents+avro": "event format",
	} {
		_, err := DecodeEvent(binary(contentType), least(""))
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a refusal that names the %s", contentType, err, want)
		}
	}
}

func TestDecodeEvent_BinaryMode(t *testing.T) {
	t.Parallel()
	got, err := DecodeEvent(map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"a%20b"}, "ce-source": {"/s%C3%BC"}, "ce-type": {"t"},
		"ce-subject": {"Euro%20%E2%82%AC%20%f0%9f%98%80"}, "ce-time": {"2018-04-05T03:56:24Z"},
		"ce-datacontenttype": {"application/json; charset=utf-8"}, "ce-dataschema": {"#/s/1.0.0"},
		"ce-executionunits": {"0.5"}, "ce-To": {`"quoted \"word\" %25"`}, "ce-accesscontrol": {""},
		"ce-parentid": {" padded "}, "ce-myext": {"100%25"}, "ce-empty": {""}, "ce-raw": {"ü"},
		"Content-Type": {"application/json"}, "Nats-Msg-Id": {"1"}, "traceparent": {"not an attribute"},
	}, []byte(` {"n": 1.0} `))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{
		ID: "a b", Source: "/sü", Type: "t", Subject: "Euro € 😀", Time: time.Date(2018, 4, 5, 3, 56, 24, 0, time.UTC),
		DataContentType: "application/json; charset=utf-8", DataSchema: "#/s/1.0.0", ExecutionUnits: 500_000,
		To: `quoted "word" %`, ParentID: "padded", Data: json.RawMessage(`{"n":1.0}`),
		Extensions: map[string]any{"myext": "100%", "empty": "", "raw": "ü"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// Senders that encode nothing are read as they mean it, but in what names the event.
func TestDecodeEvent_HeadersThatAreNotEncoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, want string }{
		{"50% of Zürich", "50% of Zürich"},
		{"50%", "50%"},
		{"50%2", "50%2"},
		{"50%25 of %C3%BC%", "50% of ü%"},
		{"%C0%A0", "%C0%A0"},
		{"%FCber", "%FCber"},
		{"\xfcber 50%", "über 50%"},
		{`"a"b"`, `"a"b"`},
	} {
		headers := map[string][]string{
			"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"s"}, "ce-type": {"t"}, "ce-subject": {c.header}, "ce-mine": {c.header},
		}
		got, err := DecodeEvent(headers, nil)
		if err != nil || got.Subject != c.want || got.Extensions["mine"] != c.want {
			t.Errorf("%q is read as %q and %q, want %q: %v", c.header, got.Subject, got.Extensions["mine"], c.want, err)
		}
	}
}

func TestSender_IsReadOfWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	const least = `{"specversion":"1.0","id":"1","source":"/s"`
	binary := func(id ...string) map[string][]string {
		return map[string][]string{"ce-id": id, "ce-source": {"/s"}, "ce-subject": {"trip"}, "ce-redirectto": {"x\x01"}}
	}
	for _, c := range []struct {
		name    string
		headers map[string][]string
		body    string
		want    *Event
	}{
		{"data is a text", nil, least + `,"subject":"trip","data":"x"}`, &Event{ID: "1", Source: "/s", Subject: "trip"}},
		{"cut off", nil, least + `,"type":"t","data":{"a`, &Event{ID: "1", Source: "/s", Type: "t"}},
		{"values of other kinds", nil, least + `,"subject":7,"type":null,"data":[{"id":"2"}]}`, &Event{ID: "1", Source: "/s"}},
		{"a subject twice", nil, least + `,"subject":"a","subject":"b"}`, &Event{ID: "1", Source: "/s"}},
		{"no UTF-8", nil, least + ",\"subject\":\"\xff\"}", &Event{ID: "1", Source: "/s"}},
		{"binary", binary("1"), `"x"`, &Event{ID: "1", Source: "/s", Subject: "trip"}},
		{"binary, not encoded", binary("100%"), `"x"`, &Event{ID: "100%", Source: "/s", Subject: "trip"}},
		{"no id", nil, `{"source":"/s"}`, nil},
		{"an empty source", nil, `{"id":"1","source":""}`, nil},
		{"an id twice", nil, least + `,"id":"2"}`, nil},
		{"an id in two headers", binary("1", "2"), "", nil},
		{"an id that no event has", nil, `{"id":"a\u0000","source":"/s"}`, nil},
		{"no object", nil, `["id","1"]`, nil},
		{"no JSON", nil, `hello`, nil},
		{"a batch", map[string][]string{"Content-Type": {"application/cloudevents-batch+json"}}, `[` + least + `}]`, nil},
	} {
		got, ok := Sender(c.headers, []byte(c.body))
		if ok != (c.want != nil) || ok && !cmp.Equal(*c.want, got) {
			t.Errorf("%s: read %+v, %t, want %+v", c.name, got, ok, c.want)
		}
	}
}

func TestDecodeEvent_StructuredForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, more string
		want       func(*Event)
	}{
		{"nothing more", ``, func(*Event) {}},
		{
			"nulls everywhere",
			`,"subject":null,"time":null,"datacontenttype":null,"dataschema":null,"data":null,"data_base64":null,"to":null,` +
				`"accesscontrol":null,"redirectto":null,"parentid":null,"executionunits":null,"domain":null,"agent":null,` +
				`"traceparent":null,"tracestate":null`,
			func(*Event) {},
		},
		{"empty texts", `,"subject":"","time":"","to":"","domain":""`, func(*Event) {}},
		{"data keeps its text", `,"data": { "a" : [1.0, 1e400, 12345678901234567890, "\u0041"] }`, func(e *Event) {
			e.Data = json.RawMessage(`{"a":[1.0,1e400,12345678901234567890,"\u0041"]}`)
		}},
		{"data as bytes", `,"data_base64":"eyJ4IjogMX0="`, func(e *Event) { e.Data = json.RawMessage(`{"x":1}`) }},
		{"fractional units", `,"executionunits":2.5e-1`, func(e *Event) { e.ExecutionUnits = 250_000 }},
		{"many units", `,"executionunits":3000000000`, func(e *Event) { e.ExecutionUnits = 3e15 }},
		{"extensions", `,"a":"x","b":true,"c":1.50,"d":null`, func(e *Event) {
			e.Extensions = map[string]any{"a": "x", "b": true, "c": json.Number("1.50"), "d": nil}
		}},
		{"escaped name", `,"\u0074o":"x"`, func(e *Event) { e.To = "x" }},
		{"relative dataschema", `,"dataschema":"#/a/b/1.0.0"`, func(e *Event) { e.DataSchema = "#/a/b/1.0.0" }},
		{"64 levels of data", `,"data":` + strings.Repeat(`{"a":`, 63) + "{}" + strings.Repeat("}", 63), func(e *Event) {
			e.Data = json.RawMessage(strings.Repeat(`{"a":`, 63) + "{}" + strings.Repeat("}", 63))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := leastEvent()
			c.want(&want)
			got, err := DecodeEvent(nil, least(c.more))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeEvent_ListsEveryFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		headers map[string][]string
		body    string
		paths   []string
	}{
		{"nothing at all", nil, ``, []string{"$"}},
		{"no object", nil, `[{}]`, []string{"$"}},
		{"not JSON", nil, `hello`, []string{"$"}},
		{"empty object", nil, `{}`, []string{"$.specversion", "$.id", "$.source", "$.type"}},
		{"attribute twice", nil, string(least(`,"id":"2"`)), []string{"$.id"}},
		{"name in data twice", nil, string(least(`,"data":{"a":[{"b":1,"b":2}]}`)), []string{"$.data.a[0].b"}},
		{"invalid UTF-8", nil, string(least(`,"data":{"a":"` + "\xff" + `"}`)), []string{"$.data.a"}},
		{
			"all of it", nil,
			`{"id":1,"specversion":"0.3","source":"","type":["x"],"Foo":1,"data":5,"data_base64":"e30=","time":"yesterday",` +
				`"executionunits":"1","q":{},"datacontenttype":"text/plain","to":true,"domain":"a\u0000"}`,
			[]string{
				"$.id", "$.specversion", "$.type", "$.data", "$.data", "$.time", "$.executionunits", "$.q", "$.to", "$.source",
				"$.domain", "$.datacontenttype", `$["Foo"]`,
			},
		},
		{
			"null where text must be", nil, `{"id":null,"specversion":null,"source":null,"type":null}`,
			[]string{"$.specversion", "$.id", "$.source", "$.type"},
		},
		{"attribute too long", nil, string(least(`,"x":"` + strings.Repeat("a", MaxAttribute+1) + `"`)), []string{"$.x"}},
		{
			"data too deep", nil, string(least(`,"data":` + strings.Repeat(`{"a":`, 64) + "{}" + strings.Repeat("}", 64))),
			[]string{"$.data" + strings.Repeat(".a", 45) + "…"},
		},
		{"bytes that are not base64", nil, string(least(`,"data_base64":"%%"`)), []string{"$.data_base64"}},
		{"bytes that are not JSON", nil, string(least(`,"data_base64":"/w=="`)), []string{"$.data"}},
		{"units out of range", nil, string(least(`,"executionunits":1e99`)), []string{"$.executionunits"}},
		{
			"binary",
			map[string][]string{
				"ce-id": {"%zz"}, "Ce-Time": {"x"}, "CE-executionunits": {"many"}, "ce-source": {"a", "b"}, "ce-type": {},
				"ce-to": {"%C0%A0"}, "ce-domain": {"50%"}, "ce-agent": {`"a"b"`}, "ce-data": {"{}"}, "ce-no_name": {"x"},
				"ce-parentid": {"a%0Ab"},
			},
			`[1]`,
			[]string{
				"$.id", "$.source", "$.type", "$.data", "$.executionunits", "$.time", "$.data",
				"$.specversion", "$.parentid", `$["no_name"]`,
			},
		},
		{
			"content types",
			map[string][]string{"Content-Type": {"application/json", "application/cloudevents+json"}},
			string(least("")),
			[]string{"$.content-type"},
		},
		{
			"content types in two spellings",
			map[string][]string{"Content-Type": {"a/b"}, "content-type": {"a/b"}},
			string(least("")),
			[]string{"$.content-type"},
		},
		{"header in two spellings", map[string][]string{
			"ce-specversion": {"1.0"}, "ce-id": {"1"}, "Ce-Id": {"1"}, "ce-source": {"s"}, "ce-type": {"t"},
		}, ``, []string{"$.id"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeEvent(c.headers, []byte(c.body))
			if diff := cmp.Diff(Event{}, got); diff != "" {
				t.Errorf("returned an event beside an error:\n%s", diff)
			}
			wantFaults(t, err, c.paths...)
		})
	}
}

func TestDecodeEvent_ReadsTimes(t *testing.T) {
	t.Parallel()
	at := func(nanos int) time.Time { return time.Date(2026, 11, 21, 2, 58, 44, nanos, time.UTC) }
	for text, want := range map[string]time.Time{
		"2026-11-21T02:58:44Z":                     at(0),
		"2026-11-21t02:58:44z":                     at(0),
		"2026-11-21T02:58:44.408+00:00":            at(408_000_000),
		"2026-11-21T13:58:44.408+1100":             at(408_000_000),
		"2026-11-20T21:28:44.5-05:30":              at(500_000_000),
		"2026-11-21T02:58:44.1234567890123456789Z": at(123_456_789),
		"2026-11-21T02:58Z":                        time.Date(2026, 11, 21, 2, 58, 0, 0, time.UTC),
		"2026-11-21 02:58:44Z":                     at(0),
		"2026-11-21 03:58:44+01:00":                at(0),
		"2026-11-21T02:58:44.408":                  at(408_000_000),
		"2026-11-21 02:58:44":                      at(0),
		"2026-11-21T02:58+01:00":                   time.Date(2026, 11, 21, 1, 58, 0, 0, time.UTC),
	} {
		got, err := DecodeEvent(nil, least(`,"time":"`+text+`"`))
		if err != nil || got.Time != want {
			t.Errorf("time %s = %v, %v; want %v", text, got.Time, err, want)
		}
	}
	for _, text := range []string{
		"2026-11-21", "2026-11-21  02:58:44Z", "2026-11-21T02:58:44 Z", "2026-11-21T02:58:44.Z", "2026-11-21T02:58:44,5Z",
		"2026-11-21T25:58:44Z", "2026-02-30T00:00:00Z", "26-11-21T02:58:44Z", "2026-11-21T02:58:44+1", "0000-01-01T00:00:00+01:00",
		"1732157924",
	} {
		_, err := DecodeEvent(nil, least(`,"time":"`+text+`"`))
		wantFaults(t, err, "$.time")
	}
}
