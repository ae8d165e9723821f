// Package reconcile is agentd reconcile.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
	"agentd/internal/reconcile"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/internal/worker"
	"agentd/sdk"
)

type reconcileFlags struct {
	dryRun    bool
	storeLost bool
	olderThan string
}

// Command is agentd reconcile.
func Command(a *cli.App) *cobra.Command {
	var f reconcileFlags
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Find runs that were lost, and repair or end them",
		Long: "reconcile compares what clients started, what the store knows, and what is on the broker, for the agents of the\n" +
			"configuration: after the store was lost, restored from a copy or failed over, and whenever something seems stuck.\n" +
			"What can be repaired is repaired; a run that is lost ends with the error \"state_lost\", or begins anew if its agent\n" +
			"has on_state_loss: restart. Histories of runs that are done for longer than retention.history are removed,\n" +
			"and so are the calls of runs that are done for longer than retention.calls.\n\n" +
			"Passes are repeated until one finds nothing to repair, five times at most: what was repaired may bring to light what\n" +
			"else is lost. Runs that changed lately are left alone, and counted.\n\n" +
			"A store that is not the one that runs are kept in, as it is noted on the broker, is refused: what it does not have is not\n" +
			"lost. When that one is lost for good, --store-lost has runs kept in the present store from now on, and ends the others.\n\n" +
			"Workers do the same every reconcile.interval. Doing it at any time, and several times at once, is harmless.\n\n" +
			"Exit codes: 0 nothing is wrong any more, 4 something is.",
		Example: "  agentd reconcile --dry-run\n  agentd reconcile --older-than 1m -o json\n  agentd reconcile --store-lost --older-than 1m",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, f) },
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only look")
	cmd.Flags().BoolVar(&f.storeLost, "store-lost", false, "the store that had the runs is lost for good: from now on they are kept in this one")
	cmd.Flags().StringVar(&f.olderThan, "older-than", "", "how old something must be to count as lost (default: reconcile.older_than, else 15m)")
	return cmd
}

func run(ctx context.Context, a *cli.App, f reconcileFlags) error {
	cfg, err := a.WithAgents()
	if err != nil {
		return err
	}
	if err := cfg.Set("--older-than", "reconcile.older_than", f.olderThan); err != nil {
		return cli.Usagef("%s", err.Error())
	}
	c, err := a.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	open := c.OpenStore
	if f.storeLost {
		open = c.OpenAnyStore
	}
	store, err := open(ctx)
	if err != nil {
		return c.CloseAfter(err)
	}
	if f.storeLost && !f.dryRun {
		err = worker.MoveTo(ctx, c.Conn, store)
	}
	if err == nil {
		err = runWith(ctx, a, cfg, c, store, f)
	}
	return c.CloseAfter(errors.Join(err, store.Close()))
}

func runWith(ctx context.Context, a *cli.App, cfg *config.Config, c *cli.Client, store worker.OpenedStore, f reconcileFlags) error {
	resolved, err := worker.Resolve(ctx, c.Conn, setup.Agents(cfg))
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Options{
		Conn: c.Conn, Store: store, Agents: resolved, Logger: a.QuietLogger(), Identity: cfg.Identity, Keys: cfg.Keys,
		Models:    func(sdk.ModelSpec) (sdk.Provider, error) { return nil, nil }, // nothing is asked of them
		Reconcile: worker.Reconcile{OlderThan: cfg.Reconcile.OlderThan, History: cfg.Retention.History, Calls: cfg.Retention.Calls, Hot: cfg.Retention.Hot},
	})
	if err != nil {
		return err
	}
	o, err := w.Reconciling(ctx)
	if err != nil {
		return err
	}
	o.DryRun = f.dryRun
	if f.storeLost {
		o.Right = nil // whichever store it is
	}
	findings := []reconcile.Finding{}
	o.Found = func(found reconcile.Finding) {
		if a.Output == cli.OutputJSON {
			findings = append(findings, found)
			return
		}
		fmt.Fprintln(a.Out, findingText(found, f.dryRun))
	}
	report, err := reconcile.Until(ctx, o)
	printed := a.Print(reconciled{f.dryRun, report, findings}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, reportText(report, f.dryRun, cmp.Or(o.OlderThan, sdk.DefaultLostAfter)))
		return err
	})
	if err = errors.Join(err, printed); err == nil && (report.Unrepaired > 0 || report.GoesOn) {
		err = cli.Exit(cli.ExitFindings)
	}
	return err
}

// reconciled is the result in JSON.
type reconciled struct {
	DryRun bool `json:"dry_run"`
	reconcile.Passes
	Findings []reconcile.Finding `json:"findings"`
}

// passes counts passes.
func passes(n int) string {
	if n == 1 {
		return "1 pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// findingText is one line: what is wrong with which run, and what was done.
func findingText(f reconcile.Finding, dryRun bool) string {
	action := f.Action
	switch {
	case f.Problem != "":
		action = "NOT repaired: " + strings.Join(strings.Fields(f.Problem), " ")
	case dryRun:
		action = "would be " + action
	}
	text := fmt.Sprintf("%-15s %s", f.Kind, show.Name(f.Run))
	if f.What != "" {
		text += ", " + f.What
	}
	return show.Visible(text + ": " + action)
}

func reportText(r reconcile.Passes, dryRun bool, olderThan time.Duration) string {
	text := fmt.Sprintf("%s, %s and %s examined: ", show.Count(r.Inits, "init event"), show.Count(r.Runs, "run"), show.Count(r.Calls, "call"))
	found := 0
	for _, n := range r.Found {
		found += n
	}
	switch {
	case found == 0:
		text += "nothing is lost"
	case dryRun:
		text += fmt.Sprintf("%d found", found)
	default:
		text += fmt.Sprintf("%d found, %d repaired, in %s", found, found-r.Unrepaired, passes(r.Made))
	}
	if r.GoesOn {
		text += "\nthe last pass still found something; make another when workers have taken up what was repaired"
	}
	if r.Young > 0 {
		text += fmt.Sprintf("\nleft alone: %s that changed in the last %s; make another pass when nothing of that has moved for as long",
			show.Count(r.Young, "run"), show.Duration(olderThan))
	}
	if r.Purged+r.Removed > 0 {
		verb := "removed"
		if dryRun {
			verb = "to be removed"
		}
		text += fmt.Sprintf("\n%s and %s %s", show.Count(r.Purged, "history"), show.Count(r.Removed, "tombstone"), verb)
	}
	if r.Archived+r.Thinned > 0 {
		form := "\n%s archived, and %d out of Redis"
		if dryRun {
			form = "\n%s to be archived, and %d to leave Redis"
		}
		text += fmt.Sprintf(form, show.Count(r.Archived, "journal"), r.Thinned)
	}
	if r.Cleared > 0 {
		verb := "removed"
		if dryRun {
			verb = "to be removed"
		}
		text += fmt.Sprintf("\ncalls of %s that ended %s", show.Count(r.Cleared, "run"), verb)
	}
	return text
}
