package approvals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/internal/show"
)

func watchCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Print what waits for a person, and what changes, until it is interrupted",
		Long: "watch prints a line for everything that waits for a person, and for every change, with -o json as an object, until it is\n" +
			"interrupted. Decide and answer in another terminal: each line has the ID.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				return watch(cmd.Context(), a, d)
			})
		},
	}
}

// watched is a desk.Desk as far as it is watched.
type watched interface {
	List() []requests.Item
	Number() uint64
	Changes(ctx context.Context, after uint64) (changes []requests.Change, ok bool, err error)
	Failed() <-chan error
}

// watch prints changes until ctx ends, beginning with what is open. It fails when the desk can read no more.
func watch(ctx context.Context, a *cli.App, d watched) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case err := <-d.Failed():
			stop(&failure{err})
		case <-ctx.Done():
		}
	}()
	after := d.Number()
	for _, i := range d.List() {
		printChange(a, requests.Change{Kind: requests.ChangeAdded, Item: i})
	}
	for {
		changes, ok, err := d.Changes(ctx, after)
		if failed, is := errors.AsType[*failure](context.Cause(ctx)); is {
			return fmt.Errorf("what waits for people can be read no more: %w", failed.error)
		}
		if err != nil {
			return nil // it was interrupted
		}
		if !ok {
			fmt.Fprintln(a.Err, "agentd: there were more changes than can be shown")
			after = d.Number()
		}
		for _, c := range changes {
			printChange(a, c)
			after = c.Number
		}
	}
}

// failure is why a desk has ended by itself.
type failure struct{ error }

func printChange(a *cli.App, c requests.Change) {
	if a.Output == cli.OutputJSON {
		_ = cli.WriteJSON(a.Out, c, "") // nowhere else to show it
		return
	}
	i := &c.Item
	text := fmt.Sprintf("%s  %s", show.What(i), show.Line(i.Summary, show.LineMax))
	switch {
	case c.Kind == requests.ChangeRemoved:
		text = show.What(i) + "  " + string(c.Reason)
	case c.Kind == requests.ChangeDecided && len(i.Sent) > 0:
		last := i.Sent[len(i.Sent)-1]
		text = fmt.Sprintf("%s  %s %s", show.What(i), last.Decision, show.Line(last.Who+" "+last.Refused, show.LineMax))
	}
	begin := fmt.Sprintf("%s  %-8s %s", time.Now().Format(time.TimeOnly), c.Kind, requests.ShortID(i.ID))
	agent, run := show.Name(i.Agent), show.Name(i.Run)
	if columns := cli.Columns(a.Out); columns > 0 && show.Width(begin+agent+run+text)+3*len("  ") > columns {
		agent, run = show.Middle(agent, mostName), show.Middle(run, mostName)
	}
	fmt.Fprintf(a.Out, "%s  %s  %s  %s\n", begin, agent, run, text)
}

// mostName is what a name gets where a line is wider than the terminal, in columns.
const mostName = 24
