// Package provision is agentd provision.
package provision

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/setup"
)

// Command is agentd provision.
func Command(a *cli.App) *cobra.Command {
	var index bool
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Make the streams and consumers that the configuration needs",
		Long: "provision makes the broker match the configuration and prints what it changed. It may be repeated, and removes\n" +
			"nothing. It needs the right to administer JetStream, which workers and services then do without.",
		Example: "  NATS_URL=nats://nats:4222 agentd provision",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.WithAgents()
			if err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			changes := []broker.Change{}
			err = c.Permitted(cmd.Context(), func(ctx context.Context) error {
				made, err := provision(ctx, a, c, index)
				changes = append(changes, made...)
				return err
			})
			if err == nil || len(changes) > 0 {
				err = errors.Join(err, printChanges(a, changes))
			}
			return c.CloseAfter(err)
		},
	}
	cmd.Flags().BoolVar(&index, "index", false, "also make the index of runs, which workers fill from then on")
	return cmd
}

// provision also makes what the services need whose contracts are in the registry. The registry may be one of the things
// that are made, so contracts that it does not have yet are not error.
func provision(ctx context.Context, a *cli.App, c *cli.Client, index bool) ([]broker.Change, error) {
	plan := func() broker.Plan {
		p := setup.Plan(c.Config)
		p.Index = index
		return p
	}
	changes, err := c.Provision(ctx, plan())
	if err != nil || len(c.Config.References) == 0 {
		return changes, err
	}
	missing, err := setup.LookUp(ctx, c.Registry(), c.Config)
	if err != nil {
		return changes, err
	}
	for _, f := range missing {
		fmt.Fprintf(a.Err, "%s\n  its consumer is not made; publish the contract and run the command again\n", f)
	}
	more, err := c.Provision(ctx, plan())
	return append(changes, more...), err
}

func printChanges(a *cli.App, changes []broker.Change) error {
	return a.Print(changes, func(w io.Writer) error {
		for _, c := range changes {
			fmt.Fprintf(w, "%s %s %s\n", c.Action, c.Kind, c.Name)
		}
		if len(changes) == 0 {
			fmt.Fprintln(w, "nothing to change")
		}
		return nil
	})
}
