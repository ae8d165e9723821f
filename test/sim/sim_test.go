package sim

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var (
	seeds   = flag.Int("sim.seeds", 1000, "how many histories TestSimulation plays")
	oneSeed = flag.Uint64("sim.seed", 0, "play only the history of this seed, with its trace")
)

// TestMain trades memory for speed: histories are short-lived garbage.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m) // a fiber that was not stopped is a goroutine
}

// TestSimulation plays random histories and reports those in which an invariant was violated.
func TestSimulation(t *testing.T) {
	if *oneSeed != 0 {
		if found := play(*oneSeed, newStats(), nil, func(line string) { t.Log(line) }); len(found) > 0 {
			t.Fatalf("seed %d:\n%s", *oneSeed, strings.Join(found, "\n"))
		}
		return
	}
	began := time.Now()
	total, failed := playAll(uint64(*seeds), nil)
	for _, seed := range failed {
		report(t, seed)
	}
	t.Logf("%s; %.0f histories/s", total, float64(total.histories)/time.Since(began).Seconds())
}

// play plays one history. prepare may change its world first.
func play(seed uint64, st *stats, prepare func(*simulation), log func(string)) []string {
	s := newSimulation(seed, st, log)
	if prepare != nil {
		prepare(s)
	}
	st.histories++
	return s.run()
}

// playAll plays the histories of seeds 1 to n and returns the first few seeds that failed.
func playAll(n uint64, prepare func(*simulation)) (*stats, []uint64) {
	var (
		next, bad atomic.Uint64
		mu        sync.Mutex
		failed    []uint64
		total     = newStats()
		group     sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			st := newStats()
			for seed := next.Add(1); seed <= n && bad.Load() < 3; seed = next.Add(1) {
				if len(play(seed, st, prepare, nil)) > 0 {
					bad.Add(1)
					mu.Lock()
					failed = append(failed, seed)
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(st)
		})
	}
	group.Wait()
	return total, failed
}

// report plays a failed history again, with its trace.
func report(t *testing.T, seed uint64) {
	t.Helper()
	var lines []string
	found := play(seed, newStats(), nil, func(line string) { lines = append(lines, line) })
	const most = 150
	omitted := ""
	if len(lines) > most {
		omitted = fmt.Sprintf("… %d lines before (-sim.seed=%d shows all)\n", len(lines)-most, seed)
		lines = lines[len(lines)-most:]
	}
	t.Errorf("seed %d: %s\n%s%s\nreplay: go test ./test/sim -run TestSimulation -sim.seed=%d -v",
		seed, strings.Join(found, "\n"), omitted, strings.Join(lines, "\n"), seed)
}

// TestSimulation_ReplaysASeed: what a seed fails with must not depend on anything else.
func TestSimulation_ReplaysASeed(t *testing.T) {
	trace := func(seed uint64) (lines []string) {
		play(seed, newStats(), nil, func(line string) { lines = append(lines, line) })
		return lines
	}
	for seed := uint64(1); seed <= 20; seed++ {
		if diff := cmp.Diff(trace(seed), trace(seed)); diff != "" {
			t.Fatalf("seed %d plays two histories:\n%s", seed, diff)
		}
	}
}

// TestSimulation_ReachesEveryPoint sees that workers die at every kind of call that leaves them.
func TestSimulation_ReachesEveryPoint(t *testing.T) {
	total, failed := playAll(3000, nil)
	if len(failed) > 0 {
		t.Fatalf("seeds %v failed: see TestSimulation", failed)
	}
	for _, at := range []string{
		"begin", "head", "entries", "append", "barrier", "put spec", "spec", "publish out", "publish void", "publish done",
		"published", "publish in", "arm timer", "dead letter", "model", "tool", "sleep", "join", "heartbeat", "ack", "nak",
	} {
		if total.crashes[at] == 0 {
			t.Errorf("no worker died at %q: %s", at, total)
		}
	}
}
