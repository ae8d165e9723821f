package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"agentd/internal/retry"
)

var pauses = retry.Pauses{First: time.Second, Longest: 5 * time.Second}

const s = time.Second

func TestPauses_DoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	want := []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}
	sequence := pauses.Start()
	for i, pause := range want {
		if got := sequence.Next(); got != pause {
			t.Errorf("pause %d is %s, want %s", i+1, got, pause)
		}
		if got := pauses.Nth(i + 1); got != pause {
			t.Errorf("Nth(%d) is %s, want %s", i+1, got, pause)
		}
	}
	sequence.Reset()
	if got := sequence.Next(); got != s {
		t.Errorf("after a success the pause is %s", got)
	}
	for n, pause := range map[int]time.Duration{-1: s, 0: s, 1 << 40: 5 * s} {
		if got := pauses.Nth(n); got != pause {
			t.Errorf("Nth(%d) is %s, want %s", n, got, pause)
		}
	}
}

func TestPauses_Spread(t *testing.T) {
	t.Parallel()
	sequence := retry.Pauses{First: 8 * s, Longest: 8 * s, Spread: 0.5}.Start()
	different := map[time.Duration]bool{}
	for range 50 {
		pause := sequence.Next()
		different[pause] = true
		if pause < 4*s || pause > 12*s+1 {
			t.Errorf("a pause is %s", pause)
		}
	}
	if len(different) < 2 {
		t.Error("all pauses are equal")
	}
}

func TestDo_RepeatsUntilItSucceedsOrFailsForGood(t *testing.T) {
	t.Parallel()
	away, refused, ended := errors.New("away"), errors.New("refused"), errors.New("ended")
	for name, tt := range map[string]struct {
		attempts []error
		slept    []time.Duration
		err      error
		text     string
	}{
		"success":        {[]error{nil}, nil, nil, ""},
		"after failures": {[]error{away, away, nil}, []time.Duration{s, 2 * s}, nil, ""},
		"for good":       {[]error{away, retry.Final(refused)}, []time.Duration{s}, refused, "refused"},
		"interrupted":    {[]error{away, away, away, away}, []time.Duration{s, 2 * s, 4 * s}, ended, "ended (the last attempt failed: away)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := 0
			var slept []time.Duration
			err := pauses.Do(t.Context(), func(_ context.Context, d time.Duration) error {
				if len(slept) == 3 {
					return ended
				}
				slept = append(slept, d)
				return nil
			}, func() error {
				made++
				return tt.attempts[made-1]
			})
			if !errors.Is(err, tt.err) || err != nil && err.Error() != tt.text || made != len(tt.attempts) || !slices.Equal(slept, tt.slept) {
				t.Errorf("%d attempts, pauses %v, error %v", made, slept, err)
			}
		})
	}
	if retry.Final(nil) != nil {
		t.Error("no error is final")
	}
}

func TestSleep_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := retry.Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := retry.Sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
}
