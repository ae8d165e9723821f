// Command bench prints what agentd bench prints, of both stores, and what holds agentd to its promises beside: that steps stay as large as
// they were, and that nothing is compiled while calls are served. The broker is in this process, a redis-server is a process of its own.
// Read ratios, not absolutes: machines differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"agentd/internal/bench"
	"agentd/internal/core"
	"agentd/internal/schema"
)

var out = os.Stdout

// turns is how many calls a run makes where nothing else is said.
const turns = 3

func main() {
	concurrency := flag.Int("c", 64, "concurrent runs")
	duration := flag.Duration("d", 5*time.Second, "how long to measure each load")
	people := flag.Bool("approvals", false, "measure pending approvals alone")
	kept := flag.Bool("memory", false, "measure the memory of a server alone, for a minute or two")
	ended := flag.Int("finished", 0, "measure the memory that a server takes for so many finished runs, alone: 200000 take a quarter of an hour")
	server := flag.Bool("server", false, "be the server of such a measurement")
	pages := flag.Int("consoles", 0, "measure what so many open pages of a console cost, alone")
	flag.Parse()
	measure := func(ctx context.Context) error { return all(ctx, *concurrency, *duration) }
	if *people {
		measure = approvals
	}
	if *kept {
		measure = memory
	}
	if *ended > 0 {
		measure = func(ctx context.Context) error { return finished(ctx, *ended, *concurrency) }
	}
	if *server {
		measure = func(context.Context) error { return serveAlone() }
	}
	if *pages > 0 {
		measure = func(ctx context.Context) error { return consoles(ctx, *pages, *concurrency, *duration) }
	}
	if err := measure(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all measures both stores, and then approvals.
func all(ctx context.Context, concurrency int, duration time.Duration) error {
	err := onEachStore(ctx, func(redisURL string) error { return onStore(ctx, redisURL, concurrency, duration) })
	if err != nil {
		return err
	}
	return approvals(ctx)
}

// onEachStore measures JetStream, whose URL is empty, and then Redis.
func onEachStore(ctx context.Context, measure func(redisURL string) error) error {
	url, stop, err := startRedis(ctx)
	if err != nil {
		return err
	}
	for _, store := range []string{"", url} {
		if err == nil {
			err = measure(store)
		}
	}
	return errors.Join(err, stop())
}

// onStore prints what agentd bench prints, and what it does not: longer runs, compilations of schemas, and bytes early and late.
func onStore(ctx context.Context, redisURL string, concurrency int, duration time.Duration) (err error) {
	if err := report(ctx, redisURL, bench.Load{Turns: turns, Clients: concurrency, Duration: duration, Alone: duration / 2}); err != nil {
		return err
	}
	s, err := openSystem(ctx, redisURL, bench.Agent())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.measure(ctx, concurrency, duration); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

func (s *system) measure(ctx context.Context, concurrency int, duration time.Duration) error {
	if _, err := s.Run(ctx, 1, 1); err != nil { // from here on every schema is known
		return err
	}
	calls, compilations := s.Calls(), schema.Compilations()
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s, turns\truns/s at %d\tprocessor ms a run\tone run p50 ms\tp99 ms\t\n", s.name, concurrency)
	for _, turns := range []int{20, 100} {
		l, err := s.load(ctx, bench.Load{Turns: turns, Clients: concurrency, Duration: duration, Alone: duration / 2})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d\t%s\t\n", turns, l)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := reportCompilations(s.Calls()-calls, schema.Compilations()-compilations); err != nil {
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

// loaded is what runs took.
type loaded struct {
	perSecond float64
	// cpu is the processor time of this process for each run under load; p50 and p99 are of runs alone.
	cpu, p50, p99 time.Duration
}

// String is cells of a table.
func (l loaded) String() string {
	return fmt.Sprintf("%.1f\t%.2f\t%.1f\t%.1f", l.perSecond, ms(l.cpu), ms(l.p50), ms(l.p99))
}

func (s *system) load(ctx context.Context, l bench.Load) (result loaded, err error) {
	began, spent := time.Now(), bench.Processor()
	took, err := s.Work(ctx, l)
	if err != nil {
		return result, err
	}
	result.perSecond = float64(len(took)) / time.Since(began).Seconds()
	result.cpu = (bench.Processor() - spent) / time.Duration(len(took))
	alone, err := s.Each(ctx, l.Turns, l.Alone)
	if err != nil {
		return result, err
	}
	result.p50, result.p99 = alone[len(alone)/2], alone[len(alone)*99/100]
	return result, nil
}

// flat is how much the bytes of a step may differ.
const flat = 0.10

// bytes prints what one step writes to the journal, early and late in a run, and early and late in a parallel round.
func (s *system) bytes(ctx context.Context) error {
	journal, err := s.journal(ctx, 100, 1)
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
	if err := compare("turn", 10, step[10], 100, step[100]); err != nil {
		return err
	}
	round, err := s.journal(ctx, 1, 32)
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
	return compare("answer of a round of 32", 1, answers[0], len(answers), answers[len(answers)-1])
}

// journal carries out a run, and is its journal.
func (s *system) journal(ctx context.Context, turns, width int) ([]core.Entry, error) {
	name, err := s.Run(ctx, turns, width)
	if err != nil {
		return nil, err
	}
	return s.Journal(ctx, name)
}

func encodedSize(e *core.Entry) (int, error) {
	data, err := e.Encode()
	return len(data), err
}

func compare(what string, early, earlyBytes, late, lateBytes int) error {
	ratio := float64(lateBytes)/float64(earlyBytes) - 1
	fmt.Printf("bytes written at %s %d: %d, at %d: %d (%+.1f %%)\n", what, early, earlyBytes, late, lateBytes, 100*ratio)
	if ratio > flat || ratio < -flat {
		return fmt.Errorf("bytes at %s are not flat: %+.1f %% is more than %.0f %%", what, 100*ratio, 100*flat)
	}
	return nil
}
