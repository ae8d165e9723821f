package live

import (
	"context"
	"log/slog"
	"testing"
)

// An agent may be paused and resumed while its runs are woken: those that wait since then are woken, too.
func TestWaking_OfAnAgentThatIsResumedMeanwhile(t *testing.T) {
	t.Parallel()
	var w *waking
	times := 0
	w = newWaking(t.Context(), func(context.Context, string) error {
		if times++; times == 1 {
			w.wake("payer")
			w.wake("payer")
		}
		return nil
	}, slog.New(slog.DiscardHandler))
	w.wake("payer")
	w.agents.Wait()
	if times != 2 || len(w.again) > 0 {
		t.Errorf("runs were woken %d times, want 2; under way are %v", times, w.again)
	}
	w.wake("payer")
	w.close()
	w.wake("payer")
	if times != 3 || len(w.again) > 0 {
		t.Errorf("runs were woken %d times, want 3; under way are %v", times, w.again)
	}
}
