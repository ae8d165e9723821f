package broker

import (
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

const modelKey = "openai_gpt"

// marked is a server where a run waits for a model, and the sequence of its mark.
func marked(t *testing.T) (c *Conn, p ParkedRun, subject string, sequence uint64) {
	t.Helper()
	c = provisioned(t)
	p = ParkedRun{Agent: wire.NameToken("travel.desk"), Run: wire.NewRunKey("trip")}
	subject = c.mark(modelKey, p.Agent, p.Run.Partition, p.Run.Token)
	return c, p, subject, mark(t, c, p, subject)
}

func mark(t *testing.T, c *Conn, p ParkedRun, subject string) uint64 {
	t.Helper()
	if err := c.MarkParked(testContext(t), modelKey, "travel.desk", p.Run, time.Hour); err != nil {
		t.Fatal(err)
	}
	return last(t, c, subject)
}

func last(t *testing.T, c *Conn, subject string) uint64 {
	t.Helper()
	m, err := c.Last(testContext(t), subject)
	if err != nil {
		t.Fatal(err)
	}
	return m.Sequence
}

// Who fails to have a run tried, or dies before, leaves the mark, so that somebody else finds the run.
func TestUnpark_KeepsTheMarkUntilItIsStored(t *testing.T) {
	t.Parallel()
	c, p, subject, sequence := marked(t)
	if err := c.js.DeleteStream(testContext(t), streams.Name(c.subjects, streams.In)); err != nil {
		t.Fatal(err)
	}
	if err := c.Unpark(testContext(t), modelKey, p); err == nil {
		t.Error("a run is tried that cannot be told")
	}
	if now := last(t, c, subject); now != sequence {
		t.Errorf("the mark is %d, and was %d", now, sequence)
	}
}

// A run that is parked again, as the next one that it is tried, has another mark.
func TestUnpark_LeavesTheNextMark(t *testing.T) {
	t.Parallel()
	c, p, subject, sequence := marked(t)
	next := mark(t, c, p, subject)
	if err := c.unmark(testContext(t), subject, sequence); err != nil {
		t.Fatal(err)
	}
	if now := last(t, c, subject); now != next {
		t.Errorf("the mark is %d, and was %d", now, next)
	}
	if err := c.unmark(testContext(t), subject, next); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark is gone", func() bool {
		runs, err := c.ParkedRuns(testContext(t), modelKey, "")
		return err == nil && len(runs) == 0
	})
}

// A run without a mark is told nothing: somebody else had it tried.
func TestUnpark_TellsARunThatIsMarked(t *testing.T) {
	t.Parallel()
	c, p, _, _ := marked(t)
	told := func() uint64 {
		state, err := c.ZoneState(testContext(t), streams.In)
		if err != nil {
			t.Fatal(err)
		}
		return state.Messages
	}
	if err := c.Unpark(testContext(t), modelKey, p); err != nil || told() != 1 {
		t.Errorf("%v, and %d messages; want one", err, told())
	}
	other := ParkedRun{Agent: p.Agent, Run: wire.NewRunKey("another")}
	if err := c.Unpark(testContext(t), modelKey, other); err != nil || told() != 1 {
		t.Errorf("%v, and %d messages; want no further one", err, told())
	}
}
