package pipeline

import (
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Who listens without a stream hears one terminal event, however often the init event is sent, whatever became of it.
func TestHeard_TerminalEventsOnceWhateverIsSentAgain(t *testing.T) {
	t.Parallel()
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: sdktest.Script(sdktest.Say("hi"))}, 0)
	r.work(0)
	nc, err := nats.Connect(r.server.URL())
	r.check("connect", err)
	t.Cleanup(nc.Close)
	ends, err := nc.SubscribeSync("agentd.done.>")
	r.check("subscribe", err)
	r.check("flush", nc.Flush())

	done, refused := r.init("done"), r.init("refused")
	refused.Data = []byte(`{"message":7}`)
	for range 4 {
		for agent, events := range map[string][]wire.Event{"desk": {done, refused}, "ghost": {done}} {
			for _, ev := range events {
				r.check("publish init event", r.client.Start(t.Context(), agent, ev))
				r.end(harness.Run{Agent: agent, Key: wire.NewRunKey(ev.Subject), Init: wire.InitToken(ev.Source, ev.ID)})
			}
		}
	}
	for _, ref := range []streams.ConsumerRef{streams.AgentConsumers("desk")[0], {Zone: streams.Start, Name: streams.UnroutedConsumer}} {
		r.until("all init events are acked", func() bool {
			left, err := r.client.Backlog(t.Context(), ref)
			r.check("look at consumer", err)
			return left.Pending == 0 && left.Unacked == 0
		})
	}
	r.check("flush", nc.Flush())
	heard := map[string]int{}
	for range 3 {
		m, err := ends.NextMsg(harness.Patience)
		r.check("hear a terminal event", err)
		ev, err := wire.DecodeEvent(m.Header, m.Data)
		r.check("decode", err)
		heard[ev.Type+" of "+ev.Subject]++
	}
	for _, want := range []string{"desk.done of done", "sys.desk.error of refused", "sys.ghost.error of done"} {
		if heard[want] != 1 {
			t.Errorf("heard %d times: %s", heard[want], want)
		}
	}
	if n, _, err := ends.Pending(); err != nil || n != 0 {
		t.Errorf("%d more terminal events were heard: %v", n, err)
	}
}
