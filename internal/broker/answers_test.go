package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/embedded"
)

// answersAge is how long the stream of answers keeps its messages.
func answersAge(t *testing.T, c *Conn) time.Duration {
	t.Helper()
	age, err := c.MaxAge(testContext(t), ZoneIn)
	if err != nil {
		t.Fatal(err)
	}
	return age
}

// What is made anew keeps answers as long as somebody chose, and as calls may wait for them.
func TestProvision_AnswersAge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan Plan
		want time.Duration
	}{
		"nobody chose":                    {Plan{}, 7 * day},
		"a short one":                     {Plan{AnswersAge: 3 * day, AnswersNeeded: 2 * day}, 3 * day},
		"calls wait longer":               {Plan{AnswersAge: 3 * day, AnswersNeeded: 20 * day}, 20 * day},
		"calls wait longer, nobody chose": {Plan{AnswersNeeded: 20 * day}, 20 * day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
			provision(t, conn, c.plan)
			if got := answersAge(t, conn); got != c.want {
				t.Errorf("answers are kept for %s, want %s", got, c.want)
			}
			if findings, err := conn.Verify(testContext(t), c.plan); err != nil || findings != nil {
				t.Errorf("verified: %v, %v", findings, err)
			}
		})
	}
}

// A stream that is there keeps answers longer where that is asked for, and never shorter: other programs' agents may need them.
func TestProvision_KeepsLongerAnswers(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	provision(t, c, Plan{AnswersAge: 5 * day})
	longer, shorter := Plan{AnswersAge: 14 * day}, Plan{AnswersAge: 3 * day, AnswersNeeded: 2 * day}
	want := []Change{{"stream", "AGENTD_IN", "updated", "max_age 5d → 14d"}}
	for range 2 { // looking changes nothing
		if changes, err := c.Unprovisioned(testContext(t), longer); err != nil || !slices.Equal(changes, want) {
			t.Errorf("would change %v, %v; want %v", changes, err, want)
		}
		if got := answersAge(t, c); got != 5*day {
			t.Errorf("a dry run makes the age %s", got)
		}
	}
	if changes := provision(t, c, longer); !slices.Equal(changes, want) {
		t.Errorf("changed %v, want %v", changes, want)
	}
	if changes, err := c.Unprovisioned(testContext(t), shorter); err != nil || changes != nil {
		t.Errorf("for a shorter age %v would change, %v", changes, err)
	}
	if changes := provision(t, c, shorter); changes != nil || answersAge(t, c) != 14*day {
		t.Errorf("for a shorter age, %v changed, and answers are kept for %s", changes, answersAge(t, c))
	}
}

// Before anything is there, all would be made, and nothing is.
func TestUnprovisioned_OfAnEmptyServer(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	would, err := c.Unprovisioned(testContext(t), testPlan)
	if err != nil {
		t.Fatal(err)
	}
	if names := c.js.StreamNames(testContext(t)); len(slices.Collect(channel(names.Name()))) > 0 {
		t.Error("streams were made")
	}
	if diff := cmp.Diff(would, provision(t, c, testPlan)); diff != "" {
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
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	provision(t, c, Plan{AnswersAge: 5 * day})
	for name, test := range map[string]struct {
		plan Plan
		want []string
	}{
		"as chosen":                   {Plan{AnswersAge: 5 * day, AnswersNeeded: 4 * day}, nil},
		"shorter than chosen":         {Plan{AnswersAge: 6 * day, AnswersNeeded: 5 * day}, []string{"answers_age"}},
		"shorter than calls may wait": {Plan{AnswersAge: 4 * day, AnswersNeeded: 6 * day}, []string{"max_age"}},
		"longer than chosen":          {Plan{AnswersAge: 3 * day, AnswersNeeded: 2 * day}, nil},
	} {
		if got := codes(t, c, test.plan); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	stream, err := c.js.Stream(testContext(t), "AGENTD_IN")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxAge = 0
	if _, err := c.js.UpdateStream(testContext(t), config); err != nil {
		t.Fatal(err)
	}
	if got := codes(t, c, Plan{AnswersNeeded: 60 * day}); got != nil {
		t.Errorf("for ever: %v", got)
	}
}
