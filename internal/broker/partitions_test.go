package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// partitioned is a connection to a server of its own that matches testPlan with so many partitions.
func partitioned(t *testing.T, partitions int) (*Conn, *embedded.Server) {
	t.Helper()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	p := testPlan
	p.Partitions = partitions
	apply(t, c, p)
	return c, server
}

// layoutOf is the layout with so many partitions.
func layoutOf(partitions int) streams.Layout {
	layout, err := streams.NewLayout(partitions)
	if err != nil {
		panic(err)
	}
	return layout
}

// runsOf are runs of each of the partitions.
func runsOf(partitions int) []wire.RunKey {
	runs, layout := make([]wire.RunKey, partitions), layoutOf(partitions)
	for i, found := 0, 0; found < partitions; i++ {
		run := wire.NewRunKey(fmt.Sprint("run ", i))
		at := slices.Index(layout.Zones(streams.Run), layout.OfRun(streams.Run, run))
		if runs[at].Token == "" {
			runs[at] = run
			found++
		}
	}
	return runs
}

// Timers are armed, fire and are read, leases taken and marks kept, on all streams that timers are divided into.
func TestPartitions_TimersFireOnAllOfThem(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, server := partitioned(t, partitions)
	other := connect(t, ConnectOptions{InProcess: server}) // one that has provisioned nothing
	ctx := testContext(t)
	runs := runsOf(partitions)
	heard := make(chan Delivery, 4*partitions)
	refs, err := other.Divided(ctx, streams.AgentConsumers("travel.desk")[2])
	if err != nil || len(refs) != partitions {
		t.Fatalf("the consumers of timers are %v, %v", refs, err)
	}
	consume(t, other, ConsumeOptions{Consumers: refs, Handle: func(_ context.Context, d Delivery) {
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		heard <- d
	}})
	for _, run := range runs {
		if err := other.ArmTimer(ctx, "travel.desk", run, other.Now()); err != nil {
			t.Fatal(err)
		}
	}
	on := map[string]bool{}
	for range runs {
		select {
		case d := <-heard:
			a, err := c.subjects.Parse(d.Subject())
			if err != nil || !slices.Contains(runs, a.Run) || d.Stream() != streams.Name(c.subjects, layoutOf(partitions).ZoneOf(d.Subject())) {
				t.Errorf("%s came from %s: %v", d.Subject(), d.Stream(), err)
			}
			on[d.Stream()] = true
		case <-ctx.Done():
			t.Fatal("a timer did not fire")
		}
	}
	if len(on) != partitions {
		t.Errorf("timers fired on %v", on)
	}
	fired, err := c.SubjectsUnder(ctx, streams.Timer, c.subjects.All(wire.KindFire))
	if err != nil || len(fired) != partitions || !slices.IsSorted(fired) {
		t.Errorf("timers that fired: %v, %v", fired, err)
	}
	for _, run := range runs {
		if d, err := c.LastDelivery(ctx, streams.Timer, c.subjects.Fire("travel.desk", run)); err != nil || d == nil {
			t.Errorf("the timer of %s: %v, %v", run, d, err)
		}
		if err := c.MarkParked(ctx, "key", "travel.desk", run, time.Hour); err != nil {
			t.Error(err)
		}
	}
	if parked, err := c.ParkedRuns(ctx, "key", ""); err != nil || len(parked) != partitions {
		t.Errorf("parked runs: %v, %v", parked, err)
	}
	for _, first := range []bool{true, false} {
		if mine, err := c.Lease(ctx, streams.OutageLease("key"), time.Hour); err != nil || mine != first {
			t.Errorf("a lease is taken: %v, %v, want %v", mine, err, first)
		}
	}
	if err := c.Writable(ctx); err != nil {
		t.Error(err)
	}
}

// Who reads a zone that is divided reads all of it: what there is, and what comes.
func TestPartitions_ReadsMerge(t *testing.T) {
	t.Parallel()
	const partitions = 4
	c, _ := partitioned(t, partitions)
	ctx := testContext(t)
	runs := runsOf(partitions)
	fires := []string{c.subjects.All(wire.KindFire)}
	watched := make(chan string, partitions)
	var watching sync.WaitGroup
	watching.Go(func() {
		seen := 0
		err := c.Watch(ctx, streams.Timer, fires, func(d Delivery) bool {
			watched <- d.Subject()
			seen++
			return seen < partitions
		})
		if err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	want := map[string]bool{}
	for _, run := range runs {
		want[c.subjects.Fire("travel.desk", run)] = true
		if err := c.Fire(ctx, "travel.desk", run, 0); err != nil {
			t.Fatal(err)
		}
	}
	watching.Wait()
	close(watched)
	for subject := range watched {
		if !want[subject] {
			t.Errorf("%s is told twice, or nobody published it", subject)
		}
		delete(want, subject)
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
	for most, told := range map[int]int{1: 0, partitions: 0} {
		if err := c.Deliveries(ctx, streams.Timer, fires, func(Delivery) bool { told++; return told < most }); err != nil || told != most {
			t.Errorf("%d messages of %d are delivered: %v", told, most, err)
		}
		told = 0
		err := c.Scan(ctx, streams.Timer, fires[0], 1, func(Stored) (bool, error) { told++; return told < most, nil })
		if err != nil || told != most {
			t.Errorf("%d messages of %d are scanned: %v", told, most, err)
		}
	}
}

// A dead letter of a timer can be told from one that says that it was a timer.
func TestPartitions_DeadLettersSayTheirStream(t *testing.T) {
	t.Parallel()
	c, _ := partitioned(t, 2)
	for stream, forged := range map[string]bool{"AGENTD_TMR_1": false, "AGENTD_OUT": true, "AGENTD_IN": true} {
		l, ok := c.letterOf(Stored{
			Subject: c.subjects.DeadLetter(sdk.CodeConflict, stream, 7),
			Headers: map[string][]string{headerSubject: {c.subjects.Fire("travel.desk", testRun)}},
		})
		if !ok || l.Stream != stream || l.Forged != forged {
			t.Errorf("of %s: %+v", stream, l)
		}
	}
}

// Who has just connected looks whether all streams have room into which answers are divided.
func TestPartitions_RoomsAreOfAllOfThem(t *testing.T) {
	t.Parallel()
	_, server := partitioned(t, 2)
	rooms, err := connect(t, ConnectOptions{InProcess: server}).Rooms(testContext(t))
	if want := []Room{{Stream: "AGENTD_START"}, {Stream: "AGENTD_IN_0"}, {Stream: "AGENTD_IN_1"}}; err != nil || !slices.Equal(rooms, want) {
		t.Errorf("rooms are %+v, %v, want %+v", rooms, err, want)
	}
}
