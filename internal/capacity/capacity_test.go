package capacity

import (
	"math"
	"testing"
	"time"

	"agentd/internal/days"
)

func usual() Load {
	return Load{
		RunsPerSecond: 10, Turns: 3, TurnBytes: 900, ModelTime: 2 * time.Second, CallTime: time.Second, History: 7 * days.Day,
		AnswersAge: 7 * days.Day, Deadline: 30 * days.Day, Replicas: 3, Servers: 3, Memory: 16 << 30, Partitions: 1, Slots: 32, Cores: 2,
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func (n *Needs) stream(name string) Stream {
	for _, s := range n.Streams {
		if s.Name == name {
			return s
		}
	}
	return Stream{}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	const day = 24 * 60 * 60
	n := Plan(usual())
	near(t, "what is written to AGENTD_RUN", n.stream(Runs).MessagesPerSecond, 80)
	near(t, "subjects of answers", n.stream(In).Subjects, 10*3*7*day)
	near(t, "subjects of calls", n.stream(Out).Subjects, 10*3*37*day)
	// A journal for a week, and its tombstone until the run's deadline, 90 days of dead letters and a week have passed.
	near(t, "subjects of journals", n.stream(Runs).Subjects, 10*(7+23+90+7)*day)
	near(t, "messages of journals", n.stream(Runs).Messages, 10*(8*7+23+90+7)*day)
	near(t, "synced writes", n.Syncs, 10*(1+3+3+1+2+8))
	alone := usual()
	alone.Servers, alone.Replicas = 1, 1
	near(t, "synced writes of one server", Plan(alone).Syncs, 10*(1+3+8)) // calls, terminal events and timers are written later
	near(t, "runs in hand", n.Driven, 10*4*2)
	near(t, "runs that wait", n.Waiting, 10*3)
	if n.Workers != 5 { // 80 of 32 slots each, of which 0.7 are used, and one more
		t.Errorf("%d workers", n.Workers)
	}
	subjects := 0.0
	for _, s := range n.Streams {
		subjects += s.Subjects
	}
	near(t, "memory", n.ServerMemory, serverBytes+subjectBytes*subjects)
	if n.Limits[0].What != LimitMemory || n.RedisMemory != 0 {
		t.Errorf("%+v, and Redis has %g bytes", n.Limits, n.RedisMemory)
	}
}

// Twice the servers with the same replicas have half each; what a load needs grows with it; at the rate of a limit, the limit is reached.
func TestPlan_Scales(t *testing.T) {
	t.Parallel()
	one, twice, wide := usual(), usual(), usual()
	twice.RunsPerSecond *= 2
	wide.Servers *= 2
	n, more, spread := Plan(one), Plan(twice), Plan(wide)
	near(t, "disk of twice the load", more.ServerDisk, 2*n.ServerDisk)
	near(t, "disk on twice the servers", spread.ServerDisk, n.ServerDisk/2)
	near(t, "subjects on twice the servers", spread.ServerSubjects, n.ServerSubjects/2)
	for i, limit := range n.Limits {
		near(t, "the rate of "+limit.What, more.Limits[i].At, limit.At)
		there := one
		there.RunsPerSecond = limit.At
		reached := Plan(there).Limits[i]
		near(t, limit.What+" at its limit", reached.Used, busy*reached.Has)
	}
	quick := one
	quick.AnswersAge = 2 * days.Day
	near(t, "subjects of answers that are kept for 2 days", 7*stream(quick, In).Subjects, 2*stream(one, In).Subjects)
}

// Calls and fired timers that leave when their run has ended cost next to nothing.
func TestPlan_CallsThatLeave(t *testing.T) {
	t.Parallel()
	l := usual()
	l.CallsKept = 25 * time.Minute
	// A run of three calls takes 11 seconds.
	near(t, "calls", stream(l, Out).Subjects, 10*3*(25*60+11))
	near(t, "timers", stream(l, Timers).Subjects, 10*(25*60+11))
	near(t, "terminal events", stream(l, Done).Subjects, stream(usual(), Done).Subjects)
}

func stream(l Load, name string) Stream {
	n := Plan(l)
	return n.stream(name)
}

// Two streams for journals take twice what one does; of sixteen the one of init events, which is not divided, is busier. What they keep is the same.
func TestPlan_Partitions(t *testing.T) {
	t.Parallel()
	l := usual()
	l.Partitions = 2
	one, two := Plan(usual()), Plan(l)
	writes := func(n *Needs) Limit {
		for _, limit := range n.Limits {
			if limit.What == LimitWrites {
				return limit
			}
		}
		return Limit{}
	}
	near(t, "writes to the busiest stream with one", writes(&one).Used, 80)
	near(t, "writes to the busiest of two", writes(&two).Used, 40)
	near(t, "runs a second that two take", writes(&two).At, 2*writes(&one).At)
	near(t, "subjects", two.ServerSubjects, one.ServerSubjects)
	l.Partitions = 16
	many := Plan(l)
	near(t, "writes to the one of init events, which is not divided", writes(&many).Used, 10)
	for _, s := range many.Streams {
		if divided := s.Name != Start && s.Name != Done; divided != (s.Partitions == 16) {
			t.Errorf("%s is divided into %d", s.Name, s.Partitions)
		}
	}
}

// With Redis no journal is on JetStream.
func TestPlan_Redis(t *testing.T) {
	t.Parallel()
	l := usual()
	l.Redis, l.RedisMemory = true, 16<<30
	n := Plan(l)
	if n.stream(Runs).Name != "" {
		t.Error("journals are in both")
	}
	const day = 24 * 60 * 60
	near(t, "memory of Redis", n.RedisMemory, 10*day*(7*Journal(3, 300)+(23+90+7)*Tombstone(true)))
	if n.Limits[0].What != LimitRedis {
		t.Errorf("%+v", n.Limits)
	}
}
