package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Newest finds the runs that changed last among those that f selects, limit at most (0: all): by the index of runs, in the store or, where
// this user may read neither, among those that workers show it.
func (c *Client) Newest(ctx context.Context, f index.Filter, limit int) (found find.Found, err error) {
	err = c.Permitted(ctx, func(ctx context.Context) error {
		found, err = withFinder(ctx, c, func(finder find.Finder) (find.Found, error) { return finder.Newest(ctx, f, limit) })
		return err
	})
	if NotPermitted(err) {
		return c.shownRuns(ctx, f, limit)
	}
	return found, err
}

// Named are the runs with these names, in that order.
func (c *Client) Named(ctx context.Context, names []string) (runs []find.Run, err error) {
	var f index.Filter
	for _, name := range names {
		f.Terms = append(f.Terms, index.Term{Key: index.KeyRun, With: index.Is, Value: name})
	}
	err = c.Permitted(ctx, func(ctx context.Context) error {
		runs, err = withFinder(ctx, c, func(finder find.Finder) (runs []find.Run, err error) {
			for _, name := range names {
				run, there, err := finder.Current(ctx, index.Document{Run: name}, index.Filter{})
				if err != nil {
					return nil, err
				}
				if there {
					runs = append(runs, run)
				}
			}
			return runs, nil
		})
		return err
	})
	if NotPermitted(err) {
		var found find.Found
		found, err = c.shownRuns(ctx, f, 0)
		runs = found.Runs
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(runs, func(r find.Run) bool { return r.Run == name }) {
			return nil, c.Unknown(ctx, name)
		}
	}
	return runs, nil
}

// withFinder calls do with what finds runs.
func withFinder[T any](ctx context.Context, c *Client, do func(find.Finder) (T, error)) (result T, err error) {
	store, err := c.OpenStore(ctx)
	if err != nil {
		return result, err
	}
	result, err = do(find.Finder{Conn: c.Conn, Store: store})
	return result, errors.Join(err, store.Close())
}

// RefusedRuns are those that never began, of an agent or of all (""): the end of each says why.
func (c *Client) RefusedRuns(ctx context.Context, agent string) ([]show.RunRow, error) {
	rows := []show.RunRow{}
	token := "*"
	if agent != "" {
		token = wire.NameToken(agent)
	}
	filter := c.Subjects().Root() + "." + string(wire.KindDone) + "." + token + ".>"
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
	slices.SortFunc(rows, func(x, y show.RunRow) int {
		return cmp.Or(cmp.Compare(y.Updated, x.Updated), cmp.Compare(x.Run, y.Run))
	})
	return rows, err
}

// Unknown is the error about a run that no store or worker knows.
func (c *Client) Unknown(ctx context.Context, run string) error {
	return cmp.Or(c.Gone(ctx, run), notThere(run))
}

// Gone is why a run that no store or worker knows does not begin any more: it has ended, its init event was refused, or its journal is lost.
// Nil is a run that may begin yet.
func (c *Client) Gone(ctx context.Context, run string) error {
	for i := range c.Config.Agents {
		agent := c.Config.Agents[i].Name
		event, ended, err := c.Ended(ctx, agent, wire.NewRunKey(run))
		if err == nil && !ended || NotPermitted(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for the end of run %q: %w", run, err)
		}
		if problem := Refused(agent, event); problem != nil {
			return sdk.Errorf(sdk.CodeUnknownRun, "%s", problem.Message)
		}
		return sdk.Errorf(sdk.CodeUnknownRun,
			"run %q has ended (%v), and its journal is lost, or was removed after its time; if it was lost, restore the store of runs",
			event.Subject, event.Extensions[wire.TerminationReason])
	}
	return c.lost(ctx, run)
}

// Refused is why a run never began, by the event that says so; nil is an event of one that began.
func Refused(agent string, end wire.Event) *sdk.Error {
	if _, refused := show.RefusedRow(agent, end, 0); !refused {
		return nil
	}
	problem, _ := wire.ProblemIn(end.Type, end.Data)
	err := sdk.Errorf(problem.Code, "run %q never began; its init event was refused: %s: %s", end.Subject, problem.Code, problem.ErrorMessage)
	err.Faults = problem.Faults
	return err
}

