package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, follow, steer and cancel runs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.runsListCommand(), a.runsShowCommand(), a.runsFollowCommand(), a.runsSendCommand(), a.runsCancelCommand())
	return cmd
}

// runRow is a run in a list.
type runRow struct {
	Run    string      `json:"run"`
	Agent  string      `json:"agent"`
	Status core.Status `json:"status"`
	Reason core.Reason `json:"reason,omitempty"`
	Code   string      `json:"reason_code,omitempty"`
	// Updated is when the run's last entry was made, in Unix milliseconds.
	Updated  int64     `json:"updated"`
	Revision uint64    `json:"rev"`
	Waiting  []waiting `json:"waiting,omitempty"`
	// Purged is when the run's history was removed, in Unix milliseconds.
	Purged int64 `json:"purged,omitempty"`
}

// waiting is a call without an answer. Due is in Unix milliseconds.
type waiting struct {
	Call string `json:"call"`
	Tool string `json:"tool,omitempty"`
	Type string `json:"type"`
	Due  int64  `json:"due,omitempty"`
}

func waitingCalls(h *core.Head) []waiting {
	var calls []waiting
	for _, c := range h.Calls {
		// A call that is held is not made before its permission request, a call beside it, is decided.
		if !c.Closed() && c.Held == "" && h.Status == core.StatusWaiting {
			calls = append(calls, waiting{Call: c.ID, Tool: c.Tool, Type: c.Type, Due: c.Due})
		}
	}
	return calls
}

type listFlags struct {
	status, agent string
	limit         int
}

func (a *app) runsListCommand() *cobra.Command {
	var f listFlags
	statuses := []string{string(core.StatusRunning), string(core.StatusWaiting), string(core.StatusDone)}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, those that changed last first",
		Long: "list reads the store of runs, so it works without a worker. With the JetStream store it needs the right to read\n" +
			"the stream of journals.",
		Example: "  agentd runs list --status waiting\n  agentd runs list -o json | jq -r '.[].run'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.status != "" && !slices.Contains(statuses, f.status) {
				return &exitError{exitUsage, fmt.Errorf("--status %q: want %s", f.status, strings.Join(statuses, ", "))}
			}
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			return c.close(a.list(cmd.Context(), c, f))
		},
	}
	cmd.Flags().StringVar(&f.status, "status", "", "only runs that are running, waiting or done")
	cmd.Flags().StringVar(&f.agent, "agent", "", "only runs of this agent")
	cmd.Flags().IntVar(&f.limit, "limit", 50, "the most runs to list (0: all)")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func (a *app) list(ctx context.Context, c *client, f listFlags) error {
	rows, err := c.rows(ctx, f)
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(x, y runRow) int {
		return cmp.Or(cmp.Compare(y.Updated, x.Updated), cmp.Compare(x.Run, y.Run))
	})
	omitted := 0
	if f.limit > 0 && len(rows) > f.limit {
		omitted = len(rows) - f.limit
		rows = rows[:f.limit]
	}
	return a.print(rows, func(w io.Writer) error {
		if len(rows) == 0 {
			_, err := fmt.Fprintln(w, "no runs")
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "RUN\tAGENT\tSTATUS\tCHANGED\tWAITING FOR")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", clip(r.Run, 60), r.Agent, r.statusText(), ago(r.Updated), waitingText(r.Waiting))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if omitted > 0 {
			fmt.Fprintf(a.err, "%s more; see --limit\n", count(omitted, "run"))
		}
		return nil
	})
}

// rows reads all runs that the flags ask for.
func (c *client) rows(ctx context.Context, f listFlags) ([]runRow, error) {
	store, err := c.openStore(ctx)
	if err != nil {
		return nil, err
	}
	rows := []runRow{}
	for cursor := ""; ; {
		page, next, err := store.Runs(ctx, cursor, state.MaxPage)
		if err != nil {
			return nil, also(explainStore(err), store.Close())
		}
		for _, stored := range page {
			row := rowOf(stored)
			if (f.status == "" || string(row.Status) == f.status) && (f.agent == "" || row.Agent == f.agent) {
				rows = append(rows, row)
			}
		}
		if cursor = next; cursor == "" {
			return rows, store.Close()
		}
	}
}

// unreadable is the status of a run whose journal this version cannot read.
const unreadable core.Status = "unreadable"

func rowOf(stored runner.StoredRun) runRow {
	e, err := core.DecodeEntry(stored.Last.Data)
	if err != nil {
		return runRow{Run: stored.Run.String(), Status: unreadable, Revision: stored.Last.Rev}
	}
	row := runRow{
		Run: e.Head.Run, Agent: e.Head.Agent, Status: e.Head.Status, Reason: e.Head.Reason, Updated: e.At, Code: e.Head.ReasonCode,
		Revision: e.Rev, Waiting: waitingCalls(&e.Head),
	}
	if p := e.Head.Purged; p != nil {
		row.Purged, row.Revision = p.At, p.Rev
	}
	return row
}

func (r runRow) statusText() string {
	text := statusText(r.Status, r.Reason, r.Code)
	if r.Purged > 0 {
		text += ", history removed"
	}
	return text
}

// explainStore says what to do about a store that is not there.
func explainStore(err error) error {
	if strings.Contains(err.Error(), "stream not found") {
		return sdk.Errorf(sdk.CodeUnavailable, "the server has no stream of journals; run: agentd provision").WithCause(err)
	}
	return err
}

