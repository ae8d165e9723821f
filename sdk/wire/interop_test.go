package wire

// The CloudEvents SDK for Go is an independent peer here. It is not this package's codec, and the tests below say why.

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
)

func peerDecode(t *testing.T, e Event) event.Event {
	t.Helper()
	body, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var peer event.Event
	if err := peer.UnmarshalJSON(body); err != nil {
		t.Fatalf("peer refuses %s: %v", body, err)
	}
	return peer
}

func TestInterop_CloudEventsSDKReadsWhatWeWrite(t *testing.T) {
	t.Parallel()
	e := fullEvent()
	e.ExecutionUnits = 11_000_000
	peer := peerDecode(t, e)
	type attributes struct {
		ID, Source, Type, Subject, ContentType, Schema, Data string
		Time                                                 time.Time
		Extensions                                           map[string]any
	}
	got := attributes{
		peer.ID(), peer.Source(), peer.Type(), peer.Subject(), peer.DataContentType(), peer.DataSchema(), string(peer.Data()),
		peer.Time().UTC(), peer.Extensions(),
	}
	want := attributes{
		e.ID, e.Source, e.Type, e.Subject, e.DataContentType, e.DataSchema,
		`{"price":1.50,"id":9007199254740993,"tag":"<\u0041>"}`, time.Date(2026, 11, 21, 2, 58, 44, 408e6, time.UTC),
		map[string]any{
			"to": e.To, "accesscontrol": e.AccessControl, "redirectto": e.RedirectTo, "executionunits": int32(11),
			"traceparent": e.TraceParent, "tracestate": e.TraceState, "parentid": e.ParentID, "domain": e.Domain, "agent": e.Agent,
			"zone": "eu", "attempt": int32(2), "dry": true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the peer read (-want +got):\n%s", diff)
	}
}

func TestInterop_WeReadWhatCloudEventsSDKWrites(t *testing.T) {
	t.Parallel()
	peer := event.New()
	peer.SetID("1")
	peer.SetSource("/weather/zurich")
	peer.SetType("weather.forecast.done")
	peer.SetSubject("trip 7")
	peer.SetTime(time.Date(2026, 11, 21, 3, 58, 44, 408_123_456, time.FixedZone("", 3600)))
	peer.SetDataSchema("https://example.com/weather/1.0.0")
	peer.SetExtension("parentid", "c1-0-x")
	peer.SetExtension("executionunits", 7)
	peer.SetExtension("dry", true)
	want := Event{
		ID: "1", Source: "/weather/zurich", Type: "weather.forecast.done", Subject: "trip 7",
		Time: time.Date(2026, 11, 21, 2, 58, 44, 408_123_456, time.UTC), DataSchema: "https://example.com/weather/1.0.0",
		DataContentType: ContentTypeJSON, Data: json.RawMessage(`{"degrees":-3.5}`), ParentID: "c1-0-x", ExecutionUnits: 7_000_000,
		Extensions: map[string]any{"dry": true},
	}
	for name, data := range map[string]any{
		"value": map[string]float64{"degrees": -3.5},
		"bytes": []byte(`{"degrees":-3.5}`), // the SDK sends bytes as data_base64, whatever they are
	} {
		if err := peer.SetData(event.ApplicationJSON, data); err != nil {
			t.Fatal(err)
		}
		body, err := peer.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if name == "bytes" && !strings.Contains(string(body), `"data_base64"`) {
			t.Errorf("the peer no longer writes data_base64: %s", body)
		}
		got, err := DecodeEvent(map[string][]string{"Content-Type": {event.ApplicationCloudEventsJSON}}, body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestInterop_WhereCloudEventsSDKIsUnfaithful pins the reasons for a codec of our own. When it fails, the peer has
// changed, and the reasons should be looked at again.
func TestInterop_WhereCloudEventsSDKIsUnfaithful(t *testing.T) {
	t.Parallel()
	base := Event{ID: "1", Source: "s", Type: "t", Data: json.RawMessage(`{}`)}

	t.Run("drops nulls, which Arvo requires", func(t *testing.T) {
		t.Parallel()
		body, err := peerDecode(t, base).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "null") || strings.Contains(string(body), "accesscontrol") {
			t.Errorf("nulls survive: %s", body)
		}
	})
	t.Run("truncates fractional execution units", func(t *testing.T) {
		t.Parallel()
		e := base
		e.ExecutionUnits = 500_000
		if got := peerDecode(t, e).Extensions()["executionunits"]; got != int32(0) {
			t.Errorf("0.5 units became %v", got)
		}
	})
	t.Run("refuses execution units beyond 32 bits", func(t *testing.T) {
		t.Parallel()
		e := base
		e.ExecutionUnits = 3_000_000_000 * 1_000_000
		body, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var peer event.Event
		if err := peer.UnmarshalJSON(body); err == nil {
			t.Errorf("accepted as %v", peer.Extensions()["executionunits"])
		}
	})
	t.Run("refuses relative dataschema", func(t *testing.T) {
		t.Parallel()
		e := base
		e.DataSchema = "#/airline/book/1.0.0"
		if err := peerDecode(t, e).Validate(); err == nil {
			t.Error("validated")
		}
	})
	t.Run("does not encode percent signs in headers", func(t *testing.T) {
		t.Parallel()
		peer := event.New()
		peer.SetID("50%")
		peer.SetSource("s")
		peer.SetType("t")
		headers, _ := binaryMode(t, &peer)
		if got := headers["Ce-Id"]; len(got) != 1 || got[0] != "50%" {
			t.Errorf("id in headers %q", got)
		}
	})
	t.Run("takes the last of two members of one name", func(t *testing.T) {
		t.Parallel()
		var peer event.Event
		body := `{"specversion":"1.0","id":"1","source":"s","type":"t","agent":"a","agent":"b"}`
		if err := peer.UnmarshalJSON([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if got := peer.Extensions()["agent"]; got != "b" {
			t.Errorf("agent %v", got)
		}
	})
}

// binaryMode has the peer send an event over HTTP, whose rules for headers are those of NATS but for one: the data's
// type is the Content-Type itself.
func binaryMode(t *testing.T, peer *event.Event) (headers map[string][]string, body []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if err := cehttp.WriteRequest(binding.WithForceBinary(t.Context()), binding.ToMessage(peer), request); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		t.Fatal(err)
	}
	headers = request.Header
	headers["ce-datacontenttype"] = headers["Content-Type"]
	return headers, body
}

func TestInterop_WeReadItsBinaryMode(t *testing.T) {
	t.Parallel()
	peer := event.New()
	peer.SetID("1")
	peer.SetSource("/weather")
	peer.SetType("weather.forecast.done")
	peer.SetSubject("Zürich HB €") // sent as it is, although the binding asks for percent signs
	peer.SetTime(time.Date(2026, 11, 21, 2, 58, 44, 0, time.UTC))
	peer.SetExtension("executionunits", 7)
	peer.SetExtension("dry", true)
	if err := peer.SetData(event.ApplicationJSON, []byte(`{"degrees":-3.50}`)); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEvent(binaryMode(t, &peer))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{
		ID: "1", Source: "/weather", Type: "weather.forecast.done", Subject: "Zürich HB €",
		Time: time.Date(2026, 11, 21, 2, 58, 44, 0, time.UTC), DataContentType: ContentTypeJSON,
		Data: json.RawMessage(`{"degrees":-3.50}`), ExecutionUnits: 7_000_000, Extensions: map[string]any{"dry": "true"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}
