package broker

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAtOnce_TakesStepsTogetherAndTellsThemInOrder(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(mostSteps) // none of the first is done before all have begun
	var begun atomic.Int64
	const steps = 3 * mostSteps
	changes, err := atOnce(steps, func(i int) (Change, error) {
		if begun.Add(1); i < mostSteps {
			together.Done()
			together.Wait()
		}
		return Change{Action: "created", Name: strconv.Itoa(i)}, nil
	})
	if err != nil || len(changes) != steps || int(begun.Load()) != steps {
		t.Fatalf("%d changes of %d steps, %v", len(changes), begun.Load(), err)
	}
	for i, change := range changes {
		if change.Name != strconv.Itoa(i) {
			t.Errorf("change %d is %s", i, change.Name)
		}
	}
}

// What was done before a step failed is told; of several that fail together the first in the plan is.
func TestAtOnce_EndsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(mostSteps)
	var begun atomic.Int64
	changes, err := atOnce(3*mostSteps, func(i int) (Change, error) {
		if begun.Add(1); i < mostSteps {
			together.Done()
			together.Wait()
		}
		if i >= 2 {
			return Change{Action: "created"}, fmt.Errorf("step %d", i)
		}
		return Change{Action: "created"}, nil
	})
	made := slices.IndexFunc(changes, func(c Change) bool { return c.Action == "" })
	// Whoever took one of the two that did not fail may have begun another one before the others failed.
	if err == nil || err.Error() != "step 2" || made != 2 || begun.Load() > mostSteps+2 {
		t.Errorf("%d changes of %d steps, %v", made, begun.Load(), err)
	}
	if slices.ContainsFunc(changes[made:], func(c Change) bool { return c.Action != "" }) {
		t.Errorf("a step that failed is told as made: %v", changes)
	}
}
