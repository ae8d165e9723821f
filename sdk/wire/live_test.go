package wire_test

import (
	"encoding/json"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestLive_IsACloudEvent(t *testing.T) {
	t.Parallel()
	milestone := wire.Live{
		Run: "trip/7", Agent: "travel.desk", Revision: 12, Index: 3, Count: 4, Turn: 2, Type: "call.result", Time: 1795229924408,
		Data: json.RawMessage(`{"call":"c1"}`),
	}
	fragment := milestone
	fragment.Ephemeral, fragment.ID, fragment.Type = true, "x1", wire.LiveDelta
	for _, l := range []wire.Live{milestone, fragment} {
		encoded, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var peer cloudevents.Event
		if err := json.Unmarshal(encoded, &peer); err != nil || peer.Validate() != nil {
			t.Errorf("%s: %v, %v", encoded, err, peer.Validate())
		}
		if peer.Subject() != l.Run || peer.Time().UnixMilli() != l.Time || peer.Extensions()["sequence"] != "0000000012.0003" {
			t.Errorf("another library reads %v", peer)
		}
		var back wire.Live
		if err := json.Unmarshal(encoded, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(l, back); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestLive_RefusesOtherEvents(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"specversion":"1.0","type":"call.result"}`, `{"specversion":"0.3","type":"agentd.live.x"}`, `[]`} {
		var l wire.Live
		if err := json.Unmarshal([]byte(text), &l); sdk.AsError(err).Code != sdk.CodeInvalidEvent {
			t.Errorf("%s: %v", text, err)
		}
	}
}
