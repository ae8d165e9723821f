package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

// fired calls got with the deliveries on the fire subject of a run.
func fired(t *testing.T, c *Conn) <-chan Delivery {
	t.Helper()
	deliveries := make(chan Delivery, 100)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		_ = c.Watch(ctx, streams.Timer, []string{"agentd.fire.>"}, func(d Delivery) bool { // ends with the test
			deliveries <- d
			return true
		})
	}()
	return deliveries
}

func arm(t *testing.T, c *Conn, run wire.RunKey, due time.Time) int64 {
	t.Helper()
	mustPublish(t, c.ArmTimer(testContext(t), "travel.desk", run, due.UnixMilli()))
	return due.UnixMilli()
}

// checkFired checks that d is the timer that was due then and that it is not early, and returns how late it is.
func checkFired(t *testing.T, d Delivery, due int64) time.Duration {
	t.Helper()
	var body struct {
		Due int64 `json:"due"`
	}
	if err := json.Unmarshal(d.Data(), &body); err != nil || body.Due != due {
		t.Errorf("fired with %s (%v); want the due time %d", d.Data(), err, due)
	}
	late := time.Duration(d.Received()-due) * time.Millisecond
	if late < 0 {
		t.Errorf("%s early", -late)
	}
	return late
}

func TestArmTimer_FiresInTimeAndNeverEarly(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	deliveries := fired(t, c)
	// Were due times rounded to seconds, then all of these would be early, or late by 500 ms and more. One that is neither is
	// enough to see, however long a machine that is busy with other tests takes to it.
	const precise = 200 * time.Millisecond
	fires := 0
	eventually(t, "a timer that fires within 200 ms", func() bool {
		best := deadline
		due := map[string]int64{}
		for i := range 20 {
			run := wire.NewRunKey(fmt.Sprint("run ", fires, i))
			at := time.Now().Truncate(time.Second).Add(time.Second + time.Duration(100+20*i)*time.Millisecond)
			due[c.subjects.Fire("travel.desk", run)] = arm(t, c, run, at)
		}
		for range due {
			d := receive(t, "a timer", deliveries)
			best = min(best, checkFired(t, d, due[d.Subject()]))
			fires++
		}
		return best <= precise
	})
}

func TestArmTimer_FiresAtOnceWhenItIsLate(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	due := arm(t, c, testRun, time.Now().Add(-time.Hour))
	checkFired(t, receive(t, "a timer", fired(t, c)), due)
}

func TestArmTimer_ReplacesTheOneArmedBefore(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	deliveries := fired(t, c)
	arm(t, c, testRun, time.Now().Add(time.Hour))
	for i := range 50 {
		arm(t, c, testRun, time.Now().Add(time.Hour-time.Duration(i)*time.Second))
	}
	of := func(filter string) (n int) {
		if err := c.Scan(testContext(t), streams.Timer, filter, 1, func(Stored) (bool, error) { n++; return true, nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := of("agentd.tmr.travel_desk.>"); n != 1 {
		t.Errorf("%d messages for one timer", n)
	}
	due := arm(t, c, testRun, time.Now().Add(200*time.Millisecond))
	checkFired(t, receive(t, "a timer", deliveries), due)
	eventually(t, "of the timer there is nothing but what fired", func() bool { return of("agentd.tmr.travel_desk.>") == 0 && of("agentd.fire.>") == 1 })
	d := first(t, c, streams.Timer, "agentd.fire.>")
	if ttl := d.Header("Nats-TTL"); ttl == "" {
		t.Errorf("the fired message stays for ever: %v", d.Headers())
	}
}

func TestArmTimer_SurvivesARestart(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}
	s := startServer(t, o)
	c := connect(t, ConnectOptions{URL: s.URL()})
	apply(t, c, testPlan)
	overdue := arm(t, c, testRun, time.Now().Add(300*time.Millisecond))
	other := wire.NewRunKey("trip-8")
	later := arm(t, c, other, time.Now().Add(2*time.Second))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first timer is overdue", func() bool { return time.Now().UnixMilli() > overdue })
	startServer(t, o)
	eventually(t, "it is connected again", c.Connected)
	deliveries := fired(t, c)
	for range 2 {
		d := receive(t, "a timer", deliveries)
		due := later
		if d.Subject() == c.subjects.Fire("travel.desk", testRun) {
			due = overdue
		}
		checkFired(t, d, due)
	}
}
