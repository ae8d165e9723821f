// Package agents is agentd agents.
package agents

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

// Command is agentd agents.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List, pause and resume agents",
	}
	cmd.AddCommand(listCommand(a), pauseCommand(a), resumeCommand(a))
	return cmd
}

// row is an agent in the list. Times are in milliseconds.
type row struct {
	Agent  string `json:"agent"`
	Paused bool   `json:"paused"`
	// Drain says that runs which have begun go on, and For how long the pause still lasts; 0 has no end.
	Drain bool  `json:"drain,omitempty"`
	For   int64 `json:"for,omitempty"`
	// Unserved says that no worker seems to take the agent's messages.
	Unserved bool `json:"unserved,omitempty"`
	// New is how many init events wait, and Waiting how many runs do because the agent is, or was, paused.
	New     int64 `json:"new"`
	Waiting int   `json:"waiting"`
}

func listCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the agents of the configuration: which are paused or have no worker, and how many runs wait",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.WithAgents()
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), a, func(ctx context.Context, c *cli.Client) error {
				rows, err := lookAtAll(ctx, c, setup.AgentNames(cfg))
				if err != nil {
					return err
				}
				return a.Print(rows, func(w io.Writer) error { return write(w, rows, cli.Columns(w)) })
			})
		},
	}
}

// withClient calls do with a connection. What the server refuses to this user is said at once.
func withClient(ctx context.Context, a *cli.App, do func(context.Context, *cli.Client) error) error {
	return a.WithClient(ctx, func(c *cli.Client) error {
		return c.Permitted(ctx, func(ctx context.Context) error { return do(ctx, c) })
	})
}

// atOnce is how many agents are looked at at a time: it takes half a second to see that one has no worker.
const atOnce = 32

func lookAtAll(ctx context.Context, c *cli.Client, agents []string) ([]row, error) {
	rows := make([]row, len(agents))
	var looking errgroup.Group
	looking.SetLimit(atOnce)
	for i, agent := range agents {
		looking.Go(func() (err error) {
			rows[i], err = look(ctx, c, agent)
			return err
		})
	}
	return rows, looking.Wait()
}

func look(ctx context.Context, c *cli.Client, agent string) (row, error) {
	p, err := c.AgentPause(ctx, agent)
	if err != nil {
		return row{}, err
	}
	backlog, err := c.Backlog(ctx, streams.AgentConsumers(agent)[0])
	if err != nil {
		return row{}, err
	}
	waiting, err := c.ParkedRuns(ctx, wire.KeyAgentPaused, agent)
	if err != nil {
		return row{}, err
	}
	unserved, err := c.Unread(ctx, streams.AgentConsumers(agent)...)
	if err != nil {
		return row{}, err
	}
	r := row{Agent: agent, Paused: p.Paused(), Drain: p.Drain, Unserved: unserved, New: backlog.Pending, Waiting: len(waiting)}
	if p.For != broker.Endless {
		r.For = p.For.Milliseconds()
	}
	return r, nil
}

func write(w io.Writer, rows []row, columns int) error {
	var t show.Table
	t.Row("AGENT", "STATE")
	for _, r := range rows {
		t.Row(show.Name(r.Agent), r.text())
	}
	return t.Write(w, "", columns)
}

func (r row) text() string {
	text := "serves"
	switch {
	case r.Paused && r.For > 0:
		text = "paused for another " + (time.Duration(r.For) * time.Millisecond).Round(time.Second).String()
	case r.Paused:
		text = "paused"
	}
	switch {
	case r.Unserved && r.Paused:
		text += ", no worker"
	case r.Unserved:
		text = "no worker"
	}
	var runs []string
	if r.New > 0 {
		runs = append(runs, show.Count(int(r.New), "run")+" not begun")
	}
	switch {
	case r.Paused && r.Drain && r.New > 0:
		runs = append(runs, "others go on")
	case r.Paused && r.Drain:
		runs = append(runs, "runs that have begun go on")
	case r.Waiting == 1:
		runs = append(runs, "1 waits")
	case r.Waiting > 1:
		runs = append(runs, fmt.Sprintf("%d wait", r.Waiting))
	}
	if len(runs) == 0 {
		return text
	}
	return text + ": " + strings.Join(runs, ", ")
}

func pauseCommand(a *cli.App) *cobra.Command {
	var p broker.AgentPause
	cmd := &cobra.Command{
		Use:   "pause AGENT",
		Short: "Let an agent's runs do nothing more until it is resumed",
		Long: "pause lets no run of an agent begin, and has those that have begun wait at their next step: what is under way is finished,\n" +
			"and a reply of the model is kept. Answers, decisions, messages and cancels reach them, and their deadlines go on.",
		Example:           "  agentd agents pause travel.desk\n  agentd agents pause travel.desk --drain --for 2h",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.For <= 0 {
				return cli.Usagef("--for %s: want a duration above 0", p.For)
			}
			return withClient(cmd.Context(), a, func(ctx context.Context, c *cli.Client) error {
				return pause(ctx, a, c, args[0], p)
			})
		},
	}
	cmd.Flags().BoolVar(&p.Drain, "drain", false, "let runs that have begun go on to their end")
	cli.DurationVar(cmd.Flags(), &p.For, "for", broker.Endless, "how long")
	cmd.Flags().Lookup("for").DefValue = ""
	return cmd
}

func pause(ctx context.Context, a *cli.App, c *cli.Client, agent string, p broker.AgentPause) error {
	if err := c.CheckAgent(ctx, agent); err != nil {
		return err
	}
	if err := c.PauseAgent(ctx, agent, p); err != nil {
		return err
	}
	return printRow(ctx, a, c, agent)
}

func printRow(ctx context.Context, a *cli.App, c *cli.Client, agent string) error {
	r, err := look(ctx, c, agent)
	if err != nil {
		return err
	}
	return a.Print(r, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, r.text())
		return err
	})
}

// resumed is an agent that was resumed, and how many of its runs were woken.
type resumed struct {
	Agent string `json:"agent"`
	Runs  int    `json:"runs"`
}

func resumeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "resume AGENT",
		Short: "Let an agent's runs go on that was paused",
		Long: "resume ends a pause, and wakes the runs that waited for that, 20 a second. Repeat it when it was interrupted: runs that it did\n" +
			"not wake look by themselves after an hour.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteAgents,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withClient(cmd.Context(), a, func(ctx context.Context, c *cli.Client) error {
				return resume(ctx, a, c, args[0])
			})
		},
	}
}

func resume(ctx context.Context, a *cli.App, c *cli.Client, agent string) error {
	if err := c.CheckAgent(ctx, agent); err != nil {
		return err
	}
	woken, err := c.ResumeAgent(ctx, agent)
	if err != nil {
		return fmt.Errorf("%w; run the command again", err)
	}
	return a.Print(resumed{agent, woken}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "resumed, and %s woken\n", show.Count(woken, "run"))
		return err
	})
}
