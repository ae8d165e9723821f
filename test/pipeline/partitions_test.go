package pipeline

import (
	"fmt"
	"testing"

	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// Where streams are divided, runs of all partitions suspend, go on in another worker and end, and each stream has its own.
// AGENTD_TEST_PARTITIONS has all of these tests on streams that are divided.
func TestPartitions_RunsEndOnAllOfThem(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		const partitions = 4
		h, v := start(harness.Options{
			Agents: []sdk.Agent{{Spec: desk()}}, Partitions: partitions, Workers: 2,
			Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")),
		})
		layout, err := h.Conn().Layout(t.Context())
		if err != nil || layout.Partitions() != partitions {
			t.Fatalf("there are %d partitions: %v", layout.Partitions(), err)
		}
		var runs []harness.Run
		on := map[streams.Zone]bool{}
		for i := 0; len(on) < partitions || len(runs) < 3*partitions; i++ {
			ev := h.Init("desk", hello())
			ev.Subject = fmt.Sprint("trip ", i)
			r := h.Send("desk", ev)
			runs = append(runs, r)
			on[layout.OfRun(streams.Timer, r.Key)] = true
		}
		for _, r := range runs {
			h.Suspended(r, 1)
		}
		h.StopWorkers()
		h.Restart()
		for range runs {
			h.Call("calc.add").Answer("calc.added", sum(3))
		}
		for _, r := range runs {
			wantResponse(t, h.Done(r), "three")
			awaitIdle(t, h, r.Agent)
		}
		_, inJetStream := v.(natsVandal)
		for _, whole := range []streams.Zone{streams.Timer, streams.In, streams.Out, streams.Run} {
			zones, err := h.Conn().Zones(t.Context(), whole)
			if err != nil || len(zones) != partitions {
				t.Fatalf("%s is divided into %v: %v", whole, zones, err)
			}
			for _, z := range zones {
				state, err := h.Conn().ZoneState(t.Context(), z)
				if err != nil || state.Messages == 0 && (inJetStream || whole != streams.Run) {
					t.Errorf("%s has %d messages: %v", z, state.Messages, err)
				}
			}
		}
		if inJetStream {
			if counts := sound(t, h.Conn(), natsStore(h.Conn())); counts.Runs != len(runs) {
				t.Errorf("%d runs are audited of %d", counts.Runs, len(runs))
			}
		}
	})
}
