package approvals

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/buckets"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
)

// withGrants calls do with the grants that are wider than a run. What the server refuses to this user is said at once.
func withGrants(ctx context.Context, a *cli.App, do func(context.Context, buckets.Grants, []sdk.KeptGrant) error) error {
	return a.WithClient(ctx, func(c *cli.Client) error {
		return c.Permitted(ctx, func(ctx context.Context) error {
			grants := buckets.GrantsOf(c.Conn)
			kept, err := grants.List(ctx)
			if err != nil {
				return err
			}
			return do(ctx, grants, kept)
		})
	})
}

func grantsCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "grants",
		Short: "List what is allowed beyond single runs",
		Long: "grants lists what people have allowed in the scope principal+agent+tool: calls of a tool by an agent, in all runs that one\n" +
			"principal starts. Its ID is that of the request that was decided so. To take one back: agentd approvals revoke ID",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withGrants(cmd.Context(), a, func(_ context.Context, _ buckets.Grants, kept []sdk.KeptGrant) error {
				return a.Print(append([]sdk.KeptGrant{}, kept...), func(w io.Writer) error { return show.Grants(w, kept, cli.Columns(w)) })
			})
		},
	}
}

func revokeCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Take back what is allowed beyond single runs",
		Long:  "revoke removes a grant of the list of: agentd approvals grants\nFrom then on people are asked again. Calls that were made under it stay made.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withGrants(cmd.Context(), a, func(ctx context.Context, grants buckets.Grants, kept []sdk.KeptGrant) error {
				g, err := findGrant(a, kept, args[0])
				if err != nil {
					return err
				}
				found, err := grants.Revoke(ctx, g.Principal, g.Agent, g.Tool, g.ID)
				if err != nil {
					return err
				}
				if !found {
					return sdk.Errorf(sdk.CodeConflict, "the grant is gone already")
				}
				return a.Print(g, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s may not call %s for %s any more without being asked\n", show.Line(g.Agent, 60), show.Line(g.Tool, 60), show.Line(g.Principal, 60))
					return err
				})
			})
		},
	}
}

// findGrant is the one grant whose id, or the part of it that the list shows, begins so.
func findGrant(a *cli.App, kept []sdk.KeptGrant, id string) (sdk.KeptGrant, error) {
	var found []sdk.KeptGrant
	for _, g := range kept {
		if id != "" && (strings.HasPrefix(g.ID, id) || strings.HasPrefix(requests.HashOf(g.ID), id)) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 0:
		return sdk.KeptGrant{}, sdk.Errorf(sdk.CodeUnknownRun, "there is no grant %q; see: %s", id, a.CommandLine("approvals", "grants"))
	case 1:
		return found[0], nil
	}
	return sdk.KeptGrant{}, sdk.Errorf(sdk.CodeUnknownRun, "the ids of %d grants begin with %q; write more of it", len(found), id)
}
