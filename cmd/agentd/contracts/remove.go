package contracts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/contracts"
	"agentd/internal/outbox"
	"agentd/internal/show"
	"agentd/sdk"
)

func removeCommand(a *cli.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove TYPE@VERSION",
		Short: "Take a version back from the registry",
		Long: "remove takes a version back and answers the calls with it that are open: each ends with the error contract_missing,\n" +
			"and its run goes on. Agents that have it pinned make no further call with it. Without --yes it only says which runs\n" +
			"it concerns, as far as that can be seen. What was removed can be published again with the same content.",
		Example:           "  agentd contracts remove airline.book@1.2.0 --yes",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeContracts(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithRegistry(cmd.Context(), func(c *cli.Client, r broker.Registry) error {
				return remove(cmd.Context(), a, c, r, args[0], yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// removal is what removing a version concerns.
type removal struct {
	Type    string `json:"type"`
	Version string `json:"version"`
	Removed bool   `json:"removed"`
	// Calls are those that were open.
	Calls []openCall `json:"calls"`
}

type openCall struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
	Call  string `json:"call"`
	// Answered says that the call was ended by the removal.
	Answered bool `json:"answered"`
	// meanwhile says that somebody else was quicker.
	meanwhile bool
}

func remove(ctx context.Context, a *cli.App, c *cli.Client, r broker.Registry, ref string, yes bool) error {
	p, err := removable(ctx, r, ref)
	if err != nil {
		return err
	}
	dataschema := sdk.SchemaRef(p.Contract.URI, p.Version)
	result := removal{Type: p.Contract.Type, Version: p.Version, Removed: p.Removed, Calls: []openCall{}}
	if yes {
		// First: what is called from now on is refused by the workers that see it.
		if _, err := r.Remove(ctx, p.Contract.Type, p.Version); err != nil {
			return err
		}
		result.Removed = true
	}
	open, err := c.OpenCalls(ctx, p.Contract.Type, dataschema)
	if err != nil {
		return removedAllTheSame(result, err)
	}
	for _, call := range open {
		one := openCall{Agent: call.Event.Agent, Run: call.Event.Subject, Call: call.Call}
		if yes {
			if one.Answered, err = withdraw(ctx, c, call, p.Contract.URI); err != nil {
				return removedAllTheSame(result, err)
			}
			one.meanwhile = !one.Answered
		}
		result.Calls = append(result.Calls, one)
	}
	if err := a.Print(result, result.write); err != nil || yes {
		return err
	}
	return cli.Usage(errors.New("nothing was done; repeat the command with --yes to do it"))
}

// removedAllTheSame says what is left to do when open calls could not be ended.
func removedAllTheSame(r removal, err error) error {
	if !r.Removed {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "version %s of %s is removed, but its open calls could not all be ended; "+
		"they end when they are answered or due", r.Version, r.Type).WithCause(err)
}

// removable finds the version that TYPE@VERSION names.
func removable(ctx context.Context, r broker.Registry, ref string) (contracts.Published, error) {
	name, version := splitReference(ref)
	if version == "" {
		return contracts.Published{}, cli.Usagef("%q: want TYPE@VERSION, such as airline.book@1.2.0", ref)
	}
	state, err := r.Read(ctx)
	if err != nil {
		return contracts.Published{}, err
	}
	p, ok := state.Version(name, version)
	if ok {
		return p, nil // also one that is removed: its calls may still be open
	}
	if _, err := state.Resolve(name, version); err != nil {
		return p, err
	}
	return p, cli.Usagef("%q: %s is a range; name the exact version to remove", ref, version)
}

// withdraw ends a call of the contract with that uri with an error, unless somebody answered it meanwhile. To do it again is
// harmless.
func withdraw(ctx context.Context, c *cli.Client, call broker.OpenCall, uri string) (bool, error) {
	errorSchema := sdk.SchemaRef(uri, contracts.Wildcard)
	m, err := outbox.Withdrawn(c.Subjects(), call.Address, call.Event, errorSchema, cli.Source)
	if err != nil {
		return false, err
	}
	err = c.Publish(ctx, m.Subject, m.Event)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return false, nil
	}
	return err == nil, err
}

func (r removal) write(w io.Writer) error {
	if len(r.Calls) == 0 {
		fmt.Fprintf(w, "no open call with %s@%s was found\n", r.Type, r.Version)
	}
	runs := map[string]bool{}
	var agents []string
	for _, c := range r.Calls {
		note := ""
		switch {
		case c.Answered:
			note = "  ended with contract_missing"
		case c.meanwhile:
			note = "  was answered meanwhile"
		}
		fmt.Fprintf(w, "agent %s  run %s  call %s%s\n", show.Name(c.Agent), show.Name(c.Run), show.Name(c.Call), note)
		runs[c.Run] = true
		if !slices.Contains(agents, c.Agent) {
			agents = append(agents, c.Agent)
		}
	}
	if len(r.Calls) > 0 {
		fmt.Fprintf(w, "%s of %s of %s\n", show.Count(len(r.Calls), "open call"), show.Count(len(runs), "run"), show.Visible(strings.Join(agents, ", ")))
	}
	if r.Removed {
		fmt.Fprintf(w, "%s@%s is removed\n", r.Type, r.Version)
	}
	return nil
}
