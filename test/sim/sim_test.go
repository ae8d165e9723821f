package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var (
	seeds   = flag.Int("sim.seeds", 2000, "how many histories TestSimulation plays")
	first   = flag.Uint64("sim.first", 1, "the first of their seeds; 0 is a random one")
	oneSeed = flag.Uint64("sim.seed", 0, "play only the history of this seed, with its trace")
	without = flag.String("sim.without", "", "with -sim.seed: leave out these kinds of faults, with commas between them")
	shorten = flag.Bool("sim.shrink", true, "make a failing history shorter and show its trace")
	variant = flag.Uint64("sim.variant", 0, "with -sim.seed: another course of events in the same world")
	clients = flag.Int("sim.clients", 0, "with -sim.seed: how many runs clients start at most")
	only    = flag.String("sim.only", "", "with -sim.seed: let only the faults with these numbers happen; 0 is none")
)

// TestMain trades memory for speed: histories are short-lived garbage. A profile of memory needs -memprofilerate.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(96 << 20) // more is slower: it is never in a cache
	goleak.VerifyTestMain(m)       // a fiber that was not stopped is a goroutine
}

// TestSimulation plays random histories and reports those in which an invariant was violated.
func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		replay(t)
		return
	}
	from := *first
	if from == 0 {
		from = 1 + rand.Uint64N(1<<48)
	}
	began := time.Now()
	total, failed := playAll(from, uint64(*seeds), nil)
	took := time.Since(began).Seconds()
	if len(failed) > 0 {
		report(t, failed[0])
		t.Errorf("%d of %d histories violate an invariant: seeds %v", len(failed), total.histories, failed)
	}
	t.Logf("%d histories from seed %d in %.1f s: %.0f histories/s, %.0f steps/s, %.0f steps a history, violations: %d\n\n%s",
		total.histories, from, took, float64(total.histories)/took, float64(total.steps)/took,
		float64(total.steps)/float64(max(total.histories, 1)), len(failed), total)
	if from == 1 && total.histories >= enoughForEveryPoint {
		reachesEveryPoint(t, total)
	}
}

// playAll plays n histories from a seed on, on all cores, and returns the first few seeds that failed, in order: one, when
// nothing is made of them. prepare
// may change their worlds first.
func playAll(from, n uint64, prepare func(*simulation)) (*stats, []uint64) {
	enough := int64(3)
	if !*shorten {
		enough = 1
	}
	var (
		next   atomic.Uint64
		bad    atomic.Int64
		mu     sync.Mutex
		failed []uint64
		total  stats
		group  sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			var st stats
			var in pool
			defer in.release()
			for i := next.Add(1) - 1; i < n && bad.Load() < enough; i = next.Add(1) - 1 {
				if len(play(plan{seed: from + i}, &in, &st, prepare, nil)) > 0 {
					bad.Add(1)
					mu.Lock()
					failed = append(failed, from+i)
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(&st)
		})
	}
	group.Wait()
	slices.Sort(failed)
	return &total, failed
}

// play plays one history.
func play(p plan, in *pool, st *stats, prepare func(*simulation), log func(string)) []string {
	s := newSimulation(p, in, st, log)
	if prepare != nil {
		prepare(s)
	}
	return s.run()
}

// report plays a failed history again, as short as it can be made, with its trace.
func report(t *testing.T, seed uint64) {
	t.Helper()
	var in pool
	defer in.release()
	if !*shorten {
		t.Errorf("seed %d: %s", seed, strings.Join(play(plan{seed: seed}, &in, &stats{}, nil, nil), "\n"))
		return
	}
	p, found, trace := shrink(plan{seed: seed}, &in)
	t.Errorf("seed %d: %s\n\nThe shortest history found that fails like this (%d lines):\n%s\n\nreplay: go test ./test/sim -run 'TestSimulation$' -v %s",
		seed, strings.Join(found, "\n"), len(trace), strings.Join(trace, "\n"), p.arguments())
}

// replay plays the history of the flags, with its trace.
func replay(t *testing.T) {
	p, err := planOf(plan{seed: *oneSeed, variant: *variant, clients: *clients}, *without, *only)
	if err != nil {
		t.Fatal(err)
	}
	var in pool
	defer in.release()
	found := play(p, &in, &stats{}, nil, func(line string) { t.Log(line) })
	if len(found) > 0 {
		t.Fatalf("seed %d: %s", p.seed, strings.Join(found, "\n"))
	}
}

// planOf adds to a plan what its flags leave out.
func planOf(p plan, without, only string) (plan, error) {
	for name := range strings.SplitSeq(without, ",") {
		known := name == ""
		for f, k := range kinds {
			if k.name == name {
				p.without[f], known = true, true
			}
		}
		if !known {
			return plan{}, fmt.Errorf("-sim.without: no fault is called %q", name)
		}
	}
	if only == "" {
		return p, nil
	}
	for text := range strings.SplitSeq(only, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return plan{}, fmt.Errorf("-sim.only: %w", err)
		}
		p.only = append(p.only, n)
	}
	return p, nil
}

// TestSimulation_ReplaysASeed: what a seed fails with must not depend on anything else.
func TestSimulation_ReplaysASeed(t *testing.T) {
	t.Parallel()
	var in pool
	defer in.release()
	trace := func(seed uint64) (lines []string) {
		play(plan{seed: seed}, &in, &stats{}, nil, func(line string) { lines = append(lines, line) })
		return lines
	}
	for seed := uint64(1); seed <= 50; seed++ {
		if diff := cmp.Diff(trace(seed), trace(seed)); diff != "" {
			t.Fatalf("seed %d plays two histories:\n%s", seed, diff)
		}
	}
}

// enoughForEveryPoint histories from seed 1 reach every point.
const enoughForEveryPoint = 12_000

// reachesEveryPoint sees that every fault happens, and that workers die and freeze, and the store and the broker fail, at
// every point.
func reachesEveryPoint(t *testing.T, total *stats) {
	t.Helper()
	// Large texts are rare, because such histories take long.
	larger, failed := playAll(1, 600, func(s *simulation) {
		s.mix[large], s.mix[crash] = kinds[large].most, kinds[crash].most
	})
	total.add(larger)
	if len(failed) > 0 {
		t.Errorf("seeds %v fail with large texts", failed)
	}
	for p, place := range places {
		if point(p).counted() && total.tolls[p][killedThere] == 0 {
			t.Errorf("no worker died where %s (%s)", place.what, place.code)
		}
	}
	for f, k := range kinds {
		if total.faults[f] == 0 {
			t.Errorf("the fault %s never happened", k.name)
		}
	}
}
