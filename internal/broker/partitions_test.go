package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/internal/finding"
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
	provision(t, c, p)
	return c, server
}

// runsOf are runs of each of the partitions.
func runsOf(partitions int) []wire.RunKey {
	runs := make([]wire.RunKey, partitions)
	for i, found := 0, 0; found < partitions; i++ {
		run := wire.NewRunKey(fmt.Sprint("run ", i))
		at, _ := Layout{partitions}.index([]string{"agentd", "run", run.Partition, run.Token})
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
	refs, err := other.Divided(ctx, AgentConsumers("travel.desk")[2])
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
	streams := map[string]bool{}
	for range runs {
		select {
		case d := <-heard:
			a, err := c.subjects.Parse(d.Subject())
			if err != nil || !slices.Contains(runs, a.Run) || d.Stream() != StreamName(c.subjects, Layout{partitions}.ZoneOf(d.Subject())) {
				t.Errorf("%s came from %s: %v", d.Subject(), d.Stream(), err)
			}
			streams[d.Stream()] = true
		case <-ctx.Done():
			t.Fatal("a timer did not fire")
		}
	}
	if len(streams) != partitions {
		t.Errorf("timers fired on %v", streams)
	}
	fired, err := c.SubjectsUnder(ctx, ZoneTimer, c.subjects.All(wire.KindFire))
	if err != nil || len(fired) != partitions || !slices.IsSorted(fired) {
		t.Errorf("timers that fired: %v, %v", fired, err)
	}
	for _, run := range runs {
		if d, err := c.LastDelivery(ctx, ZoneTimer, c.subjects.Fire("travel.desk", run)); err != nil || d == nil {
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
		if mine, err := c.Lease(ctx, outageLease("key"), time.Hour); err != nil || mine != first {
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
		err := c.Watch(ctx, ZoneTimer, fires, func(d Delivery) bool {
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
		if err := c.Deliveries(ctx, ZoneTimer, fires, func(Delivery) bool { told++; return told < most }); err != nil || told != most {
			t.Errorf("%d messages of %d are delivered: %v", told, most, err)
		}
		told = 0
		err := c.Scan(ctx, ZoneTimer, fires[0], 1, func(Stored) (bool, error) { told++; return told < most, nil })
		if err != nil || told != most {
			t.Errorf("%d messages of %d are scanned: %v", told, most, err)
		}
	}
}

// The number of partitions is settled by who provisions first.
func TestPartitions_AreForEver(t *testing.T) {
	t.Parallel()
	for _, have := range []int{1, 4} {
		c, server := partitioned(t, have)
		p := testPlan
		if changes := provision(t, c, p); len(changes) > 0 {
			t.Errorf("whoever does not say how many there are changes %v", changes)
		}
		p.Partitions = 2
		_, err := c.Provision(testContext(t), p)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "another nats.root") {
			t.Errorf("2 partitions instead of %d: %v", have, err)
		}
		if _, err := c.Unprovisioned(testContext(t), p); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("2 partitions instead of %d would be: %v", have, err)
		}
		findings, err := connect(t, ConnectOptions{InProcess: server}).Verify(testContext(t), p)
		if err != nil || len(findings) != 1 || findings[0].Code != "partitions" || findings[0].Severity != finding.SeverityError {
			t.Errorf("2 partitions instead of %d are found: %+v, %v", have, findings, err)
		}
		for _, want := range c.streams(p)[:5] { // as a program would that asked before there was one
			_, err := c.streamStep(testContext(t), want, 0)
			divides := want.Name == "AGENTD_START" || have > 1
			if divides != errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
				t.Errorf("%s of 2 partitions, where there are %d: %v", want.Name, have, err)
			}
		}
		p.Partitions = 3
		if _, err := c.Provision(testContext(t), p); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("3 partitions: %v", err)
		}
	}
}

// Of programs that provision a server at once with other numbers, one prevails, and what there is then is of its number.
func TestPartitions_OfWhoProvisionsFirst(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	var made [3]error
	var making sync.WaitGroup
	for i, n := range []int{1, 2, 4} {
		c := connect(t, ConnectOptions{InProcess: server})
		making.Go(func() {
			p := testPlan
			p.Partitions = n
			_, made[i] = c.Provision(testContext(t), p)
		})
	}
	making.Wait()
	settled := 0
	for i, n := range []int{1, 2, 4} {
		if made[i] == nil {
			settled = n
		} else if !errors.Is(made[i], &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("%d partitions: %v", n, made[i])
		}
	}
	p := testPlan
	p.Partitions = settled
	findings, err := connect(t, ConnectOptions{InProcess: server}).Verify(testContext(t), p)
	if settled == 0 || err != nil || len(findings) > 0 {
		t.Errorf("%d partitions: %+v, %v", settled, findings, err)
	}
}

// Where the stream of init events is lost, the others still say how many partitions there are.
func TestPartitions_OutliveTheLossOfAStream(t *testing.T) {
	t.Parallel()
	c, server := partitioned(t, 2)
	if err := c.js.DeleteStream(testContext(t), "AGENTD_START"); err != nil {
		t.Fatal(err)
	}
	again := connect(t, ConnectOptions{InProcess: server})
	provision(t, again, testPlan)
	p := testPlan
	p.Partitions = 2
	if findings, err := again.Verify(testContext(t), p); err != nil || len(findings) > 0 {
		t.Errorf("findings: %+v, %v", findings, err)
	}
	if err := again.js.DeleteStream(testContext(t), "AGENTD_RUN_1"); err != nil {
		t.Fatal(err)
	}
	findings, err := again.Verify(testContext(t), p)
	if err != nil || len(findings) != 1 || findings[0].Code != "stream_missing" || !strings.Contains(findings[0].Message, "AGENTD_RUN_1") {
		t.Errorf("findings: %+v, %v", findings, err)
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
