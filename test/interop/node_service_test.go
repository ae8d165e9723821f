package interop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/harness"
	"agentd/sdk/wire"
)

// A service whose connection is closed while a call is in hand ends with an error, and takes nothing else of its program with it. The call is left
// to others.
func TestNodeSDK_ConnectionClosedDuringACall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	r := w.start("trip")
	want := [][]any{
		{"warned", "call CALL is left to another delivery: unavailable: the connection to NATS is closed"},
		{"ended", "unavailable", false},
	}
	if diff := cmp.Diff(want, w.nodeSays("closed_sdk.mjs")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if info := w.consumerInfo(); info.NumAckPending != 1 || len(w.answers()) != 0 {
		t.Errorf("%d calls are to be delivered again, and there are %d answers, want 1 and 0", info.NumAckPending, len(w.answers()))
	}
	w.Cancel(r, "")
}

// What somebody has delivered on the subjects of voids, and is none, ends no call.
func TestNodeSDK_NotAVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	c := nodeSDKService(t, "queued_sdk.mjs")
	c.env = append(c.env, "NATS_USER=worker", "NATS_PASSWORD=hot")
	s := said{w, run(t, c, w.host)}
	r := w.start("trip")
	s.eventually("CALLED Bern")
	call := w.Suspended(r, 1).Calls[0].ID
	w.PublishRaw("agentd.in.local.other.desk."+wire.NewRunKey("other").String()+"."+call, []byte("{}"))
	nc, err := nats.Connect("nats://worker:hot@" + w.host)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const deliver = "agentd.void.local.weather_forecast.x" // the server delivers to who subscribes to it, and then to all who hear it
	heard, err := nc.SubscribeSync(deliver)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Conn().JetStream().CreatePushConsumer(t.Context(), "AGENTD_IN", jetstream.ConsumerConfig{
		DeliverSubject: deliver, FilterSubject: "agentd.in.local.other.>", AckPolicy: jetstream.AckNonePolicy,
	}); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.NextMsg(harness.Patience); err != nil || m.Subject == deliver {
		t.Fatalf("%v, %v", m, err)
	}
	if err := nc.Publish("continue", nil); err != nil {
		t.Fatal(err)
	}
	if got := w.results(r); len(got) != 1 || got[0].Text != `{"text":"sunny in Bern"}` {
		t.Errorf("the model was told %+v", got)
	}
}
