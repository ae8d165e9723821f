package runner

import (
	"testing"
	"time"
)

func TestMessage_IsRetriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	for delivered, want := range map[int]time.Duration{
		1: 5 * time.Second, 2: 10 * time.Second, 4: 40 * time.Second, 5: time.Minute, 20: time.Minute, 21: 5 * time.Minute,
		1_000_000: 5 * time.Minute,
	} {
		if got := (&Message{Delivered: delivered}).retryDelay(); got != want {
			t.Errorf("after delivery %d the message waits %s, want %s", delivered, got, want)
		}
	}
}
