// Package retry repeats what failed, with growing pauses. It reads no clock: who calls it gives it the sleep.
package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses are between attempts: each is twice as long as the one before, from First to Longest.
type Pauses struct {
	First, Longest time.Duration
	// Spread is how much of a pause is added or taken away at random, so that many do not come back together: 0 (none, as all that
	// the simulator runs must have it) to 1.
	Spread float64
}

// Start begins with the first pause.
func (p Pauses) Start() *Sequence {
	return &Sequence{backoff.ExponentialBackOff{
		InitialInterval: p.First, Multiplier: 2, MaxInterval: p.Longest, RandomizationFactor: p.Spread,
	}}
}

// Nth is the pause after the nth failure, from 1, for who does not keep a Sequence. It has no Spread.
func (p Pauses) Nth(n int) time.Duration {
	p.Spread = 0
	s := p.Start()
	pause := s.Next()
	for range n - 1 {
		if pause >= p.Longest {
			break
		}
		pause = s.Next()
	}
	return pause
}

// Sequence is where somebody is in Pauses. It is not safe for concurrent use.
type Sequence struct{ growing backoff.ExponentialBackOff }

// Next returns the pause before the next attempt.
func (s *Sequence) Next() time.Duration { return s.growing.NextBackOff() }

// Reset begins with the first pause again, after a success.
func (s *Sequence) Reset() { s.growing.Reset() }

// SleepFunc returns nil after d, or an error when ctx ends first.
type SleepFunc func(ctx context.Context, d time.Duration) error

// Do makes attempts until one succeeds, which returns nil, or fails for good (Final), which returns its error. When sleep fails, the
// error is sleep's, and says in its text how the last attempt failed.
func (p Pauses) Do(ctx context.Context, sleep SleepFunc, attempt func() error) error {
	pauses := p.Start()
	for {
		err := attempt()
		if final, ok := err.(*final); ok { //nolint:errorlint // what an attempt says of itself, not what it met
			return final.error
		}
		if err == nil {
			return nil
		}
		if stopped := sleep(ctx, pauses.Next()); stopped != nil {
			return fmt.Errorf("%w (the last attempt failed: %s)", stopped, err.Error())
		}
	}
}

type final struct{ error }

// Final says that repeating an attempt does not mend err; nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &final{err}
}

// Sleep is a SleepFunc on the clock of the system.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
