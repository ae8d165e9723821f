// Command mutants breaks agentd on purpose, one behaviour at a time, and runs on each mutant what must notice it: the
// simulator, or the tests of rows of test/seeds. One that lives is a hole in the tests. The sources stay as they are: the
// compiler is given the changed file in their place (go build -overlay).
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	only := flag.String("only", "", "try only the mutants whose names, or whose rows, contain one of these, with commas between them")
	flag.Parse()
	if err := run(context.Background(), strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// verdict is what became of a mutant.
type verdict struct {
	mutant
	// noticed says how; it is empty if nothing noticed the mutant.
	noticed string
	took    time.Duration
	// broken is why the mutant could not be tried.
	broken error
}

func run(ctx context.Context, only []string) (err error) {
	dir, err := os.MkdirTemp("", "agentd-mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sources, err := load(".", folders())
	if err != nil {
		return err
	}
	var verdicts []verdict
	for _, m := range mutants {
		if slices.ContainsFunc(only, func(text string) bool { return strings.Contains(m.name+"\n"+m.by.String(), text) }) {
			verdicts = append(verdicts, verdict{mutant: m})
		}
	}
	slices.SortStableFunc(verdicts, func(a, b verdict) int { return b.by.effort() - a.by.effort() })
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range verdicts {
		v := &verdicts[i]
		group.Go(func() error {
			began := time.Now()
			v.noticed, v.broken = v.try(ctx, sources, filepath.Join(dir, fmt.Sprint(i)))
			v.took = time.Since(began).Round(time.Second)
			fmt.Fprintf(os.Stderr, "%s: %s, %s\n", v.name, v.outcome(), v.took)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	wrong := table(verdicts)
	fmt.Printf("\n%d mutants in %s\n", len(verdicts), time.Since(began).Round(time.Second))
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants are not noticed", wrong, len(verdicts))
	}
	return nil
}

// outcome is one word if the mutant is not noticed as it must be.
func (v *verdict) outcome() string {
	if v.broken != nil {
		return "BROKEN"
	}
	return cmp.Or(v.noticed, "LIVES")
}

// table prints what became of the mutants, by what must notice them, and returns how many are not noticed.
func table(verdicts []verdict) (wrong int) {
	slices.SortStableFunc(verdicts, func(a, b verdict) int { return cmp.Compare(a.by.String(), b.by.String()) })
	const line = "%-20s  %-74s  %-26s  %5s\n"
	fmt.Printf(line, "must be noticed by", "mutant", "noticed by", "took")
	for _, v := range verdicts {
		fmt.Printf(line, v.by, v.name, v.outcome(), v.took)
		if v.broken != nil || v.noticed == "" {
			wrong++
		}
	}
	for _, v := range verdicts {
		if v.broken != nil {
			fmt.Printf("\nbroken: %s: %v\n", v.name, v.broken)
		}
	}
	return wrong
}

// folders are those of the packages that mutants change.
func folders() []string {
	var all []string
	for _, m := range mutants {
		all = append(all, m.folder())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// try runs on a mutant what must notice it.
func (m mutant) try(ctx context.Context, sources module, dir string) (noticed string, err error) {
	file, text, err := sources.apply(m.change)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	changed := filepath.Join(dir, filepath.Base(file))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(list, overlay, 0o600)); err != nil {
		return "", err
	}
	return m.by.try(ctx, list, dir)
}
