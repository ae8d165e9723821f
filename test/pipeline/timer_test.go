package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// fire publishes what a run's timer fires with, whatever the time is.
func fire(h *harness.Harness, r harness.Run, due int64) {
	h.PublishRaw(h.Conn().Subjects().Fire(r.Agent, r.Key), fmt.Appendf(nil, `{"due":%d}`, due))
}

// awaitFired waits until the run's timer has fired n times, whoever is there to see it.
func awaitFired(t *testing.T, h *harness.Harness, r harness.Run, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	err := h.Conn().Watch(ctx, streams.Timer, []string{h.Conn().Subjects().Fire(r.Agent, r.Key)},
		func(broker.Delivery) bool {
			n--
			return n > 0
		})
	if err != nil {
		t.Fatalf("the timer does not fire: %v", err)
	}
}

// awaitIdle waits until the workers have handled every fired timer.
func awaitIdle(t *testing.T, h *harness.Harness, agent string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	consumers := streams.AgentConsumers(agent)
	timer := consumers[slices.IndexFunc(consumers, func(c streams.ConsumerRef) bool { return c.Zone == streams.Timer })]
	timers, err := h.Conn().Divided(ctx, timer)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var left int64
		for _, ref := range timers {
			backlog, err := h.Conn().Backlog(ctx, ref)
			if err != nil {
				t.Fatal(err)
			}
			left += backlog.Unacked + backlog.Pending
		}
		if left == 0 {
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

// kinds are the kinds of a journal's entries.
func kinds(entries []core.Entry) string {
	var names []string
	for i := range entries {
		names = append(names, entries[i].Kind)
	}
	return strings.Join(names, " ")
}

func TestTimer_FiresWhileNoWorkerIsThere(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Services[0].TimeoutMillis = 10_000 // the workers have stopped by then
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("gave up")))
	r := h.Run("desk", hello())
	due := h.Suspended(r, 1).Timer
	h.StopWorkers()
	awaitFired(t, h, r, 1)
	h.Restart()
	wantResponse(t, h.Done(r), "gave up")
	journal := h.Journal(r)
	i := slices.IndexFunc(journal, func(e core.Entry) bool { return e.Kind == "fired" })
	if i < 0 || len(journal[i].Results) != 1 || journal[i].Results[0].Kind != core.ResultTimeout {
		t.Fatalf("no call timed out by the timer: %s", kinds(journal))
	}
	if journal[i].At < due {
		t.Errorf("the call, due at %d, timed out at %d", due, journal[i].At)
	}
}

func TestTimer_FiresEarlyTwiceAndLateWithoutHarm(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	due := h.Suspended(r, 1).Timer

	fire(h, r, due) // early: nothing is due, and the timer is armed again
	again := h.Until(r, "armed again", func(s core.State) bool { return s.Rev > 2 })
	if again.Timer != due || again.Status != core.StatusWaiting || again.Calls[0].Closed() {
		t.Errorf("after an early timer the run is %s with timer %d, want waiting with %d", again.Status, again.Timer, due)
	}
	fire(h, r, due-1) // not the timer that is armed
	awaitIdle(t, h, "desk")
	if journal := h.Journal(r); kinds(journal) != "started replied fired" {
		t.Errorf("a timer that is not armed changed the run: %s", kinds(journal))
	}

	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
	ended := h.Journal(r)
	for range 2 { // late, and twice
		fire(h, r, due)
	}
	awaitIdle(t, h, "desk")
	if journal := h.Journal(r); len(journal) != len(ended) {
		t.Errorf("a timer changed a run that was done: %s", kinds(journal))
	}
}

func TestTimer_IsOneHoweverOftenItIsArmed(t *testing.T) {
	t.Parallel()
	spec := desk()
	const attempts = 6
	spec.Services[0].TimeoutMillis = 50
	spec.Services[0].Retry = &sdk.Retry{Attempts: attempts, BackoffMillis: 10, MaxBackoffMillis: 10}
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("gave up")))
	r := h.Run("desk", hello())
	wantResponse(t, h.Done(r), "gave up")
	armed := 0
	for _, e := range h.Journal(r) {
		for _, f := range e.Effects {
			if f.Kind == core.EffectTimer {
				armed++
			}
		}
	}
	if armed < attempts {
		t.Errorf("%d timers were armed for %d attempts", armed, attempts)
	}
	var info struct {
		State struct {
			Subjects map[string]int `json:"subjects"`
		} `json:"state"`
	}
	subject := h.Conn().Subjects().Timer("desk", r.Key)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	layout, err := h.Conn().Layout(ctx)
	if err != nil {
		t.Fatal(err)
	}
	request := "$JS.API.STREAM.INFO." + streams.Name(h.Conn().Subjects(), layout.ZoneOf(subject))
	if err := h.Conn().Request(ctx, request, map[string]string{"subjects_filter": subject}, &info); err != nil {
		t.Fatal(err)
	}
	if n := info.State.Subjects[subject]; n > 1 {
		t.Errorf("%d messages for one timer", n)
	}
}
