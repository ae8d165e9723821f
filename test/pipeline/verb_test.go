package pipeline

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// aged is a delivery that came so often, and was stored so long ago. It tells how it is settled.
type aged struct {
	broker.Delivery
	delivered int
	since     time.Duration
	settled   func(how string, after time.Duration)
}

func (d aged) Delivered() int  { return d.delivered }
func (d aged) Received() int64 { return d.Delivery.Received() - d.since.Milliseconds() }

func (d aged) Ack() error {
	d.settled("ack", 0)
	return d.Delivery.Ack()
}

func (d aged) Nak(after time.Duration) error {
	d.settled("nak", after)
	return d.Delivery.Nak(0)
}

// settlement is how a delivery was settled.
type settlement struct {
	how   string
	after time.Duration
}

// A control message whose verb the worker does not know is left to a later version's worker, which may come at any time of the day; then
// it is a dead letter, which says what to do. The run goes on as if it had not come.
func TestControl_UnknownVerbWaitsADayForAnotherWorker(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var settled []settlement
	// What the broker would say of the message's deliveries in the course of a day.
	deliveries := []aged{
		{delivered: 1}, {delivered: 2}, {delivered: 5}, {delivered: 9}, {delivered: 290, since: 24*time.Hour - time.Minute}, {delivered: 291, since: 24 * time.Hour},
	}
	around := func(ctx context.Context, d broker.Delivery, handle func(context.Context, broker.Delivery)) {
		if !strings.Contains(d.Subject(), ".ctl.sing.") {
			handle(ctx, d)
			return
		}
		mu.Lock()
		shown := deliveries[len(settled)]
		mu.Unlock()
		shown.Delivery, shown.settled = d, func(how string, after time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			settled = append(settled, settlement{how, after})
		}
		handle(ctx, shown)
	}
	r := startRig(t, rig{specs: []sdk.AgentSpec{desk()}, model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")), around: around}, 0)
	r.work(0)
	run := r.begin("sung to")
	r.until("the run waits", func() bool { return r.head(run).Status == core.StatusWaiting })
	r.control(run, "sing", `{}`)
	r.until("the message is settled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(settled) == len(deliveries)
	})
	want := []settlement{
		{"nak", 5 * time.Second}, {"nak", 10 * time.Second}, {"nak", 80 * time.Second}, {"nak", 5 * time.Minute}, {"nak", 5 * time.Minute}, {"ack", 0},
	}
	for i, got := range settled {
		if got != want[i] {
			t.Errorf("delivery %d was settled with %+v, want %+v", deliveries[i].delivered, got, want[i])
		}
	}
	letters := 0
	r.check("read dead letters", r.client.Letters(t.Context(), broker.LetterFilter{}, func(l broker.Letter) (bool, error) {
		letters++
		const says = `no worker knew the verb "sing" for 24 hours; upgrade the workers and redrive the message`
		if l.Reason != sdk.CodeInvalidEvent || l.Subject != wire.DefaultSubjects().Control("sing", "desk", run.Key) || !strings.Contains(l.Detail, says) {
			t.Errorf("the dead letter is %+v", l)
		}
		return true, nil
	}))
	if letters != 1 {
		t.Errorf("there are %d dead letters, want 1", letters)
	}
	r.answerSums("", nil)
	wantResponse(t, r.end(run), "three")
	sound(t, r.client, r.store)
}
