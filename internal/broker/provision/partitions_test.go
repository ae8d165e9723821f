package provision

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/finding"
	"agentd/sdk"
)

// partitioned is a connection to a server of its own that matches testPlan with so many partitions.
func partitioned(t *testing.T, partitions int) (*broker.Conn, *embedded.Server) {
	t.Helper()
	server := brokertest.Server(t, embedded.Options{})
	c := brokertest.Connect(t, broker.ConnectOptions{InProcess: server})
	p := testPlan
	p.Partitions = partitions
	apply(t, c, p)
	return c, server
}

// The number of partitions is settled by who provisions first.
func TestPartitions_AreForEver(t *testing.T) {
	t.Parallel()
	for _, have := range []int{1, 4} {
		c, server := partitioned(t, have)
		p := testPlan
		if changes := apply(t, c, p); len(changes) > 0 {
			t.Errorf("whoever does not say how many there are changes %v", changes)
		}
		p.Partitions = 2
		_, err := Apply(brokertest.Context(t), c, p)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "another nats.root") {
			t.Errorf("2 partitions instead of %d: %v", have, err)
		}
		if _, err := Planned(brokertest.Context(t), c, p); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("2 partitions instead of %d would be: %v", have, err)
		}
		findings, err := Verify(brokertest.Context(t), brokertest.Connect(t, broker.ConnectOptions{InProcess: server}), p)
		if err != nil || len(findings) != 1 || findings[0].Code != "partitions" || findings[0].Severity != finding.SeverityError {
			t.Errorf("2 partitions instead of %d are found: %+v, %v", have, findings, err)
		}
		for _, want := range p.Streams(c.Subjects())[:5] { // as a program would that asked before there was one
			_, err := on(c).streamStep(brokertest.Context(t), want, 0)
			divides := want.Name == "AGENTD_START" || have > 1
			if divides != errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
				t.Errorf("%s of 2 partitions, where there are %d: %v", want.Name, have, err)
			}
		}
		p.Partitions = 3
		if _, err := Apply(brokertest.Context(t), c, p); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("3 partitions: %v", err)
		}
	}
}

// Of programs that provision a server at once with other numbers, one prevails, and what there is then is of its number.
func TestPartitions_OfWhoProvisionsFirst(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t, embedded.Options{})
	var made [3]error
	var making sync.WaitGroup
	for i, n := range []int{1, 2, 4} {
		c := brokertest.Connect(t, broker.ConnectOptions{InProcess: server})
		making.Go(func() {
			p := testPlan
			p.Partitions = n
			_, made[i] = Apply(brokertest.Context(t), c, p)
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
	findings, err := Verify(brokertest.Context(t), brokertest.Connect(t, broker.ConnectOptions{InProcess: server}), p)
	if settled == 0 || err != nil || len(findings) > 0 {
		t.Errorf("%d partitions: %+v, %v", settled, findings, err)
	}
}

// Where the stream of init events is lost, the others still say how many partitions there are.
func TestPartitions_OutliveTheLossOfAStream(t *testing.T) {
	t.Parallel()
	c, server := partitioned(t, 2)
	if err := c.JetStream().DeleteStream(brokertest.Context(t), "AGENTD_START"); err != nil {
		t.Fatal(err)
	}
	again := brokertest.Connect(t, broker.ConnectOptions{InProcess: server})
	apply(t, again, testPlan)
	p := testPlan
	p.Partitions = 2
	if findings, err := Verify(brokertest.Context(t), again, p); err != nil || len(findings) > 0 {
		t.Errorf("findings: %+v, %v", findings, err)
	}
	if err := again.JetStream().DeleteStream(brokertest.Context(t), "AGENTD_RUN_1"); err != nil {
		t.Fatal(err)
	}
	findings, err := Verify(brokertest.Context(t), again, p)
	if err != nil || len(findings) != 1 || findings[0].Code != "stream_missing" || !strings.Contains(findings[0].Message, "AGENTD_RUN_1") {
		t.Errorf("findings: %+v, %v", findings, err)
	}
}
