package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/harness"
	"agentd/sdk"
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

// What is delivered to a service and is no call is a dead letter, where the service may store one; its next call is answered either way. An answer
// says whom it is for and what it cost.
func TestNodeSDK_NoCall(t *testing.T) {
	t.Parallel()
	for name, user := range map[string][]string{"may": {"NATS_USER=worker", "NATS_PASSWORD=hot"}, "may not": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, docContract(t), time.Minute, city("Bern"))
			key := wire.NewRunKey("other")
			subject := w.Conn().Subjects().Call(wire.CallAddress{
				Domain: wire.LocalDomain, Type: wire.NameToken(w.contract.Type), Agent: "desk", Run: key,
				Call: wire.CallID(key, "init", 1, 0, w.contract.Type, []byte(`{}`)),
			})
			w.PublishRaw(subject, []byte("no event"))
			c := nodeSDKService(t, "costing_sdk.mjs")
			c.env = append(c.env, user...)
			p := run(t, c, w.host)
			if user != nil {
				letter := w.DeadLetter()
				if letter.Reason != string(sdk.CodeInvalidEvent) || letter.Subject != subject || string(letter.Data) != "no event" || !strings.Contains(letter.Detail, "structured mode") {
					t.Errorf("the dead letter is %+v", letter)
				}
			}
			if got := w.results(w.start("trip")); len(got) != 1 || got[0].Text != `{"text":"sunny in Bern"}` {
				t.Errorf("the model was told %+v", got)
			}
			for reply, answer := range w.answers() {
				if answer.To != reply || answer.ExecutionUnits != 250_000 {
					t.Errorf("the answer is to %s and cost %s, want %s and 0.25", answer.To, answer.ExecutionUnits, reply)
				}
			}
			w.settled()
			w.NoDeadLetter()
			if may := !strings.Contains(p.log.String(), "as this user may not store dead letters"); may != (user != nil) {
				t.Error("it says of its rights what is not so")
			}
		})
	}
}
