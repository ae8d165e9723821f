package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentd/internal/config"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk"
)

type reconcileFlags struct {
	dryRun    bool
	olderThan string
}

func (a *app) reconcileCommand() *cobra.Command {
	var f reconcileFlags
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Find runs that were lost, and repair or end them",
		Long: "reconcile compares what clients started, what the store knows, and what is on the broker, for the agents of the\n" +
			"configuration: after the store was lost, restored from a copy or failed over, and whenever something seems stuck.\n" +
			"What can be repaired is repaired; a run that is lost ends with the error \"state_lost\", or begins anew if its agent\n" +
			"has on_state_loss: restart. Histories of runs that are done for longer than retention.history are removed.\n\n" +
			"Workers do the same every reconcile.interval. Doing it at any time, and several times at once, is harmless.\n\n" +
			"Exit codes: 0 nothing is wrong any more, 4 something is.",
		Example: "  agentd reconcile --dry-run\n  agentd reconcile --older-than 1m -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.reconcile(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only look")
	cmd.Flags().StringVar(&f.olderThan, "older-than", "", "how old something must be to count as lost (default: reconcile.older_than, else 15m)")
	return cmd
}

func (a *app) reconcile(ctx context.Context, f reconcileFlags) error {
	cfg, err := a.withAgents()
	if err != nil {
		return err
	}
	if f.olderThan != "" {
		if cfg.Reconcile.OlderThan, err = config.ParseOlderThan(f.olderThan); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--older-than: %w", err)}
		}
	}
	c, err := a.connect(ctx, cfg)
	if err != nil {
		return err
	}
	store, err := c.openStore(ctx)
	if err != nil {
		return c.close(err)
	}
	return c.close(also(a.reconcileWith(ctx, cfg, c, store, f.dryRun), store.Close()))
}

func (a *app) reconcileWith(ctx context.Context, cfg *config.Config, c *client, store worker.OpenedStore, dryRun bool) error {
	resolved, err := worker.Resolve(ctx, c.Conn, agents(cfg))
	if err != nil {
		return explainStore(err)
	}
	w, err := worker.New(worker.Options{
		Conn: c.Conn, Store: store, Agents: resolved, Logger: a.quietLogger(), Identity: cfg.Identity, Keys: cfg.Keys,
		Models:    func(sdk.ModelSpec) (sdk.Provider, error) { return nil, nil }, // nothing is asked of them
		Reconcile: worker.Reconcile{OlderThan: cfg.Reconcile.OlderThan, History: cfg.Retention.History},
	})
	if err != nil {
		return err
	}
	o, err := w.Reconciling()
	if err != nil {
		return err
	}
	o.DryRun = dryRun
	findings := []reconcile.Finding{}
	o.Found = func(f reconcile.Finding) {
		if a.output == outputJSON {
			findings = append(findings, f)
			return
		}
		fmt.Fprintln(a.out, findingText(f, dryRun))
	}
	report, err := reconcile.Run(ctx, o)
	if err != nil {
		err = explainStore(err)
	}
	printed := a.print(reconciled{dryRun, report, findings}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, reportText(report, dryRun))
		return err
	})
	if err = errors.Join(err, printed); err == nil && report.Unrepaired > 0 {
		err = &exitError{code: exitFindings}
	}
	return err
}

// reconciled is the result in JSON.
type reconciled struct {
	DryRun bool `json:"dry_run"`
	reconcile.Report
	Findings []reconcile.Finding `json:"findings"`
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
	text := fmt.Sprintf("%-15s %s", f.Kind, clip(f.Run, 80))
	if f.What != "" {
		text += ", " + f.What
	}
	return text + ": " + action
}

func reportText(r reconcile.Report, dryRun bool) string {
	text := fmt.Sprintf("%s, %s and %s examined: ", count(r.Inits, "init event"), count(r.Runs, "run"), count(r.Calls, "call"))
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
		text += fmt.Sprintf("%d found, %d repaired", found, found-r.Unrepaired)
	}
	if r.Purged+r.Removed > 0 {
		verb := "removed"
		if dryRun {
			verb = "to be removed"
		}
		text += fmt.Sprintf("\n%s and %s %s", histories(r.Purged), count(r.Removed, "tombstone"), verb)
	}
	return text
}

func histories(n int) string {
	if n == 1 {
		return "1 history"
	}
	return fmt.Sprintf("%d histories", n)
}
