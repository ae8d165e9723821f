// Package dlq is agentd dlq: dead letters.
package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/deadletter"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Command is agentd dlq.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters, publish them again, and drop them",
		Long: "dlq works on the messages that no worker or service could handle. docs/dead_letters.md says for each reason what\n" +
			"to do about it, and so does: agentd dlq show SEQUENCE",
	}
	cmd.AddCommand(listCommand(a), showCommand(a), redriveCommand(a), dropCommand(a))
	return cmd
}

// letterFlags select dead letters.
type letterFlags struct{ reason, run, agent, since string }

func (f *letterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "only those with this reason, such as unknown_run")
	cmd.Flags().StringVar(&f.run, "run", "", "only messages for this run")
	cmd.Flags().StringVar(&f.agent, "agent", "", "only messages for this agent")
	cmd.Flags().StringVar(&f.since, "since", "", "only those of this time until now, such as 90m or 2d")
	cli.Narrow(cmd.Flags(), "reason", "run", "agent", "since")
	var reasons []string
	for _, reason := range deadletter.Reasons() {
		reasons = append(reasons, string(reason))
	}
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions(reasons, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// given reports whether anything is selected.
func (f *letterFlags) given() bool { return *f != letterFlags{} }

var reasonPattern = regexp.MustCompile(`^[a-z0-9_]+$`)

// filter is what the broker can select by.
func (f *letterFlags) filter() (broker.LetterFilter, error) {
	var filter broker.LetterFilter
	if f.reason != "" && !reasonPattern.MatchString(f.reason) {
		return filter, cli.Usagef("--reason %q: want a reason such as %s", f.reason, sdk.CodeUnknownRun)
	}
	filter.Reason = sdk.Code(f.reason)
	since, err := cli.SinceTime(f.since)
	filter.Since = since
	return filter, err
}

// matches reports whether a dead letter is for the run and the agent that were asked for.
func (f *letterFlags) matches(l *deadletter.Letter) bool {
	return (f.run == "" || l.Key == wire.NewRunKey(f.run)) && (f.agent == "" || l.Address.Agent == wire.NameToken(f.agent))
}

func listCommand(a *cli.App) *cobra.Command {
	var f letterFlags
	var after uint64
	var limit uint
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first",
		Example: "  agentd dlq list --since 1h\n  agentd dlq list --reason unknown_run --agent travel.desk\n" +
			"  agentd dlq list --limit 0 -o json | jq -r '.[].subject'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			filter.After = after
			return a.WithClient(cmd.Context(), func(c *cli.Client) error { return list(cmd.Context(), a, c, f, filter, int(limit)) })
		},
	}
	f.add(cmd)
	cmd.Flags().Uint64Var(&after, "after", 0, "only those after this sequence")
	cmd.Flags().UintVar(&limit, "limit", 50, "the most to list (0: all)")
	return cmd
}

func list(ctx context.Context, a *cli.App, c *cli.Client, f letterFlags, filter broker.LetterFilter, limit int) error {
	list := letterList{a: a, limit: limit}
	err := c.Letters(ctx, filter, func(b broker.Letter) (bool, error) {
		l := deadletter.Of(c.Subjects(), b)
		if !f.matches(l) {
			return true, nil
		}
		return list.add(l.Row())
	})
	if err != nil {
		return errors.Join(err, list.close())
	}
	return list.end()
}

// letterList prints dead letters as they come, so that any number of them can be listed.
type letterList struct {
	a     *cli.App
	limit int
	n     int
	last  uint64
	more  bool
}

func (p *letterList) add(l show.Letter) (bool, error) {
	if p.more = p.limit > 0 && p.n == p.limit; p.more {
		return false, nil
	}
	p.n, p.last = p.n+1, l.Sequence
	w := p.a.Out
	if p.a.Output == cli.OutputJSON {
		before := ",\n  "
		if p.n == 1 {
			before = "[\n  "
		}
		data, err := json.Marshal(l)
		if err == nil {
			_, err = io.WriteString(w, before+string(show.EscapeJSON(data)))
		}
		return true, err
	}
	if p.n == 1 {
		fmt.Fprintln(w, show.LettersTitle(cli.Columns(w)))
	}
	_, err := fmt.Fprintln(w, l.Line(cli.Columns(w)))
	return true, err
}

// close ends the JSON, also of a list that failed half-way, so that what was listed can be read.
func (p *letterList) close() error {
	if p.a.Output != cli.OutputJSON || p.n == 0 {
		return nil
	}
	_, err := io.WriteString(p.a.Out, "\n]\n")
	return err
}

func (p *letterList) end() error {
	err := p.close()
	switch {
	case p.n > 0:
	case p.a.Output == cli.OutputJSON:
		_, err = io.WriteString(p.a.Out, "[]\n")
	default:
		_, err = fmt.Fprintln(p.a.Out, "no dead letters")
	}
	if p.more {
		fmt.Fprintf(p.a.Err, "there are more; go on with: --after %d\n", p.last)
	}
	return err
}
