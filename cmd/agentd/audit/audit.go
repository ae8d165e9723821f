// Package audit is agentd audit.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/audit"
	"agentd/internal/audit/live"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Command is agentd audit.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check that what runs did is what agentd promises, and export who did what",
	}
	cmd.AddCommand(verifyCommand(a), exportCommand(a))
	return cmd
}

func verifyCommand(a *cli.App) *cobra.Command {
	var all bool
	var since, file string
	cmd := &cobra.Command{
		Use:   "verify [RUN...]",
		Short: "Check that what runs did is what agentd promises, or that an exported trail was not changed",
		Long: "verify reads journals from the store and messages from the broker, and checks them by the invariants that agentd's\n" +
			"own tests use: every journal is an unbroken chain of hashes, every call was published once and as its journal says,\n" +
			"every message led to something or is a dead letter, every init event has one end. It changes nothing, and can be\n" +
			"used while workers work: what is not settled yet is counted and not judged. docs/cli.md says what can be proven.\n\n" +
			"With --file it checks a trail that audit export wrote, and needs nothing else.\n\n" +
			"Exit codes: 0 nothing wrong, 1 violations found, or the audit could not be done.",
		Example: "  agentd audit verify trip-7\n  agentd audit verify --all\n  agentd audit verify --since 24h -o json | jq -r '.violations[].name'\n" +
			"  agentd audit verify --file trip-7.jsonl",
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := cli.SinceTime(since)
			if err != nil {
				return err
			}
			some := all || since != ""
			if file != "" && !some && len(args) == 0 {
				return verifyTrail(cmd.Context(), a, file)
			}
			if some == (len(args) > 0) || file != "" {
				return cli.Usage(errors.New("name runs, or verify those of a time with --since, or --all, or one --file"))
			}
			return a.WithStore(cmd.Context(), func(c *cli.Client, store runner.Store) error {
				return verify(cmd.Context(), a, c, store, args, from)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every run, and every init event")
	cmd.Flags().StringVar(&since, "since", "", "runs that changed, and init events that came, in this time, such as 90m or 2d")
	cmd.Flags().StringVar(&file, "file", "", "a trail that audit export wrote; - is the standard input")
	return cmd
}

func verify(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, runs []string, since time.Time) error {
	auditor, err := live.New(ctx, c.Conn, store)
	if err != nil {
		return err
	}
	list := violationList{a: a, names: map[string]string{}}
	if len(runs) == 0 {
		err = auditor.All(ctx, since, list.add)
	}
	for _, name := range runs {
		list.names[wire.NewRunKey(name).String()] = name
		err = auditor.Run(ctx, wire.NewRunKey(name), list.add)
		if errors.Is(err, runner.ErrNotFound) {
			err = sdk.Errorf(sdk.CodeUnknownRun, "run %q does not exist; see: %s", name, a.CommandLine("runs", "list"))
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return errors.Join(err, list.abandon())
	}
	return list.end(auditor.Counts)
}

// violationList prints violations as they are found: there may be any number.
type violationList struct {
	a *cli.App
	n int
	// names are those of runs by key, as far as the person who asks said them: a journal that cannot be read says none.
	names map[string]string
}

func (p *violationList) add(v live.Violation) error {
	p.n++
	v.Name = cmp.Or(v.Name, p.names[v.Run])
	w := p.a.Out
	if p.a.Output == cli.OutputJSON {
		before := ",\n    "
		if p.n == 1 {
			before = "{\n  \"violations\": [\n    "
		}
		data, err := json.Marshal(v)
		if err == nil {
			_, err = io.WriteString(w, before+string(show.EscapeJSON(data)))
		}
		return err
	}
	where := cmp.Or(v.Name, v.Run, "no run")
	if v.Entry > 0 {
		where += fmt.Sprintf(", entry %d", v.Entry)
	}
	detail := show.Visible(v.Detail)
	if !p.a.Verbose {
		detail = show.Line(v.Detail, 4*show.LineMax)
	}
	_, err := fmt.Fprintf(w, "%s\n  %s (%s)\n  %s\n", show.Line(where, show.LineMax), audit.Invariants[v.Invariant], v.Invariant, detail)
	return err
}

// abandon ends the JSON of an audit that failed half-way, so that what was found can be read.
func (p *violationList) abandon() error {
	if p.a.Output != cli.OutputJSON || p.n == 0 {
		return nil
	}
	_, err := io.WriteString(p.a.Out, "\n  ]\n}\n")
	return err
}

func (p *violationList) end(counts live.Counts) error {
	if err := p.writeEnd(counts); err != nil {
		return err
	}
	if p.n > 0 {
		return cli.Exit(cli.ExitFailure)
	}
	return nil
}

func (p *violationList) writeEnd(n live.Counts) error {
	w := p.a.Out
	if p.a.Output == cli.OutputJSON {
		data, err := json.MarshalIndent(n, "  ", "  ")
		if err != nil {
			return err
		}
		begin := "\n  ],\n"
		if p.n == 0 {
			begin = "{\n  \"violations\": [],\n"
		}
		_, err = fmt.Fprintf(w, "%s  \"checked\": %s\n}\n", begin, data)
		return err
	}
	if p.n > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "checked   %s with %s, %s and %s", show.Count(n.Runs, "run"), show.Count(n.Entries, "entry"),
		show.Count(n.Events, "event"), show.Count(n.Messages, "message"))
	if n.Inits > 0 {
		fmt.Fprintf(w, "; %s", show.Count(n.Inits, "init event"))
	}
	fmt.Fprintln(w)
	if n.Purged > 0 {
		fmt.Fprintf(w, "removed   %s: of these runs only the end is left to check\n", show.Count(n.Purged, "history"))
	}
	if n.Unsettled > 0 {
		fmt.Fprintf(w, "open      %s not settled yet, which may lead to more\n", show.Count(n.Unsettled, "message"))
	}
	if n.Forgotten > 0 {
		fmt.Fprintf(w, "unknown   %s that the broker no longer keeps\n", show.Count(n.Forgotten, "message"))
	}
	result := "nothing wrong"
	if p.n > 0 {
		result = show.Count(p.n, "violation")
	}
	_, err := fmt.Fprintf(w, "result    %s\n", result)
	return err
}
