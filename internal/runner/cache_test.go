package runner

import (
	"fmt"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// kept is a run that waits for a service, with a conversation of so many bytes.
func kept(name string, size int) cached {
	s := asking(name, size)
	s.state.Calls = []core.Call{{ID: "c1", Kind: core.CallService, Status: core.CallSuspended}}
	return s
}

// asking is one that waits for a person.
func asking(name string, size int) cached {
	s := cached{run: wire.NewRunKey(name), state: &core.State{}}
	s.state.Calls = []core.Call{{ID: "c1", Kind: core.CallService, Status: core.CallSuspended, Domains: []string{sdk.HumanDomain}}}
	s.state.Status = core.StatusWaiting
	s.state.History = []core.Remembered{{Message: sdk.Message{Content: []sdk.Content{{Kind: sdk.ContentText, Text: strings.Repeat("x", size)}}}}}
	return s
}

// A worker keeps as many runs that wait as its memory has room for, those of which it heard last, and none that has ended: one that it
// does not keep is read as a whole at its next step.
func TestCache_KeepsRunsThatWait(t *testing.T) {
	t.Parallel()
	c := newCache(defaultCache)
	const runs = 1000
	for n := range runs {
		c.put(kept(fmt.Sprint(n), 10_000))
	}
	for n := range runs {
		if s, ok := c.take(wire.NewRunKey(fmt.Sprint(n))); !ok || s.state.Size() != 10_000 {
			t.Fatalf("run %d of %d small ones is not kept: %t", n, runs, ok)
		}
	}
	c.put(kept("first", defaultCache/2))
	c.put(kept("second", defaultCache/4))
	c.put(kept("second", defaultCache/4)) // once more
	c.put(kept("third", defaultCache/2))
	ended := kept("third", 1)
	ended.state.Status = core.StatusDone
	for _, step := range []struct {
		run  string
		want bool
	}{{"first", false}, {"second", true}, {"third", true}} {
		s, ok := c.take(wire.NewRunKey(step.run))
		if ok != step.want {
			t.Errorf("the %s run is kept: %t; want %t", step.run, ok, step.want)
		}
		if ok {
			c.put(s)
		}
	}
	c.put(ended)
	if _, ok := c.take(ended.run); ok {
		t.Error("a run that has ended is kept")
	}
	c.put(kept("huge", defaultCache))
	_, other := c.take(wire.NewRunKey("second"))
	_, huge := c.take(wire.NewRunKey("huge"))
	if other || !huge || c.calling.used != 0 || c.calling.order.Len() != 0 || len(c.runs) != 0 {
		t.Errorf("of a huge run and another %t and %t are kept; then %d bytes of %d runs are in use", huge, other, c.calling.used, c.calling.order.Len())
	}
	none := newCache(-1)
	none.put(kept("first", 1))
	if _, ok := none.take(wire.NewRunKey("first")); ok {
		t.Error("a run is kept where none is to be")
	}
}

// However many runs wait for people, those that wait for services stay, and the others take a quarter of their room at most.
func TestCache_RunsThatWaitForPeopleMakeNoOthersLeave(t *testing.T) {
	t.Parallel()
	const size, room = 10_000, 100
	c := newCache(room * (size + stateBase + messageBase))
	for n := range room {
		c.put(kept(fmt.Sprint("calling ", n), size))
	}
	for n := range 10 * room {
		c.put(asking(fmt.Sprint("asking ", n), size))
	}
	for n := range room {
		if _, ok := c.take(wire.NewRunKey(fmt.Sprint("calling ", n))); !ok {
			t.Fatalf("run %d of %d that wait for services is not kept", n, room)
		}
	}
	var asks []int
	for n := range 10 * room {
		if _, ok := c.take(wire.NewRunKey(fmt.Sprint("asking ", n))); ok {
			asks = append(asks, n)
		}
	}
	if len(asks) != room/4 || asks[0] != 10*room-room/4 {
		t.Errorf("of those that wait for people %d are kept, %v; want the last %d", len(asks), asks, room/4)
	}
	for _, step := range []struct {
		what             string
		call             core.Call
		calling, resting int
	}{
		{"a service is called", core.Call{Kind: core.CallService, Status: core.CallSuspended}, 1, 0},
		{"a person is asked", asking("trip", size).state.Calls[0], 0, 1},
		{"a person is asked whether it may be called", core.Call{Kind: core.CallService, Status: core.CallSuspended, Held: "p1"}, 0, 1},
		{"it is called after another", core.Call{Kind: core.CallService, Status: core.CallSuspended, Queued: true}, 0, 1},
		{"it is called again", core.Call{Kind: core.CallService, Status: core.CallSuspended, RetryAt: 1}, 1, 0},
		{"it has answered", core.Call{Kind: core.CallService, Status: core.CallSucceeded}, 0, 1},
	} {
		s := kept("trip", size)
		s.state.Calls = []core.Call{step.call}
		c.put(s)
		if c.calling.order.Len() != step.calling || c.resting.order.Len() != step.resting {
			t.Errorf("%s: %d and %d runs are kept", step.what, c.calling.order.Len(), c.resting.order.Len())
		}
	}
}

// What was written last of a run that waits is remembered, however many others end meanwhile.
func TestRecent_ForgetsRunsThatEnd(t *testing.T) {
	t.Parallel()
	r := newRecent()
	write := func(name string, status core.Status) wire.RunKey {
		run := wire.NewRunKey(name)
		r.wrote(run, &core.Entry{Change: core.Change{Head: core.Head{Status: status}}}, point{})
		return run
	}
	waits := write("waits", core.StatusWaiting)
	for n := range 2 * mostRecent {
		name := fmt.Sprint(n)
		write(name, core.StatusWaiting)
		if run := write(name, core.StatusDone); n == 0 {
			if _, known := r.ends.Get(run); known {
				t.Error("what was written last of a run that has ended is remembered")
			}
		}
	}
	if _, known := r.ends.Get(waits); !known {
		t.Errorf("of a run that waits it is forgotten after %d others have ended", 2*mostRecent)
	}
}

// A state belongs to whoever takes it as soon as it is in the cache: the activation that has left it knows the run by a head of its own.
func TestLeaveState_LooksAtNothingThatItHasLeft(t *testing.T) {
	t.Parallel()
	for range 1000 {
		a := &activation{Runner: &Runner{cache: newCache(defaultCache)}, key: wire.NewRunKey("trip")}
		a.state = kept("trip", 1).state
		a.state.Run = "as it was"
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			for {
				if s, ok := a.cache.take(a.key); ok {
					s.state.Run = "as it has become"
					return
				}
			}
		}()
		a.leaveState()
		<-taken
		if a.state.Run != "as it was" {
			t.Fatalf("the run is %s", a.state.Run)
		}
	}
}
