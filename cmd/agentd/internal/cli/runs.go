package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/runner"
	"agentd/internal/setup"
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
	missing := func(ctx context.Context, name string) error { return c.Unknown(ctx, "", name) }
	if NotPermitted(err) {
		var found find.Found
		found, err = c.shownRuns(ctx, f, 0)
		runs, missing = found.Runs, func(ctx context.Context, name string) error { return c.Untold(ctx, "", name) }
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(runs, func(r find.Run) bool { return r.Run == name }) {
			return nil, missing(ctx, name)
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
		return c.Deliveries(ctx, streams.Done, []string{filter}, func(d broker.Delivery) bool {
			address, err := c.Subjects().Parse(d.Subject())
			event, unread := wire.DecodeEvent(d.Headers(), d.Data())
			if err == nil && unread == nil {
				if row, refused := show.RefusedRow(c.agentNamed(address.Agent, event.Type), event, d.Received()); refused {
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

// agentNamed is the name of the agent with a subject token: that of a configured one, else of the contract of what it publishes, which is the agent's
// where it has none of its own. What neither says stays the token.
func (c *Client) agentNamed(token, eventType string) string {
	ofType := strings.TrimSuffix(strings.TrimPrefix(eventType, "sys."), ".error")
	for _, name := range append(setup.AgentNames(c.Config), ofType) {
		if wire.NameToken(name) == token {
			return name
		}
	}
	return token
}

// shownRuns are the runs of the configured agents that workers show this user.
func (c *Client) shownRuns(ctx context.Context, f index.Filter, limit int) (found find.Found, err error) {
	if f.Uses(find.Untold...) {
		return found, sdk.Errorf(sdk.CodePermissionDenied,
			"this user may not read the store of runs, and workers do not tell what the filter asks for; ask for the status, agent, reason or tags, or use the operator's user")
	}
	if len(c.Config.Agents) == 0 {
		return found, sdk.Errorf(sdk.CodeConfig, "this user may not read the store of runs, and no agents are configured whose workers could be asked; name their configuration with --config")
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
		return core.Entry{}, sdk.Errorf(sdk.CodeUnknownRun, "the store has no run %q", run)
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
			return c.Unknown(ctx, "", run)
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
