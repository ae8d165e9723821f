package webhook

import (
	"errors"
	"testing"
	"time"

	"agentd/internal/broker"
)

// delivery is one of the message at a sequence, the how-many-eth.
type delivery struct {
	broker.Delivery
	sequence  uint64
	delivered int
}

func (d delivery) Stream() string   { return "AGENTD_OUT" }
func (d delivery) Sequence() uint64 { return d.sequence }
func (d delivery) Delivered() int   { return d.delivered }

// Each failure in a row doubles the pause before the next try, for each request by itself. Deliveries that are given back because the desk is
// behind are no failures: they come again soon, and less and less often while it stays behind.
func TestNoted_PausesDoubleWithEachFailureInARow(t *testing.T) {
	t.Parallel()
	away := errors.New("nobody answers")
	told := &teller{Options: Options{Backoff: time.Second}, failed: map[stored]int{}}
	for i, step := range []struct {
		delivery delivery
		told     bool
		failure  error
		want     time.Duration
	}{
		{delivery{sequence: 7, delivered: 1}, false, nil, 100 * time.Millisecond}, // the desk is behind
		{delivery{sequence: 7, delivered: 3}, false, nil, 400 * time.Millisecond},
		{delivery{sequence: 7, delivered: 40}, false, away, time.Second},
		{delivery{sequence: 7, delivered: 41}, false, away, 2 * time.Second},
		{delivery{sequence: 7, delivered: 42}, false, nil, 2 * time.Second},
		{delivery{sequence: 8, delivered: 1}, false, away, time.Second},
		{delivery{sequence: 7, delivered: 43}, false, away, 4 * time.Second},
		{delivery{sequence: 7, delivered: 44}, true, nil, 0},
		{delivery{sequence: 7, delivered: 45}, false, away, time.Second}, // of a reminder
	} {
		if got := told.noted(step.delivery, step.told, step.failure); got != step.want {
			t.Errorf("step %d: it is left alone for %s, want %s", i, got, step.want)
		}
	}
	for range 20 {
		told.noted(delivery{sequence: 8}, false, away)
	}
	if got := told.noted(delivery{sequence: 8}, false, away); got != 5*time.Minute {
		t.Errorf("after 22 failures it is left alone for %s, want 5m0s", got)
	}
	for i := range uint64(2 * mostFailed) {
		told.noted(delivery{sequence: 100 + i}, false, away)
	}
	if len(told.failed) > mostFailed {
		t.Errorf("it remembers %d failures, want %d at most", len(told.failed), mostFailed)
	}
	clear(told.failed)
	told.noted(delivery{sequence: 8}, false, away)
	told.noted(delivery{sequence: 7}, true, nil)
	told.noted(delivery{sequence: 8}, true, nil)
	if len(told.failed) > 0 {
		t.Errorf("of requests that were told of it remembers %v", told.failed)
	}
}
