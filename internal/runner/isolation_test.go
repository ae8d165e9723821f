package runner

import (
	"context"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// waiting is an environment in which whoever waits does so until it is woken, or its context ends.
type waiting struct {
	Env
	asleep chan time.Duration
	wake   chan struct{}
}

func (w waiting) Now() int64 { return 0 }

func (w waiting) Sleep(ctx context.Context, d time.Duration) error {
	w.asleep <- d
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.wake:
		return nil
	}
}

func newWaiting() waiting {
	return waiting{asleep: make(chan time.Duration, 8), wake: make(chan struct{})}
}

func arrive(env Env, isolation *Isolation) *activation {
	r := &Runner{Options: Options{Env: env, Isolation: isolation, Silence: time.Hour}}
	return &activation{Runner: r, msg: &Message{}, key: wire.NewRunKey("order 7")}
}

func within(t *testing.T, what string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not after half a minute", what)
	}
}

func running(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
}

// While who is to be alone does not know that the others have left, nobody does anything. So it does not look: it is called.
func TestIsolation_WhoIsLetInIsCalled(t *testing.T) {
	t.Parallel()
	isolation, env := &Isolation{}, newWaiting()
	first, second, third := arrive(env, isolation), arrive(env, isolation), arrive(env, isolation)
	within(t, "the first one is let in", running(func() error { return first.enter(t.Context()) }))
	second.alone = true
	alone := running(func() error { return second.enter(t.Context()) })
	<-env.asleep
	beside := running(func() error { return third.enter(t.Context()) })
	<-env.asleep
	isolation.leave(first.pass)
	within(t, "who is to be alone is let in", alone)
	if inside, by := isolation.admitted(third.pass); inside || by != second.pass {
		t.Errorf("the third one is inside: %v", inside)
	}
	isolation.join(second.pass)
	within(t, "the third one is let in", beside)
}

// Who is held back before it takes a run does nothing: another one that must be alone does not wait for it. After that it must be alone,
// too.
func TestHoldBack_KeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	isolation, env := &Isolation{}, newWaiting()
	held, other := arrive(env, isolation), arrive(newWaiting(), isolation)
	within(t, "one is let in", running(func() error { return held.enter(t.Context()) }))
	held.head.Driver = &core.Driver{Owner: "dead", Takeovers: 1}
	takes := running(func() error { return held.holdBack(t.Context()) })
	if d := <-env.asleep; d < pauseBeforeTakeover>>(halvings-1) || d > pauseBeforeTakeover {
		t.Errorf("it waits for %s", d)
	}
	other.alone = true
	within(t, "another one is let in alone", running(func() error { return other.enter(t.Context()) }))
	env.wake <- struct{}{}
	<-env.asleep // as it waits
	isolation.leave(other.pass)
	within(t, "the first one is let in again", takes)
	if !held.alone || !held.heldBack {
		t.Errorf("it is alone: %v, and was held back: %v", held.alone, held.heldBack)
	}
}

// Where workers die sooner than a run waits before it is taken, it would wait for ever if it waited as long each time.
func TestHoldBack_IsAnotherOneAtEachDelivery(t *testing.T) {
	t.Parallel()
	env, waits := newWaiting(), map[time.Duration]int{}
	const deliveries = 40
	for n := range deliveries {
		held := arrive(env, &Isolation{})
		within(t, "it is let in", running(func() error { return held.enter(t.Context()) }))
		held.msg.Delivered, held.head.Driver = 1+n, &core.Driver{Owner: "dead", Takeovers: 1}
		takes := running(func() error { return held.holdBack(t.Context()) })
		waits[<-env.asleep]++
		env.wake <- struct{}{}
		within(t, "it is let in again", takes)
	}
	for _, ms := range []float64{62.5, 125, 250, 500, 1000, 2000} {
		length := time.Duration(ms * float64(time.Millisecond))
		if waits[length] == 0 {
			t.Errorf("in %d deliveries it never waits for %s: %v", deliveries, length, waits)
		}
		delete(waits, length)
	}
	if len(waits) != 0 {
		t.Errorf("it also waits for %v", waits)
	}
}
