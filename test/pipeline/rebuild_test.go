package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/provision"
	"agentd/internal/broker/rebuild"
	"agentd/internal/broker/streams"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
)

// Streams with a thousand runs that wait and a thousand that have ended (with the race detector a tenth of them) are given another persistence, by somebody who is interrupted on
// the way, and their own again. Nothing is lost, nobody is called twice, and every run ends once.
func TestRebuild_OfAThousandRunsThatWaitAndAThousandThatHaveEnded(t *testing.T) {
	t.Parallel()
	const each = rebuilt
	spec := desk()
	spec.Services = slices.Clone(spec.Services)
	spec.Services[0].TimeoutMillis = time.Hour.Milliseconds() // no timer fires while streams are compared
	r := startRig(t, rig{specs: []sdk.AgentSpec{spec}, model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if strings.HasPrefix(req.Run, "ends") {
				return sdktest.Say("three"), nil
			}
			return twoSteps(nil)(ctx, req)
		},
	)}, 0)
	first := r.work(0)
	for i := range each {
		r.begin(fmt.Sprint("waits ", i))
		r.begin(fmt.Sprint("ends ", i))
	}
	for n := uint64(100); n <= each; n += 100 { // which takes its time
		r.until("half of the runs have ended, and the others wait for a call", func() bool {
			return r.stored(streams.Done) >= n && r.stored(streams.Out) >= n
		})
	}
	r.halt(first)

	for _, mode := range []streams.PersistMode{streams.PersistDefault, streams.PersistAsync} {
		o := rebuild.Options{Conn: r.client, Plan: worker.Plan(r.specs), Zones: streams.Rebuildable, Dir: t.TempDir()}
		o.Plan.PersistMode = mode
		before := r.messages(o.Zones...)
		interrupted, interrupt := context.WithCancel(t.Context())
		o.Tell = func(what string) {
			if strings.HasPrefix(what, "restoring "+streams.Name(r.client.Subjects(), streams.Done)) {
				interrupt()
			}
		}
		if changes, err := rebuild.Streams(interrupted, o); err == nil || len(changes) != 1 {
			t.Fatalf("an attempt that was interrupted changed %v: %v", changes, err)
		}
		changes, err := rebuild.Streams(t.Context(), o)
		if err != nil || len(changes) < 2 {
			t.Fatalf("the second attempt changed %v: %v", changes, err)
		}
		if diff := cmp.Diff(before, r.messages(o.Zones...)); diff != "" {
			t.Errorf("made anew, streams have others than before (-had +have):\n%s", diff)
		}
		if again, err := rebuild.Streams(t.Context(), o); err != nil || len(again) != 0 {
			t.Errorf("the third attempt changed %v: %v", again, err)
		}
	}

	r.work(0)
	var mu sync.Mutex
	calls := map[string]int{}
	r.answer(func(_ context.Context, call service.Call) error {
		mu.Lock()
		defer mu.Unlock()
		calls[call.Event.ID]++
		return nil
	})
	for n := uint64(100); n <= each; n += 100 {
		r.until("the others have ended", func() bool { return r.stored(streams.Done) >= each+n })
	}
	for of, event := range r.messages(streams.Done) {
		if !strings.Contains(event, `"response":"three"`) {
			t.Errorf("%s is %s", of, event)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != each {
		t.Errorf("%d calls were made, want %d", len(calls), each)
	}
	for call, n := range calls {
		if n != 1 {
			t.Errorf("call %s was made %d times", call, n)
		}
	}
	if counts := sound(t, r.client, r.store); counts.Runs != 2*each {
		t.Errorf("%d runs are left of %d", counts.Runs, 2*each)
	}
}

// stored is how many messages a zone has.
func (r *rig) stored(zone streams.Zone) uint64 {
	r.t.Helper()
	state, err := r.client.ZoneState(r.t.Context(), zone)
	r.check("look at stream", err)
	return state.Messages
}

// messages are what streams have, leases and notes apart: the contents by stream, sequence and subject.
func (r *rig) messages(zones ...streams.Zone) map[string]string {
	r.t.Helper()
	remakes, err := provision.Remakes(r.t.Context(), r.client, provision.Plan{}, zones...)
	r.check("look at streams", err)
	all := map[string]string{}
	for _, remake := range remakes {
		stream, err := r.client.JetStream().Stream(r.t.Context(), remake.Name)
		r.check("look at stream", err)
		consumer, err := stream.OrderedConsumer(r.t.Context(), jetstream.OrderedConsumerConfig{})
		r.check("read stream", err)
		for left := stream.CachedInfo().State.Msgs; left > 0; {
			batch, err := consumer.Fetch(int(min(left, 500)))
			r.check("read stream", err)
			for m := range batch.Messages() {
				meta, err := m.Metadata()
				r.check("read message", err)
				left--
				if strings.Contains(m.Subject(), "."+streams.LeaseToken+".") {
					continue
				}
				all[fmt.Sprint(remake.Name, " ", meta.Sequence.Stream, " ", m.Subject())] = fmt.Sprint(m.Headers(), string(m.Data()))
			}
			r.check("read stream", batch.Error())
		}
	}
	return all
}
