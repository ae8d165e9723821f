// Command mutants breaks the protocol on purpose, one small change at a time, and runs the simulator on each: a bug that
// the simulator does not notice is a hole in the simulator. The sources stay as they are: the compiler is given the
// changed file in their place (go build -overlay).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one seeded bug.
type mutant struct {
	name string
	// file is relative to the module; old, which occurs exactly once, is replaced by new.
	file, old, new string
}

var mutants = []mutant{
	{
		"effects of a duplicate are not carried out again", "internal/runner/activation.go",
		"if !e.Cause.Is(a.msg.Cause) {", "if true {",
	},
	{
		"what the run waits for is not carried out again", "internal/core/next.go",
		"var effects []Effect\n", "var effects []Effect\n\tif true {\n\t\treturn nil\n\t}\n",
	},
	{
		"no fence check", "internal/core/step.go",
		"t.Head.Driver.Owner != t.in.Owner", "false",
	},
	{
		"who lost the run acks", "internal/runner/drive.go",
		"return Verdict{Settlement: Leave}, nil", "return Verdict{}, nil",
	},
	{
		"a later answer overwrites the result", "internal/core/step.go",
		"case i < 0 || h.Calls[i].Closed():", "case i < 0:",
	},
	{
		"a timer fires without being due", "internal/core/step.go",
		"c.Closed() || c.Due == 0 || c.Due > ev.Now", "c.Closed() || c.Due == 0",
	},
	{
		"a second init restarts the run", "internal/core/step.go",
		`if t.Head.Status != "" {`, `if t.Head.Status == StatusRunning {`,
	},
	{
		"an at-most-once tool is run by any driver", "internal/core/next.go",
		"c.Status == CallRunning && c.Begun != head.Driver.Owner", "false",
	},
	{
		"publish before commit", "internal/runner/drive.go",
		"entry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())",
		"early := core.Entry{Rev: a.at.Rev + 1, Cause: a.msg.Cause, At: a.Env.Now(), Change: change}\n" +
			"\t\tif err := a.carryOut(ctx, &early, change.Effects); err != nil {\n\t\t\treturn err\n\t\t}\n" +
			"\t\tentry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())",
	},
	{
		"the run's timer is not armed", "internal/core/round.go",
		"t.Effects = append(t.Effects, Effect{Kind: EffectTimer, Due: due})", "_ = due",
	},
	{
		"the terminal id depends on the entry", "internal/runner/effect.go",
		"ev.ID = sdk.TerminalID(a.key, init.Token)", "ev.ID = sdk.TerminalID(a.key, init.Token+a.Env.Random())",
	},
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "agentd-mutants")
	if err != nil {
		return err
	}
	const line = "%-50s  %-18s  %s\n"
	fmt.Printf(line, "seeded bug", "caught at history", "took")
	survived := 0
	for i, m := range mutants {
		began := time.Now()
		caught, err := m.try(ctx, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", m.name, err), os.RemoveAll(dir))
		}
		if caught == "" {
			survived++
			caught = "NOT CAUGHT"
		}
		fmt.Printf(line, m.name, caught, time.Since(began).Round(time.Second))
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d seeded bugs were not caught", survived, len(mutants))
	}
	return nil
}

var seedPattern = regexp.MustCompile(`seed[ =:]+(\d+)`)

// try runs the simulator on the mutant and returns the first history that failed; "" when none did.
func (m mutant) try(ctx context.Context, dir string) (caught string, err error) {
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
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "test", "-overlay", list, "-vet=off", "./test/sim", "-run", "TestSimulation$",
		"-count=1", "-sim.seeds=3000").CombinedOutput()
	switch {
	case err == nil:
		return "", nil
	case strings.Contains(string(out), "[build failed]"):
		return "", fmt.Errorf("the mutant does not compile: %s", out)
	}
	if seed := seedPattern.FindSubmatch(out); seed != nil {
		return string(seed[1]), nil
	}
	return "yes", nil
}
