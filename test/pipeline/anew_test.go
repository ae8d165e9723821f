package pipeline

import (
	"context"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A stream that was lost and made anew counts from 1 again. A message in it is not taken for the one that had its place and whose delivery
// covered the run when its worker died: it says what it says.
func TestStream_MadeAnewBringsNoDriverBack(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, open func(*broker.Conn) runner.Store) {
		held := newGate()
		model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if req.Interactions.Current == 0 {
				return sdktest.Ask(add(1, 2)), nil
			}
			return sdktest.Say("three"), held.pass(ctx)
		})
		r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: model, openStore: open}, 0)
		r.answerSums("", nil)
		first := r.work(time.Millisecond)
		run := r.begin("outlives a stream")
		r.until("the answer has its run driven", func() bool { return held.came.Load() == 1 })
		layout, err := r.client.Layout(t.Context())
		r.check("look how streams are divided", err)
		in := streams.Name(r.client.Subjects(), layout.OfRun(streams.In, run.Key))
		r.until("the answer is written without the reply that it waits for", func() bool { return r.head(run).Driver != nil })
		if d := r.head(run).Driver; d == nil || d.Stream != in || d.Sequence != 1 {
			t.Fatalf("the run is driven by %+v, want the first message of %s", d, in)
		}
		r.kill(first)
		close(held.open)
		r.check("lose the stream", r.client.JetStream().DeleteStream(t.Context(), in))
		_, err = provision.Apply(t.Context(), r.client, worker.Plan(r.specs))
		r.check("provision", err)
		r.control(run, wire.ControlCancel, `{"reason":"enough"}`)
		r.work(0)
		r.until("the message is absorbed", func() bool { return r.floors()[1] == 1 })
		if h := r.head(run); h.Status != core.StatusRunning || h.Cancel == nil {
			t.Errorf("the run is %s (%s), with the cancel %+v; want it cancelled", h.Status, h.Termination(), h.Cancel)
		}
	})
}
