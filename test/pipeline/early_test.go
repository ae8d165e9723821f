package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// A cancel that is handled before the init event of its run waits for it.
func TestEarly_CancelWaitsForItsRun(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2))))
	ev := h.Init("desk", hello())
	h.Cancel(harness.Run{Subject: ev.Subject, Key: wire.NewRunKey(ev.Subject), Agent: "desk"}, "never mind")
	delivered(t, h, streams.AgentConsumers("desk")[1], 1)
	r := h.Send("desk", ev)
	ended(h, r, core.ReasonCancelled)
	h.NoDeadLetter()
}

// A message that is handled before the init event of its run is heard by it.
func TestEarly_MessageIsHeard(t *testing.T) {
	t.Parallel()
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three"))
	h := start(t, desk(), model)
	ev := h.Init("desk", hello())
	h.Publish(h.Conn().Subjects().Control(wire.ControlMessage, "desk", wire.NewRunKey(ev.Subject)), wire.Event{
		ID: "m-1", Source: "com.test.client", Type: "message", Subject: ev.Subject, Data: json.RawMessage(`{"message":"and be quick"}`),
	})
	delivered(t, h, streams.AgentConsumers("desk")[1], 1)
	r := h.Send("desk", ev)
	h.Until(r, "the message is heard", func(s core.State) bool { return len(s.Heard) == 1 })
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
	requests := model.Requests()
	heard := func(m sdk.Message) bool { return m.PlainText() == "and be quick" }
	if told := requests[len(requests)-1].Messages; !slices.ContainsFunc(told, heard) {
		t.Errorf("the model was told %+v", told)
	}
	h.NoDeadLetter()
}

// delivered waits until a consumer has handed out the first n messages of its stream.
func delivered(t *testing.T, h *harness.Harness, ref streams.ConsumerRef, n uint64) {
	t.Helper()
	poll.Until(t, harness.Patience, fmt.Sprintf("message %d is delivered to %v", n, ref), func() bool {
		var come uint64
		for _, info := range consumersOf(t, h.Conn(), ref) {
			come += info.Delivered.Stream
		}
		return come >= n
	})
}
