package runner

import (
	"testing"
	"time"
)

func TestActivation_IsRetriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	for delivered, want := range map[int]struct{ idle, wrote time.Duration }{
		1:         {5 * time.Second, 5 * time.Second},
		2:         {10 * time.Second, 10 * time.Second},
		4:         {15 * time.Second, 40 * time.Second},
		5:         {15 * time.Second, time.Minute},
		20:        {15 * time.Second, time.Minute},
		21:        {15 * time.Second, 5 * time.Minute},
		1_000_000: {15 * time.Second, 5 * time.Minute},
	} {
		a := &activation{msg: Message{Delivered: delivered}}
		if got := a.retryDelay(); got != want.idle {
			t.Errorf("delivery %d, which wrote nothing, is retried after %s, want %s", delivered, got, want.idle)
		}
		a.wrote = true
		if got := a.retryDelay(); got != want.wrote {
			t.Errorf("delivery %d, which wrote, is retried after %s, want %s", delivered, got, want.wrote)
		}
	}
}
