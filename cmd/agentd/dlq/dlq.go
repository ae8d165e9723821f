// Package dlq is agentd dlq: dead letters.
package dlq

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
	var reasons []string
	for reason := range advice {
		reasons = append(reasons, string(reason))
	}
	slices.Sort(reasons)
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
func (f *letterFlags) matches(l *Letter) bool {
	return (f.run == "" || l.key == wire.NewRunKey(f.run)) && (f.agent == "" || l.Agent == wire.NameToken(f.agent))
}

// Letter is a dead letter as it is shown.
type Letter struct {
	Sequence uint64   `json:"seq"`
	At       int64    `json:"at"`
	Reason   sdk.Code `json:"reason"`
	Detail   string   `json:"detail"`
	// Agent is the agent's token, Run the run's name or, where nobody says it, its key.
	Agent string `json:"agent,omitempty"`
	Run   string `json:"run,omitempty"`
	// Event and Type are the event's id and type.
	Event string `json:"event,omitempty"`
	Type  string `json:"type,omitempty"`
	// Subject, Stream and Origin are where it came from.
	Subject  string `json:"subject"`
	Stream   string `json:"stream"`
	Origin   uint64 `json:"stream_seq"`
	Redrives int    `json:"redrives"`

	raw broker.Letter
	// address and event are zero when the subject or the body cannot be read; undecodable says why of the latter.
	address     wire.Address
	event       wire.Event
	undecodable error
	key         wire.RunKey
}

func letterOf(subjects wire.Subjects, b broker.Letter) *Letter {
	l := &Letter{
		Sequence: b.Sequence, At: b.At, Reason: b.Reason, Detail: b.Detail, Subject: b.Subject, Stream: b.Stream,
		Origin: b.Origin, Redrives: b.Redrives, raw: b,
	}
	address, err := subjects.Parse(b.Subject)
	if err == nil {
		l.address, l.Agent, l.key = address, address.Agent, address.Run
	}
	l.event, l.undecodable = wire.DecodeEvent(b.Headers, b.Data)
	if l.undecodable == nil {
		l.Event, l.Type = l.event.ID, l.event.Type
		l.name()
	}
	if l.Run == "" && l.key != (wire.RunKey{}) {
		l.Run = l.key.String()
	}
	return l
}

// name finds the run's name. Only an init event says which run it is for: elsewhere the subject does, and the event's own
// name of it is a claim.
func (l *Letter) name() {
	claimed := l.event.Subject
	if l.address.Kind == wire.KindStart {
		if claimed == "" {
			claimed = wire.DefaultSubject(l.init())
		}
		l.key = wire.NewRunKey(claimed)
	}
	if claimed != "" && wire.NewRunKey(claimed) == l.key {
		l.Run = claimed
	}
}

// init is the token of an init event.
func (l *Letter) init() string { return wire.InitToken(l.event.Source, l.event.ID) }

func listCommand(a *cli.App) *cobra.Command {
	var f letterFlags
	var after uint64
	var limit int
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
			c, err := a.Client(cmd.Context())
			if err != nil {
				return err
			}
			return c.CloseAfter(list(cmd.Context(), a, c, f, filter, limit))
		},
	}
	f.add(cmd)
	cmd.Flags().Uint64Var(&after, "after", 0, "only those after this sequence")
	cmd.Flags().IntVar(&limit, "limit", 50, "the most to list (0: all)")
	return cmd
}

func list(ctx context.Context, a *cli.App, c *cli.Client, f letterFlags, filter broker.LetterFilter, limit int) error {
	list := letterList{a: a, limit: limit}
	err := c.Letters(ctx, filter, func(b broker.Letter) (bool, error) {
		l := letterOf(c.Subjects(), b)
		if !f.matches(l) {
			return true, nil
		}
		return list.add(l)
	})
	if err != nil {
		return cli.ExplainDLQ(err)
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

const letterLine = "%-6s  %-9s  %-18s  %-16s  %-30s  %s\n"

func (p *letterList) add(l *Letter) (bool, error) {
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
			_, err = io.WriteString(w, before+string(data))
		}
		return true, err
	}
	if p.n == 1 {
		fmt.Fprintf(w, letterLine, "SEQ", "WHEN", "REASON", "AGENT", "RUN", "MESSAGE")
	}
	_, err := fmt.Fprintf(w, letterLine, strconv.FormatUint(l.Sequence, 10), show.Ago(l.At), show.Line(string(l.Reason), 18),
		cmp.Or(show.Line(l.Agent, 16), "-"), cmp.Or(show.Line(l.Run, 30), "-"), l.what())
	return true, err
}

// what is the message in a few words.
func (l *Letter) what() string {
	text := l.Type + " " + l.Event
	if l.undecodable != nil {
		text = l.Subject
	}
	switch {
	case l.Redrives == 1:
		text += " (redriven once)"
	case l.Redrives > 1:
		text += fmt.Sprintf(" (redriven %d times)", l.Redrives)
	}
	return show.Line(text, 90)
}

func (p *letterList) end() error {
	if p.a.Output == cli.OutputJSON {
		end := "\n]\n"
		if p.n == 0 {
			end = "[]\n"
		}
		_, err := io.WriteString(p.a.Out, end)
		return err
	}
	if p.n == 0 {
		fmt.Fprintln(p.a.Out, "no dead letters")
	}
	if p.more {
		fmt.Fprintf(p.a.Err, "there are more; go on with: --after %d\n", p.last)
	}
	return nil
}
