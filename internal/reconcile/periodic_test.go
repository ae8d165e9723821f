package reconcile

import (
	"errors"
	"testing"
	"time"
)

// A pass that meets the election of a leader is not put off until the next one is due.
func TestPauses_AFailedPassIsMadeAgainSoon(t *testing.T) {
	t.Parallel()
	failed := errors.New("no leader")
	const usual = 15 * time.Minute
	p := newPauses(usual)
	if got := p.after(nil); got != usual {
		t.Errorf("after a pass it waits for %s, want %s", got, usual)
	}
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		if got := p.after(failed); got != want {
			t.Errorf("after one that failed it waits for %s, want %s", got, want)
		}
	}
	for range 10 {
		p.after(failed)
	}
	if got := p.after(failed); got != usual {
		t.Errorf("after many that failed it waits for %s, want %s", got, usual)
	}
	p.after(nil)
	if got := p.after(failed); got != lossAgain {
		t.Errorf("after one that failed since one that did not it waits for %s, want %s", got, lossAgain)
	}
	if p = newPauses(time.Second); p.after(failed) != time.Second {
		t.Error("it waits for longer than it usually does")
	}
}
