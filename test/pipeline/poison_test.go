package pipeline

import (
	"context"
	"strings"
	"testing"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A run that kills whoever works on it ends with an error, and what it was started with is kept for an operator.
func TestPoison_EndsAndIsDeadLettered(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if !strings.HasPrefix(req.Run, "poison") {
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
	poison := r.begin("poison")
	ended := make(chan wire.Event, 1)
	go func() { ended <- r.end(poison) }()

	deaths := 0
	for w, alive := r.work(50*time.Millisecond), true; alive; {
		select {
		case <-asked:
			deaths++
			r.kill(w)
			w = r.work(50 * time.Millisecond)
		case ev := <-ended:
			wantProblem(t, ev, "desk", sdk.CodePoison)
			alive = false
		}
	}
	if want := 8; deaths != want { // two beside others, as far as anybody knows, and six alone
		t.Errorf("%d workers died, want %d", deaths, want)
	}
	healthy := r.begin("healthy")
	wantResponse(t, r.end(healthy), "hi")

	var letters []broker.Letter
	r.until("its init event is dead-lettered", func() bool {
		err := r.client.Letters(t.Context(), broker.LetterFilter{}, func(l broker.Letter) (bool, error) {
			letters = append(letters, l)
			return true, nil
		})
		r.check("read dead letters", err)
		return len(letters) > 0
	})
	l := letters[0]
	ev, err := wire.DecodeEvent(l.Headers, l.Data)
	if err != nil || len(letters) != 1 || l.Reason != sdk.CodePoison || l.Subject != wire.DefaultSubjects().Start("desk") || ev.Subject != "poison" {
		t.Errorf("dead letters %+v, %v; want the init event of %q", letters, err, "poison")
	}
	sound(t, r.client, r.store)
}
