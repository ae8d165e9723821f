package reconcile

import (
	"testing"
	"time"
)

// A pass that meets the election of a leader is not put off until the next one is due.
func TestTryingAgain_AFailedPassIsMadeAgainSoon(t *testing.T) {
	t.Parallel()
	const usual = 15 * time.Minute
	p := tryingAgain(usual)
	for n, want := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 12: usual} {
		if got := p.Nth(n); got != want {
			t.Errorf("after %d that failed it waits for %s, want %s", n, got, want)
		}
	}
	if p = tryingAgain(time.Second); p.Nth(1) != time.Second {
		t.Error("it waits for longer than it usually does")
	}
}
