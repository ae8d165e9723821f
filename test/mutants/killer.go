package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"agentd/internal/harness"
)

// killer is what must notice a mutant.
type killer interface {
	// String is for the table.
	String() string
	// effort orders the mutants: those that may take long come first, so that no processor waits for the last one.
	effort() int
	// try builds the tests with an overlay, in a folder of its own, and runs them. It returns how they noticed the mutant;
	// an empty text says that they did not.
	try(ctx context.Context, overlay, dir string) (string, error)
}

// histories is how many the simulator may play until one violates an invariant.
type histories int

// simulator is the killer of most mutants.
const simulator = histories(20_000)

func (h histories) String() string { return fmt.Sprintf("simulator in %d", int(h)) }

func (h histories) effort() int { return int(h) }

// violation is how the simulator reports a history.
var violation = regexp.MustCompile(`seed (\d+): (\w+):`)

func (h histories) try(ctx context.Context, overlay, dir string) (string, error) {
	binary, err := build(ctx, overlay, dir, "./test/sim")
	if err != nil {
		return "", err
	}
	play := exec.CommandContext(ctx, binary, "-test.run=TestSimulation$", "-test.timeout=1h", "-test.cpu=1",
		"-sim.shrink=false", fmt.Sprint("-sim.seeds=", int(h)))
	out, err := play.CombinedOutput()
	if err == nil {
		return "", nil
	}
	found := violation.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("the simulator broke down: %s", out)
	}
	return fmt.Sprintf("%s at history %s", found[2], found[1]), nil
}

// cases is how many cases of test/policies may be played until a call is made that must not be.
type cases int

func (c cases) String() string { return fmt.Sprintf("policies in %d", int(c)) }

func (c cases) effort() int { return int(c) }

var madeWrongly = regexp.MustCompile(`seed (\d+): `)

func (c cases) try(ctx context.Context, overlay, dir string) (string, error) {
	binary, err := build(ctx, overlay, dir, "./test/policies")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, binary, "-test.run=TestPolicies$", "-test.timeout=1h", fmt.Sprint("-policies.cases=", int(c))).CombinedOutput()
	found := madeWrongly.FindSubmatch(out)
	switch {
	case err == nil:
		return "", nil
	case found == nil:
		return "", fmt.Errorf("the cases broke down: %s", out)
	}
	return fmt.Sprintf("case %s", found[1]), nil
}

// rows are ids of test/seeds, each of whose tests must fail.
type rows []string

func (r rows) String() string { return strings.Join(r, " ") }

func (r rows) effort() int { return 0 }

var failedRow = regexp.MustCompile(`(?m)^\s*--- FAIL: TestSeeds/(\w+) `)

func (r rows) try(ctx context.Context, overlay, dir string) (string, error) {
	binary, err := build(ctx, overlay, dir, "./test/seeds")
	if err != nil {
		return "", err
	}
	failed, err := failures(ctx, binary, r)
	if err != nil {
		return "", err
	}
	for _, id := range r {
		if slices.Contains(failed, id) {
			continue
		}
		// The panic of another row's test may have ended this one.
		if alone, err := failures(ctx, binary, rows{id}); err != nil || len(alone) == 0 {
			return "", err
		}
	}
	return "their tests", nil
}

// failures runs the tests of rows, and returns the rows whose tests failed.
func failures(ctx context.Context, binary string, ids rows) ([]string, error) {
	run := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=10m", "-rapid.nofailfile", "-test.run=^TestSeeds$/^("+strings.Join(ids, "|")+")$")
	run.Dir = filepath.Join("test", "seeds")
	// What a mutant keeps from happening is waited for in vain.
	run.Env = append(os.Environ(), harness.PatienceVariable+"=30s")
	out, err := run.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return nil, err
	}
	var failed []string
	for _, found := range failedRow.FindAllSubmatch(out, -1) {
		failed = append(failed, string(found[1]))
	}
	return failed, nil
}

// test is one test of a package, by its folder and name, which must fail; part of it is named after a slash.
type test struct{ folder, name string }

func (k test) String() string { return k.name }

func (k test) effort() int { return 0 }

var failedTest = regexp.MustCompile(`(?m)^(\s*--- FAIL: |panic: test timed out)`)

func (k test) try(ctx context.Context, overlay, dir string) (string, error) {
	binary, err := build(ctx, overlay, dir, "./"+k.folder)
	if err != nil {
		return "", err
	}
	name, part, _ := strings.Cut(k.name, "/")
	run := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=10m", "-test.run=^"+name+"$/^"+part)
	run.Dir = filepath.FromSlash(k.folder)
	// What a mutant keeps from happening is waited for in vain.
	run.Env = append(os.Environ(), harness.PatienceVariable+"=30s")
	out, err := run.CombinedOutput()
	switch {
	case err == nil:
		return "", nil
	case !failedTest.Match(out):
		return "", fmt.Errorf("the test broke down: %w: %s", err, out)
	}
	return "its test", nil
}

// build builds the tests of a package.
func build(ctx context.Context, overlay, dir, pkg string) (string, error) {
	binary := filepath.Join(dir, "mutant.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-vet=off", "-ldflags=-s -w", "-o", binary, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutant does not compile: %s", out)
	}
	return binary, nil
}
