// Command mutants breaks the protocol on purpose, one small change at a time, and runs the simulator on each: a bug that
// the simulator does not notice is a hole in the simulator. The sources stay as they are: the compiler is given the
// changed file in their place (go build -overlay).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	only := flag.String("only", "", "try only the mutants whose names contain one of these, with commas between them")
	flag.Parse()
	if err := run(context.Background(), *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// verdict is what the simulator says of a mutant. seed is the history that failed, 0 if none did.
type verdict struct {
	seed      uint64
	invariant string
	took      time.Duration
	// broken is why the mutant could not be tried.
	broken error
}

func run(ctx context.Context, only string) (err error) {
	dir, err := os.MkdirTemp("", "agentd-mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var chosen []mutant
	for _, m := range mutants {
		if m.isOne(strings.Split(only, ",")) {
			chosen = append(chosen, m)
		}
	}
	verdicts := make([]verdict, len(chosen))
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	// Those that may take long come first, so that no core waits for the last one.
	order := make([]int, len(chosen))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return chosen[b].budget() - chosen[a].budget() })
	for _, i := range order {
		m := chosen[i]
		group.Go(func() error {
			began := time.Now()
			v, err := m.try(ctx, filepath.Join(dir, fmt.Sprint(i)))
			v.took, v.broken = time.Since(began), err
			verdicts[i] = v
			fmt.Fprintf(os.Stderr, "%d/%d %s: %s at history %d, %s\n", i+1, len(chosen), m.name, v.invariant, v.seed, v.took.Round(time.Second))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	wrong := table(chosen, verdicts)
	fmt.Printf("\n%d mutants in %s\n", len(chosen), time.Since(began).Round(time.Second))
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants are not what they are said to be", wrong, len(chosen))
	}
	return nil
}

// table prints what became of the mutants and returns how many are not as they should be.
func table(list []mutant, verdicts []verdict) (wrong int) {
	const row = "%-68s  %-9s  %10s  %7s  %5s\n"
	fmt.Printf(row, "mutant", "killed by", "at history", "budget", "took")
	for i, m := range list {
		v := verdicts[i]
		killed, at := v.invariant, fmt.Sprint(v.seed)
		switch {
		case v.broken != nil:
			killed, at, wrong = "BROKEN", "", wrong+1
		case v.seed == 0:
			killed, at, wrong = "SURVIVES", "", wrong+1
		}
		fmt.Printf(row, m.name, killed, at, fmt.Sprint(m.budget()), v.took.Round(time.Second))
	}
	for i, m := range list {
		if err := verdicts[i].broken; err != nil {
			fmt.Printf("\nbroken: %s: %v\n", m.name, err)
		}
	}
	return wrong
}

// isOne reports whether the mutant's name contains one of the texts.
func (m mutant) isOne(texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(m.name, text) })
}

// budget is how many histories the simulator may play.
func (m mutant) budget() int {
	if m.within > 0 {
		return m.within
	}
	return 20000
}

// try runs the simulator on the mutant.
func (m mutant) try(ctx context.Context, dir string) (verdict, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return verdict{}, err
	}
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-vet=off", "-ldflags=-s -w", "-o", binary, "./test/sim")
	if out, err := build.CombinedOutput(); err != nil {
		return verdict{}, fmt.Errorf("the mutant does not compile: %s", out)
	}
	play := exec.CommandContext(ctx, binary, "-test.run=TestSimulation$", "-test.timeout=10m", "-test.cpu=1",
		"-sim.shrink=false", fmt.Sprint("-sim.seeds=", m.budget()))
	out, err := play.CombinedOutput()
	if err == nil {
		return verdict{}, os.Remove(binary)
	}
	var v verdict
	found := failure.FindSubmatch(out)
	if found == nil {
		return verdict{}, fmt.Errorf("the simulator broke down: %s", out)
	}
	if _, err := fmt.Sscan(string(found[1]), &v.seed); err != nil {
		return verdict{}, fmt.Errorf("read %q: %w", found[1], err)
	}
	v.invariant = string(found[2])
	return v, os.Remove(binary)
}

// failure is how the simulator reports a history.
var failure = regexp.MustCompile(`seed (\d+): (\w+):`)

// overlay writes the changed file, and returns the file that tells the compiler of it.
func (m mutant) overlay(dir string) (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s has %d places %q; want one", m.file, n, m.old)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, overlay, 0o600)
}