// lost is the error about a run without a journal that had begun, as the broker knows by its timer.
func (c *Client) lost(ctx context.Context, run string) error {
	timer := c.Subjects().Root() + "." + string(wire.KindTimer) + ".*." + wire.NewRunKey(run).String()
	var armed []string
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		armed, err = c.SubjectsUnder(ctx, broker.ZoneTimer, timer)
		return err
	})
	if err != nil && !NotPermitted(err) {
		return fmt.Errorf("look for the timer of run %q: %w", run, err)
	}
	if len(armed) > 0 {
		return sdk.Errorf(sdk.CodeUnknownRun,
			"the journal of run %q is lost: the run had begun, and nobody can go on with it; restore the store of runs, or end such runs: agentd reconcile", run)
	}
	return nil
}

// Ended is the last terminal event of a run, if there is one.
func (c *Client) Ended(ctx context.Context, agent string, run wire.RunKey) (event wire.Event, ended bool, err error) {
	event, err = c.LastEnd(ctx, agent, run)
	if errors.Is(err, broker.ErrNotStored) {
		return wire.Event{}, false, nil
	}
	return event, err == nil, err
}

// NotBegun reports whether who asks workers for a run is told what may pass: that it is not there, or that no worker is.
func NotBegun(err error) bool {
	return errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) || errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable})
}

// Unbegun says why a run whose init event is stored has not begun; asked is what who asks workers for the run was told.
func (c *Client) Unbegun(ctx context.Context, agent string, asked error) string {
	var pause broker.AgentPause
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		pause, err = c.AgentPause(ctx, agent)
		return err
	})
	switch {
	case err == nil && pause.Paused(): // not all may look
		return show.Line(agent, show.LineMax) + " is paused; the run begins when it is resumed: agentd agents resume " + show.ShellQuote(agent)
	case errors.Is(asked, &sdk.Error{Code: sdk.CodeUnavailable}):
		return show.NoWorker(agent) + c.Meant(agent)
	}
	return "the run has not begun yet; its event is stored, and handled when a worker has time for it"
}

func notThere(run string) error {
	return sdk.Errorf(sdk.CodeUnknownRun, "run %q does not exist, or no worker has begun it yet; see: agentd runs list", run)
}

// shownRuns are the runs of the configured agents that workers show this user.
func (c *Client) shownRuns(ctx context.Context, f index.Filter, limit int) (found find.Found, err error) {
	if f.Uses(find.Untold...) {
		return found, sdk.Errorf(sdk.CodePermissionDenied,
			"this user may not read the store of runs, and workers do not tell what the filter asks for; ask for the status, agent, reason or tags, or use the operator's user")
	}
	asking, now := c.Speaking(Source), time.UnixMilli(c.Now())
	for i := range c.Config.Agents {
		for status, err := range asking.List(ctx, c.Config.Agents[i].Name, "") {
			if err != nil {
				return find.Found{}, err
			}
			if d := find.OfStatus(status); f.Matches(&d, now) {
				found.Runs = append(found.Runs, find.Run{Document: d, Row: show.RowOfStatus(status)})
			}
		}
	}
	found.Keep(limit)
	return found, nil
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
			return c.Unknown(ctx, run)
		}
		if err != nil {
			return err
		}
		return do(c, store, last)
	})
}

// mostCompleted is how many names of runs are offered to complete one.
const mostCompleted = 200

// CompleteRuns completes the names of runs.
func (a *App) CompleteRuns(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), Patience)
	defer cancel()
	var names []string
	err := a.WithClient(ctx, func(c *Client) error {
		begin := index.Term{Key: index.KeyRun, With: index.Is, Value: begun, Prefix: true}
		found, err := c.Newest(ctx, index.Filter{Terms: []index.Term{begin}}, mostCompleted)
		for i := range found.Runs {
			names = append(names, found.Runs[i].Run)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
