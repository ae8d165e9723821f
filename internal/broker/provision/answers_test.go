package provision

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/streams"
	"agentd/internal/days"
)

// answersAge is how long the stream of answers keeps its messages.
func answersAge(t *testing.T, c *broker.Conn) time.Duration {
	t.Helper()
	age, err := c.MaxAge(brokertest.Context(t), streams.In)
	if err != nil {
		t.Fatal(err)
	}
	return age
}

// What is made anew keeps answers as long as somebody chose, and as calls may wait for them.
func TestApply_AnswersAge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan Plan
		want time.Duration
	}{
		"nobody chose":                    {Plan{}, 7 * days.Day},
		"a short one":                     {Plan{AnswersAge: 3 * days.Day, AnswersNeeded: 2 * days.Day}, 3 * days.Day},
		"calls wait longer":               {Plan{AnswersAge: 3 * days.Day, AnswersNeeded: 20 * days.Day}, 20 * days.Day},
		"calls wait longer, nobody chose": {Plan{AnswersNeeded: 20 * days.Day}, 20 * days.Day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := alone(t)
			apply(t, conn, c.plan)
			if got := answersAge(t, conn); got != c.want {
				t.Errorf("answers are kept for %s, want %s", got, c.want)
			}
			if findings, err := Verify(brokertest.Context(t), conn, c.plan); err != nil || findings != nil {
				t.Errorf("verified: %v, %v", findings, err)
			}
		})
	}
}

// A stream that is there keeps answers longer where that is asked for, and never shorter: other programs' agents may need them.
func TestApply_KeepsLongerAnswers(t *testing.T) {
	t.Parallel()
	c := alone(t)
	apply(t, c, Plan{AnswersAge: 5 * days.Day})
	longer, shorter := Plan{AnswersAge: 14 * days.Day}, Plan{AnswersAge: 3 * days.Day, AnswersNeeded: 2 * days.Day}
	want := []Change{{"stream", "AGENTD_IN", "updated", "max_age 5d → 14d"}}
	for range 2 { // looking changes nothing
		if changes, err := Planned(brokertest.Context(t), c, longer); err != nil || !slices.Equal(changes, want) {
			t.Errorf("would change %v, %v; want %v", changes, err, want)
		}
		if got := answersAge(t, c); got != 5*days.Day {
			t.Errorf("a dry run makes the age %s", got)
		}
	}
	if changes := apply(t, c, longer); !slices.Equal(changes, want) {
		t.Errorf("changed %v, want %v", changes, want)
	}
	if changes, err := Planned(brokertest.Context(t), c, shorter); err != nil || changes != nil {
		t.Errorf("for a shorter age %v would change, %v", changes, err)
	}
	if changes := apply(t, c, shorter); changes != nil || answersAge(t, c) != 14*days.Day {
		t.Errorf("for a shorter age, %v changed, and answers are kept for %s", changes, answersAge(t, c))
	}
}

// Before anything is there, all would be made, and nothing is.
func TestPlanned_OfAnEmptyServer(t *testing.T) {
	t.Parallel()
	c := alone(t)
	would, err := Planned(brokertest.Context(t), c, testPlan)
	if err != nil {
		t.Fatal(err)
	}
	if names := c.JetStream().StreamNames(brokertest.Context(t)); len(slices.Collect(channel(names.Name()))) > 0 {
		t.Error("streams were made")
	}
	if diff := cmp.Diff(would, apply(t, c, testPlan)); diff != "" {
		t.Errorf("-would +made:\n%s", diff)
	}
}

func channel[T any](c <-chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}

// A stream that forgets answers while calls wait for them breaks a promise; one that forgets them sooner than somebody chose does not.
func TestVerify_AnswersAge(t *testing.T) {
	t.Parallel()
	c := alone(t)
	apply(t, c, Plan{AnswersAge: 5 * days.Day})
	for name, test := range map[string]struct {
		plan Plan
		want []string
	}{
		"as chosen":                   {Plan{AnswersAge: 5 * days.Day, AnswersNeeded: 4 * days.Day}, nil},
		"shorter than chosen":         {Plan{AnswersAge: 6 * days.Day, AnswersNeeded: 5 * days.Day}, []string{"answers_age"}},
		"shorter than calls may wait": {Plan{AnswersAge: 4 * days.Day, AnswersNeeded: 6 * days.Day}, []string{"max_age"}},
		"longer than chosen":          {Plan{AnswersAge: 3 * days.Day, AnswersNeeded: 2 * days.Day}, nil},
	} {
		if got := codes(t, c, test.plan); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	stream, err := c.JetStream().Stream(brokertest.Context(t), "AGENTD_IN")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxAge = 0
	if _, err := c.JetStream().UpdateStream(brokertest.Context(t), config); err != nil {
		t.Fatal(err)
	}
	if got := codes(t, c, Plan{AnswersNeeded: 60 * days.Day}); got != nil {
		t.Errorf("for ever: %v", got)
	}
}
