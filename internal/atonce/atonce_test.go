package atonce

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTake_TakesStepsTogetherAndTellsThemInOrder(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(most) // none of the first is done before all have begun
	var begun atomic.Int64
	const steps = 3 * most
	taken, err := Take(steps, func(i int) (string, error) {
		if begun.Add(1); i < most {
			together.Done()
			together.Wait()
		}
		return strconv.Itoa(i), nil
	})
	if err != nil || len(taken) != steps || int(begun.Load()) != steps {
		t.Fatalf("%d of %d steps are taken, %v", len(taken), begun.Load(), err)
	}
	for i, one := range taken {
		if one != strconv.Itoa(i) {
			t.Errorf("step %d is %s", i, one)
		}
	}
}

// What was done before a step failed is told; of several that fail together the first in the plan is.
func TestTake_EndsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	var together sync.WaitGroup
	together.Add(most)
	var begun atomic.Int64
	taken, err := Take(3*most, func(i int) (string, error) {
		if begun.Add(1); i < most {
			together.Done()
			together.Wait()
		}
		if i >= 2 {
			return "created", fmt.Errorf("step %d", i)
		}
		return "created", nil
	})
	made := slices.IndexFunc(taken, func(one string) bool { return one == "" })
	// Whoever took one of the two that did not fail may have begun another one before the others failed.
	if err == nil || err.Error() != "step 2" || made != 2 || begun.Load() > most+2 {
		t.Errorf("%d of %d steps are taken, %v", made, begun.Load(), err)
	}
	if slices.ContainsFunc(taken[made:], func(one string) bool { return one != "" }) {
		t.Errorf("a step that failed is told as made: %v", taken)
	}
}
