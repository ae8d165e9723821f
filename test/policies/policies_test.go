package policies

import (
	"flag"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

var (
	cases   = flag.Int("policies.cases", 500, "how many cases TestPolicies plays")
	first   = flag.Uint64("policies.first", 1, "the seed of the first")
	oneSeed = flag.Uint64("policies.seed", 0, "play only the case of this seed, and show what happens in it")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No call is made that the policies, asked about exactly that call and what people have decided, do not allow.
func TestPolicies(t *testing.T) {
	counted := tally{}
	if *oneSeed != 0 {
		if wrong := play(*oneSeed, counted, t.Logf); len(wrong) > 0 {
			t.Error(wrong[0])
		}
		return
	}
	var next atomic.Uint64
	var mu sync.Mutex
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			own := tally{}
			for i := next.Add(1) - 1; i < uint64(*cases) && !t.Failed(); i = next.Add(1) - 1 {
				if wrong := play(*first+i, own, nil); len(wrong) > 0 {
					t.Errorf("seed %d: %s\n-policies.seed=%[1]d shows it", *first+i, wrong[0])
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range own {
				counted[what] += n
			}
		})
	}
	players.Wait()
	for _, what := range slices.Sorted(maps.Keys(counted)) {
		t.Logf("%8d  %s", counted[what], what)
	}
	for _, what := range []string{
		"made by policy", "made by decision", "made by decision that edits", "made by grant call", "made by grant run+tool",
		"made by grant run+tool+pattern", "made by grant principal+agent+tool", "calls in text", "made: desk bank_move", "made: desk clerk",
		"made: clerk pay", "made: desk note", "requests for several calls: true",
	} {
		if counted[what] == 0 && !t.Failed() {
			t.Errorf("nothing is %s: the cases show less than they seem to", what)
		}
	}
}
