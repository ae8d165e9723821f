package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// flights is a server in which commands last until they are let go. It answers them in place of one that is asked over a connection.
type flights struct {
	// sent has the names of commands that were sent together.
	sent chan []string
	// land lets a flight land, and says which of its commands fail.
	land chan map[string]error
}

func newFlights(t *testing.T) (*flights, *redis.Client) {
	f := &flights{sent: make(chan []string, 100), land: make(chan map[string]error)}
	client := redis.NewClient(&redis.Options{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it has a goroutine of its own
	})
	client.AddHook(f)
	t.Cleanup(func() { _ = client.Close() })
	return f, client
}

func (f *flights) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *flights) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return f.answer(cmd) }
}

func (f *flights) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return f.answer(cmds...) }
}

func (f *flights) answer(cmds ...redis.Cmder) error {
	var names []string
	for _, cmd := range cmds {
		names = append(names, cmd.Name())
	}
	f.sent <- names
	fails := <-f.land
	var first error
	for _, cmd := range cmds {
		if err := fails[cmd.Name()]; err != nil {
			cmd.SetErr(err)
			first = err
		}
	}
	return first
}

// Commands that come while others are under way are sent together, and each has its own outcome.
func TestGatherer_SendsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := newFlights(t)
		g := &gatherer{}
		outcomes := map[string]chan error{}
		send := func(name string) {
			outcome := make(chan error, 1)
			outcomes[name] = outcome
			go func() { outcome <- g.do(t.Context(), client, redis.NewCmd(t.Context(), name)) }()
			synctest.Wait()
		}
		for i := range 7 {
			send(fmt.Sprint("c", i))
		}
		for _, want := range []string{"c0", "c1"} {
			if got := <-f.sent; !slices.Equal(got, []string{want}) {
				t.Errorf("sent %q, want %q alone", got, want)
			}
		}
		if len(f.sent) > 0 {
			t.Fatalf("sent %q while %d flights were under way", <-f.sent, mostFlights)
		}
		broken := errors.New("c4 is broken")
		f.land <- nil
		if got, want := <-f.sent, []string{"c2", "c3", "c4", "c5", "c6"}; !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
		synctest.Wait()
		f.land <- map[string]error{"c4": broken}
		f.land <- map[string]error{"c4": broken}
		for name, outcome := range outcomes {
			want := error(nil)
			if name == "c4" {
				want = broken
			}
			if err := <-outcome; !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	})
}

// Who sends a command does not wait for it longer than it wants to: it is not sent any more, and those that it would have been sent with are.
func TestGatherer_LeavesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := newFlights(t)
		g := &gatherer{}
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		for range mostFlights {
			go func() { _ = g.do(t.Context(), client, redis.NewCmd(t.Context(), "busy")) }()
			synctest.Wait()
		}
		go func() { first <- g.do(ctx, client, redis.NewCmd(ctx, "first")) }()
		go func() { second <- g.do(t.Context(), client, redis.NewCmd(t.Context(), "second")) }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v, want %v", err, context.Canceled)
		}
		for range mostFlights + 1 {
			f.land <- nil
		}
		if err := <-second; err != nil {
			t.Errorf("second: %v", err)
		}
		synctest.Wait()
		close(f.sent)
		for names := range f.sent {
			if slices.Contains(names, "first") {
				t.Errorf("sent %q, and nobody waits for the first", names)
			}
		}
		if err := g.do(ctx, client, redis.NewCmd(ctx, "late")); !errors.Is(err, context.Canceled) {
			t.Errorf("late: %v, want %v", err, context.Canceled)
		}
	})
}
