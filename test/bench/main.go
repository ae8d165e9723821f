// Command bench measures whole runs: a client starts them, a model without latency asks for one remote call a turn, a
// service answers, the client learns the end. Client, worker, service and broker share this process and its processors;
// a redis-server is a process of its own. Read ratios, not absolutes: machines differ.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"agentd/internal/core"
	"agentd/internal/schema"
)

func main() {
	concurrency := flag.Int("c", 64, "concurrent runs")
	duration := flag.Duration("d", 5*time.Second, "how long to measure each load")
	people := flag.Bool("approvals", false, "measure pending approvals alone")
	kept := flag.Bool("memory", false, "measure the memory of a server alone, for a minute or two")
	pages := flag.Int("consoles", 0, "measure what so many open pages of a console cost, alone")
	flag.Parse()
	measure := func(ctx context.Context) error { return bench(ctx, *concurrency, *duration) }
	if *people {
		measure = approvals
	}
	if *kept {
		measure = memory
	}
	if *pages > 0 {
		measure = func(ctx context.Context) error { return consoles(ctx, *pages, *concurrency, *duration) }
	}
	if err := measure(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, concurrency int, duration time.Duration) error {
	for _, open := range []func(context.Context) (*system, error){openJetStream, openRedis} {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		err = s.measure(ctx, concurrency, duration)
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return approvals(ctx)
}

func (s *system) measure(ctx context.Context, concurrency int, duration time.Duration) error {
	fmt.Printf("\nstore %s\ndurability: %s\n", s.name, s.durability)
	if err := s.run(ctx, 1); err != nil { // from here on every schema is known
		return err
	}
	calls, compilations := s.calls.Load(), schema.Compilations()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "turns\truns/s at %d\tprocessor ms a run\tone run p50 ms\tp99 ms\t\n", concurrency)
	for _, turns := range []int{3, 20, 100} {
		rate, cpu, err := s.load(ctx, turns, concurrency, duration)
		if err != nil {
			return err
		}
		p50, p99, err := s.alone(ctx, turns, duration/2)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d\t%.1f\t%.2f\t%.1f\t%.1f\t\n", turns, rate, ms(cpu), ms(p50), ms(p99))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := reportCompilations(s.calls.Load()-calls, schema.Compilations()-compilations); err != nil {
		return err
	}
	return s.bytes(ctx)
}

// reportCompilations holds calls to schemas that were compiled before.
func reportCompilations(calls int64, compilations uint64) error {
	fmt.Printf("schema compilations per call: %g (%d calls)\n", float64(compilations)/float64(calls), calls)
	if compilations > 0 {
		return fmt.Errorf("%d schemas were compiled while calls were served", compilations)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// load keeps concurrency runs going for about d and returns runs per second, and the processor time of this process for each.
func (s *system) load(ctx context.Context, turns, concurrency int, d time.Duration) (float64, time.Duration, error) {
	var mu sync.Mutex
	var failed error
	done := 0
	began, spent := time.Now(), processor()
	var clients sync.WaitGroup
	for range concurrency {
		clients.Go(func() {
			for time.Since(began) < d {
				err := s.run(ctx, turns)
				mu.Lock()
				done++
				if failed == nil {
					failed = err
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	clients.Wait()
	return float64(done) / time.Since(began).Seconds(), (processor() - spent) / time.Duration(done), failed
}

// processor is how much processor time this process has used.
func processor() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // a machine without it has no such column
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// alone runs one run after the other for d.
func (s *system) alone(ctx context.Context, turns int, d time.Duration) (p50, p99 time.Duration, err error) {
	var took []time.Duration
	for began := time.Now(); time.Since(began) < d || len(took) < 5; {
		t := time.Now()
		if err := s.run(ctx, turns); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}

// flat is how much the bytes of a step may differ.
const flat = 0.10

// bytes prints what one step writes to the journal, early and late in a run, and early and late in a parallel round.
func (s *system) bytes(ctx context.Context) error {
	journal, err := s.journal(ctx, 100)
	if err != nil {
		return err
	}
	step := map[int]int{}
	for i := range journal {
		size, err := encodedSize(&journal[i])
		if err != nil {
			return err
		}
		step[journal[i].Head.Turns] += size
	}
	if err := report("turn", 10, step[10], 100, step[100]); err != nil {
		return err
	}
	round, err := s.round(ctx, 32)
	if err != nil {
		return err
	}
	var answers []int
	for i := range round {
		if round[i].Kind != "answered" {
			continue
		}
		size, err := encodedSize(&round[i])
		if err != nil {
			return err
		}
		answers = append(answers, size)
	}
	return report("answer of a round of 32", 1, answers[0], len(answers), answers[len(answers)-1])
}

func encodedSize(e *core.Entry) (int, error) {
	data, err := e.Encode()
	return len(data), err
}

func report(what string, early, earlyBytes, late, lateBytes int) error {
	ratio := float64(lateBytes)/float64(earlyBytes) - 1
	fmt.Printf("bytes written at %s %d: %d, at %d: %d (%+.1f %%)\n", what, early, earlyBytes, late, lateBytes, 100*ratio)
	if ratio > flat || ratio < -flat {
		return fmt.Errorf("bytes at %s are not flat: %+.1f %% is more than %.0f %%", what, 100*ratio, 100*flat)
	}
	return nil
}