// statusText is the status with why the run ended: "done (quota: tokens)".
func statusText(s core.Status, r core.Reason, code string) string {
	if r != "" {
		return fmt.Sprintf("%s (%s)", s, reasonText(r, code))
	}
	return string(s)
}

// reasonText is why a run ended. How a completed one did says nothing more.
func reasonText(r core.Reason, code string) string {
	if code == "" || r == core.ReasonCompleted {
		return string(r)
	}
	return string(r) + ": " + code
}

// ago is how long ago a time in Unix milliseconds was.
func ago(at int64) string {
	if at == 0 {
		return "-"
	}
	return length(time.Since(time.UnixMilli(at))) + " ago"
}

// length is a duration as people say it, in its largest unit.
func length(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func waitingText(calls []waiting) string {
	if len(calls) == 0 {
		return "-"
	}
	names := make([]string, len(calls))
	for i, c := range calls {
		if names[i] = cmp.Or(c.Tool, "the person"); c.Type == sdk.TypePermissionRequest {
			names[i] = "permission for " + c.Tool
		}
	}
	return strings.Join(names, ", ")
}

// head reads the last entry of a run.
func head(ctx context.Context, store runner.Store, run string) (core.Entry, error) {
	last, err := store.Head(ctx, wire.NewRunKey(run))
	if errors.Is(err, runner.ErrNotFound) {
		return core.Entry{}, sdk.Errorf(sdk.CodeUnknownRun, "there is no run %q; see: agentd runs list", run)
	}
	if err != nil {
		return core.Entry{}, explainStore(err)
	}
	return core.DecodeEntry(last.Data)
}

// withRun calls do with the connection, the store and the last entry of a run.
func (a *app) withRun(ctx context.Context, run string, do func(*client, runner.Store, core.Entry) error) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	store, err := c.openStore(ctx)
	if err != nil {
		return c.close(err)
	}
	last, err := head(ctx, store, run)
	if err == nil {
		err = do(c, store, last)
	}
	return c.close(also(err, store.Close()))
}

func (a *app) runsCancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "cancel RUN",
		Short:             "End a run before its time",
		Long:              "cancel ends a run with the error \"cancelled\" and tells the services of its open calls. It waits for the run's end.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRun(cmd.Context(), args[0], func(c *client, _ runner.Store, last core.Entry) error {
				return a.cancel(cmd.Context(), c, &last.Head, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the run's terminal event")
	return cmd
}

// cancelPatience is how long the command waits for the run's end. A model call in progress is not interrupted.
const cancelPatience = 10 * time.Second

func (a *app) cancel(ctx context.Context, c *client, h *core.Head, reason string) error {
	if h.Status == core.StatusDone {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done already (%s)", h.Run, h.Reason)
	}
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return fmt.Errorf("encode reason: %w", err)
	}
	err = c.Control(ctx, wire.ControlCancel, h.Agent, h.Key(), wire.Event{
		ID: newID("cancel"), Source: source, Type: "agentd.run.cancel", Subject: h.Run, Time: time.Now(), Data: data,
	})
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	ended := false
	if h.Init.Reply == nil { // else its end goes to whom the agent was called by
		_, err = c.WaitDone(waiting, h.Agent, h.Key(), h.Init.Token)
		if ended = err == nil; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return a.print(map[string]any{runField: h.Run, "ended": ended}, func(w io.Writer) error {
		text := "cancelled"
		if !ended {
			text = "cancel requested; the run ends when a worker has handled it"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

func (a *app) runsFollowCommand() *cobra.Command {
	var o followOptions
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Follow a run to its result, and answer what it asks",
		Long: "follow shows what the run did and does, answers its open and further questions like agentd run, and prints\n" +
			"the result.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRun(cmd.Context(), args[0], func(c *client, store runner.Store, last core.Entry) error {
				return a.followRun(cmd.Context(), c, store, &last.Head, o)
			})
		},
	}
	addFollowFlags(cmd, &o)
	return cmd
}

func (a *app) followRun(ctx context.Context, c *client, store runner.Store, h *core.Head, o followOptions) error {
	r := followed{subject: h.Run, agent: h.Agent, key: h.Key(), init: h.Init.Token}
	if h.Purged != nil {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done (%s), and its history was removed %s", h.Run, h.Reason, ago(h.Purged.At))
	}
	if h.Init.Reply != nil {
		return fmt.Errorf("run %s answers a call of another run, %s; follow that one", h.Run, h.Init.ReplySubject)
	}
	f := a.follower(c, r, o)
	return f.follow(ctx, func(ctx context.Context) error {
		entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, r.key)
		if err != nil {
			return err
		}
		quiet := f.progress.quiet
		defer func() { f.progress.quiet = quiet }()
		f.progress.quiet = nil // the desk shows the questions that are open now, not those before
		for i := range entries {
			if i == len(entries)-1 {
				f.progress.quiet = quiet
			}
			for _, m := range core.Milestones(&entries[i]) {
				f.progress.show(m)
			}
			for _, result := range entries[i].Results {
				f.desk.answered[result.Call] = true
			}
		}
		return nil
	})
}

// completeRuns completes the names of runs.
func (a *app) completeRuns(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	c, err := a.client(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	rows, err := c.rows(ctx, listFlags{})
	if err := c.close(err); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Run
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
