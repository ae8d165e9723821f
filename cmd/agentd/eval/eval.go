// Package eval is agentd eval.
package eval

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/eval"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/internal/spelling"
	"agentd/sdk"
)

// asked is what the command line says.
type asked struct {
	agent, provider, junit string
	eval.Options
}

// Command is agentd eval.
func Command(a *cli.App) *cobra.Command {
	var q asked
	cmd := &cobra.Command{
		Use:   "eval [FILE...]",
		Short: "Ask a model to do what cases say, several times, and grade it",
		Long: "eval asks a model to do what the cases in the files say, or those that come with agentd: choose a tool, use what one\n" +
			"returned for the next, and leave alone what nobody asked for. No tool is executed. Each case is tried several times:\n" +
			"pass@1 is how likely one try is right, pass^K how likely K in a row are. Exit codes: 0 all cases passed, 4 some did not,\n" +
			"2 a file cannot be read.",
		Example: "  agentd eval --model gpt-5-nano\n  agentd eval cases.yaml --agent travel.desk --tries 8 --k 4 --least 0.9 --junit report.xml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return evaluate(cmd.Context(), a, &q, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.agent, "agent", "", "ask the model of this agent, as the agent asks it")
	f.StringVar(&q.Model, "model", "", "ask the model of this name")
	f.StringVar(&q.provider, "provider", "openai", "the provider of --model")
	f.IntVar(&q.Tries, "tries", 5, "how often each case is tried, 1 to 100")
	cli.CountVar(f, &q.K, "k", 0, 1, "how many tries in a row pass^K is about; default 3, or --tries if that is less")
	f.Float64Var(&q.Least, "least", 1, "the pass^K that each case must have, 0 to 1")
	f.IntVar(&q.Parallel, "parallel", 4, "how many tries are made at once, 1 to 64")
	f.StringVar(&q.junit, "junit", "", "write a JUnit report to this file")
	cmd.MarkFlagsMutuallyExclusive("agent", "model")
	cmd.MarkFlagsOneRequired("agent", "model")
	return cmd
}

// defaultK is how many tries pass^K is about where nothing is said.
const defaultK = 3

// check completes what the command line says.
func (q *asked) check() error {
	switch {
	case q.Tries < 1 || q.Tries > 100:
		return cli.Usagef("--tries: want 1 to 100, got %d", q.Tries)
	case q.Parallel < 1 || q.Parallel > 64:
		return cli.Usagef("--parallel: want 1 to 64, got %d", q.Parallel)
	case q.Least < 0 || q.Least > 1:
		return cli.Usagef("--least: want 0 to 1, got %g", q.Least)
	}
	if q.K == 0 {
		q.K = min(defaultK, q.Tries)
	}
	if q.K > q.Tries {
		return cli.Usagef("--k: want 1 to %d, which is --tries, got %d", q.Tries, q.K)
	}
	return nil
}

func evaluate(ctx context.Context, a *cli.App, q *asked, files []string) error {
	if err := q.check(); err != nil {
		return err
	}
	suites, err := load(files)
	if err != nil {
		return cli.Usage(err)
	}
	model, err := q.model(a)
	if err != nil {
		return err
	}
	report, err := eval.Evaluate(ctx, model, suites, q.Options)
	if err != nil {
		return err
	}
	if q.junit != "" {
		if err := writeFile(q.junit, report.WriteJUnit); err != nil {
			return err
		}
	}
	if err := a.Print(report, func(w io.Writer) error { return show.Evaluation(w, report, cli.Columns(w)) }); err != nil {
		return err
	}
	if !report.Passed() {
		return cli.Exit(cli.ExitFindings)
	}
	return nil
}

func load(files []string) ([]eval.Suite, error) {
	if len(files) == 0 {
		return eval.Shipped()
	}
	var suites []eval.Suite
	for _, file := range files {
		s, err := eval.Load(file)
		if err != nil {
			return nil, err
		}
		suites = append(suites, *s)
	}
	return suites, nil
}

// model is what is asked, and completes its name.
func (q *asked) model(a *cli.App) (sdk.Provider, error) {
	load := a.Settings
	if q.agent != "" {
		load = a.WithAgents
	}
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	spec := sdk.ModelSpec{Provider: q.provider, Name: q.Model}
	if q.agent != "" {
		names := setup.AgentNames(cfg)
		i := slices.Index(names, q.agent)
		if i < 0 {
			return nil, cli.Usagef("--agent: %s has no agent %q%s", a.Config, q.agent, spelling.Suggest(q.agent, names))
		}
		spec = cfg.Agents[i].Model
		q.Model = spec.Name
	}
	models, err := setup.Models(cfg)
	if err != nil {
		return nil, err
	}
	return models.Provider(spec)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error says why
		return err
	}
	return f.Close()
}
