package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// RunFilter selects runs.
type RunFilter struct {
	Status, Agent string
	Limit         int
}

// Runs reads all runs that the flags ask for: from the store or, where this user may not read it, those that workers show it.
func (c *Client) Runs(ctx context.Context, f RunFilter) (rows []show.RunRow, err error) {
	if f.Status == string(show.Refused) {
		return c.refusedRuns(ctx, f)
	}
	err = c.Permitted(ctx, func(ctx context.Context) error {
		rows, err = c.storedRuns(ctx, f)
		return err
	})
	if NotPermitted(err) {
		return c.shownRuns(ctx, f)
	}
	return rows, err
}

func (c *Client) storedRuns(ctx context.Context, f RunFilter) ([]show.RunRow, error) {
	store, err := c.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	rows := []show.RunRow{}
	for cursor := ""; ; {
		page, next, err := store.Runs(ctx, cursor, state.MaxPage)
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		for _, stored := range page {
			row := show.RowOf(stored.Run.String(), stored.Last.Rev, stored.Last.Data)
			if (f.Status == "" || string(row.Status) == f.Status) && (f.Agent == "" || row.Agent == f.Agent) {
				rows = append(rows, row)
			}
		}
		if cursor = next; cursor == "" {
			return rows, store.Close()
		}
	}
}

// refusedRuns are those that never began: the end of each says why.
func (c *Client) refusedRuns(ctx context.Context, f RunFilter) ([]show.RunRow, error) {
	rows, agent := []show.RunRow{}, "*"
	if f.Agent != "" {
		agent = wire.NameToken(f.Agent)
	}
	filter := c.Subjects().Root() + "." + string(wire.KindDone) + "." + agent + ".>"
	err := c.Permitted(ctx, func(ctx context.Context) error {
		return c.Deliveries(ctx, broker.ZoneDone, []string{filter}, func(d broker.Delivery) bool {
			address, err := c.Subjects().Parse(d.Subject())
			event, unread := wire.DecodeEvent(d.Headers(), d.Data())
			if err == nil && unread == nil {
				if row, refused := show.RefusedRow(address.Agent, event, d.Received()); refused {
					rows = append(rows, row)
				}
			}
			return true
		})
	})
	return rows, err
}

// Unknown is the error about a run that no store or worker knows: it may have ended, or its init event may have been refused.
func (c *Client) Unknown(ctx context.Context, run string) error {
	for i := range c.Config.Agents {
		agent := c.Config.Agents[i].Name
		event, err := c.LastEnd(ctx, agent, wire.NewRunKey(run))
		if err != nil {
			continue // it has none, or this user may not look
		}
		if row, refused := show.RefusedRow(agent, event, 0); !refused {
			return sdk.Errorf(sdk.CodeUnknownRun,
				"run %q has ended (%v), and its journal is lost, or was removed after its time; if it was lost, restore the store of runs",
				row.Run, event.Extensions[wire.TerminationReason])
		}
		if problem, failed := show.ProblemIn(event.Type, event.Data); failed {
			return sdk.Errorf(sdk.CodeUnknownRun, "run %q never began; its init event was refused: %s: %s", run, problem.Code, problem.ErrorMessage)
		}
	}
	return notThere(run)
}

func notThere(run string) error {
	return sdk.Errorf(sdk.CodeUnknownRun, "run %q does not exist; see: agentd runs list", run)
}

// missing is Unknown for a user who may read the store, which does not have the run: the broker may know that the run had begun.
func (c *Client) missing(ctx context.Context, run string) error {
	unknown := c.Unknown(ctx, run)
	if unknown.Error() != notThere(run).Error() {
		return unknown
	}
	timer := c.Subjects().Root() + "." + string(wire.KindTimer) + ".*." + wire.NewRunKey(run).String()
	armed, err := c.SubjectsUnder(ctx, broker.ZoneTimer, timer)
	if err == nil && len(armed) > 0 {
		return sdk.Errorf(sdk.CodeUnknownRun,
			"the journal of run %q is lost: the run had begun, and nobody can go on with it; restore the store of runs, or end such runs: agentd reconcile", run)
	}
	return errors.Join(unknown, err)
}

// shownRuns are the runs of the configured agents that workers show this user.
func (c *Client) shownRuns(ctx context.Context, f RunFilter) ([]show.RunRow, error) {
	rows, asking := []show.RunRow{}, c.Speaking(Source)
	for i := range c.Config.Agents {
		agent := c.Config.Agents[i].Name
		if f.Agent != "" && f.Agent != agent {
			continue
		}
		for status, err := range asking.List(ctx, agent, wire.Status(f.Status)) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, show.RowOfStatus(status))
		}
	}
	return rows, nil
}

// Head reads the last entry of a run.
func Head(ctx context.Context, store runner.Store, run string) (core.Entry, error) {
	last, err := store.Head(ctx, wire.NewRunKey(run))
	if errors.Is(err, runner.ErrNotFound) {
		return core.Entry{}, notThere(run)
	}
	if err != nil {
		return core.Entry{}, err
	}
	return core.DecodeEntry(last.Data)
}

// WithRun calls do with the connection, the store and the last entry of a run.
func (a *App) WithRun(ctx context.Context, run string, do func(*Client, runner.Store, core.Entry) error) error {
	return a.WithStore(ctx, func(c *Client, store runner.Store) error {
		var last core.Entry
		err := c.Permitted(ctx, func(ctx context.Context) (err error) {
			last, err = Head(ctx, store, run)
			return err
		})
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
			return c.missing(ctx, run)
		}
		if err != nil {
			return err
		}
		return do(c, store, last)
	})
}

// CompleteRuns completes the names of runs.
func (a *App) CompleteRuns(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), Patience)
	defer cancel()
	var names []string
	err := a.WithClient(ctx, func(c *Client) error {
		rows, err := c.Runs(ctx, RunFilter{})
		for i := range rows {
			names = append(names, rows[i].Run)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
