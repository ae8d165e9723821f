// Package provision is agentd provision.
package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/provision"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
)

// Command is agentd provision.
func Command(a *cli.App) *cobra.Command {
	var index, dry bool
	var partitions int
	var anew rebuilding
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "Make the streams and consumers that the configuration needs",
		Long: "provision makes the broker match the configuration and prints what it changed. It may be repeated, and removes\n" +
			"nothing. It needs the right to administer JetStream, which workers and services then do without.",
		Example: "  NATS_URL=nats://nats:4222 agentd provision\n  agentd provision --dry-run\n  agentd provision --rebuild OUT,DONE,TMR",
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
			if partitions != 0 {
				cfg.NATS.Partitions = partitions
			}
			changes := []provision.Change{}
			err = c.Permitted(cmd.Context(), func(ctx context.Context) error {
				rebuilt, err := anew.rebuild(ctx, a, c, dry)
				changes = append(changes, rebuilt...)
				if err != nil || dry && len(anew.zones) > 0 {
					return err
				}
				made, err := apply(ctx, a, c, index, dry)
				changes = append(changes, made...)
				return err
			})
			if cli.NotPermitted(err) {
				err = sdk.Errorf(sdk.CodePermissionDenied, "this user may not administer JetStream, as provision does; connect as the operator").WithCause(err)
			}
			if err == nil || len(changes) > 0 {
				err = errors.Join(err, printChanges(a, changes, dry))
			}
			return c.CloseAfter(err)
		},
	}
	cmd.Flags().BoolVar(&index, "index", false, "also make the index of runs, which workers fill from then on")
	cli.CountVar(cmd.Flags(), &partitions, "partitions", 0, 1, "how many streams journals, timers, calls and answers are each divided into, for ever; in place of nats.partitions")
	cmd.Flags().StringSliceVar(&anew.zones, "rebuild", nil, "while no worker runs, make these streams anew whose persistence or replicas the server does not change, with what is in them: OUT,DONE,TMR")
	cmd.Flags().StringVar(&anew.dir, "backup", "agentd-rebuild", "the folder that has the streams' backups until they are made anew")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be changed; with --rebuild, what would be rebuilt")
	return cmd
}

// apply also makes what the services need whose contracts are in the registry. The registry may be one of the things
// that are made, so contracts that it does not have yet are not error.
func apply(ctx context.Context, a *cli.App, c *cli.Client, index, dry bool) ([]provision.Change, error) {
	do := provision.Apply
	if dry {
		do = provision.Planned
	}
	plan := func() provision.Plan {
		p := setup.Plan(c.Config)
		p.Index = index
		return p
	}
	changes, err := do(ctx, c, plan())
	if err != nil || len(c.Config.References) == 0 {
		return changes, err
	}
	missing, err := setup.LookUp(ctx, c.Registry(), c.Config)
	if dry && errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		fmt.Fprintf(a.Err, "%s\n  it may be one of the things that would be made: what services in it need is not told\n", show.Problem(err))
		return changes, nil
	}
	if err != nil {
		return changes, err
	}
	for _, f := range missing {
		fmt.Fprintf(a.Err, "%s\n  its consumer is not made; publish the contract and run the command again\n", f)
	}
	more, err := do(ctx, c, plan())
	for _, change := range more {
		if !slices.Contains(changes, change) { // a dry run finds again what it has not made
			changes = append(changes, change)
		}
	}
	return changes, err
}

func printChanges(a *cli.App, changes []provision.Change, dry bool) error {
	would := ""
	if dry {
		would = "would be "
	}
	return a.Print(changes, func(w io.Writer) error {
		for _, c := range changes {
			fmt.Fprintf(w, "%s%s %s %s", would, c.Action, c.Kind, c.Name)
			if c.What != "" {
				fmt.Fprintf(w, " (%s)", c.What)
			}
			fmt.Fprintln(w)
		}
		if len(changes) == 0 {
			fmt.Fprintln(w, "nothing to change")
		}
		return nil
	})
}
