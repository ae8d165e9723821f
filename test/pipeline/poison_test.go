package pipeline

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/deadletter"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A run that kills whoever works on it ends with an error, and what it was started with is kept for an operator. One that is retried is
// poison once more, and its workers' deaths count anew: each generation has an end, and each of the messages that it was driven by is a
// dead letter. The one of the retry is not redriven: a copy would change nothing.
func TestPoison_IsSoInEachGeneration(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	var mended atomic.Bool
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if mended.Load() || req.Run != "poison" {
				return sdktest.Say("hi"), nil
			}
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return sdk.ModelReply{}, ctx.Err()
		},
	)}, 1500*time.Millisecond)
	w := r.work(50 * time.Millisecond)
	run := r.begin("poison")
	for _, id := range []string{"", "again"} {
		if id != "" {
			run = r.retry(run, id)
		}
		w = r.poisons(w, run, asked)
		wantResponse(t, r.end(r.begin("healthy "+id)), "hi")
	}
	var letters []string
	r.until("two dead letters", func() bool {
		letters = nil
		r.check("read dead letters", r.client.Letters(t.Context(), broker.LetterFilter{}, func(l broker.Letter) (bool, error) {
			letter := deadletter.Of(r.client.Subjects(), l)
			letters = append(letters, fmt.Sprintf("%s on %s for %s: %v", l.Reason, l.Subject, letter.Event.Subject, letter.Redrivable(t.Context(), r.store)))
			return true, nil
		}))
		return len(letters) == 2
	})
	subjects := wire.DefaultSubjects()
	want := []string{
		"poison_run on " + subjects.Start("desk") + ` for poison: invalid_event: run poison has ended (error:poison_run); it can be taken up with: agentd runs retry poison`,
		"poison_run on " + subjects.Control(wire.ControlRetry, "desk", run.Key) + ` for poison: invalid_event: run poison was taken up by this message before, and a copy changes nothing; ask anew with: agentd runs retry poison`,
	}
	if diff := cmp.Diff(want, letters); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	mended.Store(true)
	wantResponse(t, r.end(r.retry(run, "mended")), "hi")
	sound(t, r.client, r.store)
}

// poisons kills the worker that asks the model, and starts another, until the run has ended as poison. It returns the last one.
func (r *rig) poisons(w *rigWorker, run harness.Run, asked <-chan struct{}) *rigWorker {
	r.t.Helper()
	ended := make(chan wire.Event, 1)
	go func() { ended <- r.end(run) }()
	for deaths := 0; ; {
		select {
		case <-asked:
			deaths++
			r.kill(w)
			w = r.work(50 * time.Millisecond)
		case ev := <-ended:
			wantProblem(r.t, ev, "desk", sdk.CodePoison)
			if want := 8; deaths != want { // two beside others, as far as anybody knows, and six alone
				r.t.Errorf("%d workers died of %v, want %d", deaths, run, want)
			}
			return w
		}
	}
}
