package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/desk"
	"agentd/sdk"
)

// approvalsFlags are those of all commands of the desk.
type approvalsFlags struct {
	domains []string
	as, key string
}

// words are the flags as they were given.
func (f *approvalsFlags) words() []string {
	var words []string
	for _, domain := range f.domains {
		words = append(words, "--domain", domain)
	}
	if f.as != "" {
		words = append(words, "--as", f.as)
	}
	if f.key != "" {
		words = append(words, "--key", f.key)
	}
	return words
}

func (a *app) approvalsCommand() *cobra.Command {
	var f approvalsFlags
	cmd := &cobra.Command{
		Use:     "approvals",
		Aliases: []string{"approval"},
		Short:   "Decide and answer what runs ask people",
		Long: "approvals is the human desk: permission requests, questions and conversation turns of all runs. An ID is what\n" +
			"the list shows, or any beginning of a request's id that no other one has.\n\n" +
			"What is shown of arguments and texts was written by models. Characters that cannot be seen, or that change how\n" +
			"others are seen, are written out, such as \\u202e.",
		Example: "  agentd approvals list\n  agentd approvals show k3f9qa\n  agentd approvals approve k3f9qa\n  agentd approvals watch",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := cmd.PersistentFlags()
	flags.StringSliceVar(&f.domains, "domain", nil, `domains to look at, "*" for all (default: approvals.domains, else human.interaction)`)
	flags.StringVar(&f.as, "as", "", "the principal to decide as (default: approvals.as, else the NATS user)")
	flags.StringVar(&f.key, "key", "", "PEM file with the Ed25519 key to sign decisions with (default: approvals.key)")
	cmd.AddCommand(
		a.approvalsListCommand(&f), a.approvalsShowCommand(&f), a.approveCommand(&f), a.denyCommand(&f), a.editCommand(&f),
		a.askCommand(&f), a.answerCommand(&f), a.approvalsWatchCommand(&f),
		a.approvalsServeCommand(&f), a.approvalsLogCommand(),
	)
	return cmd
}

// deskClient is an open desk for one command.
type deskClient struct {
	*desk.Desk
	conn     *client
	approver approver
}

// withDesk opens the desk for a command.
func (a *app) withDesk(ctx context.Context, f *approvalsFlags, do func(*deskClient) error) error {
	for _, domain := range f.domains {
		if err := wire.CheckDomain(domain); err != nil && domain != "*" {
			return &exitError{exitUsage, err}
		}
	}
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	who, err := a.approver(c.cfg, f.as)
	if err != nil {
		return c.close(&exitError{exitUsage, err})
	}
	sign, err := signer(c.cfg, f.key)
	if err != nil {
		return c.close(err)
	}
	domains := f.domains
	if len(domains) == 0 {
		domains = c.cfg.Approvals.Domains
	}
	opening, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	d, err := desk.Open(opening, desk.Options{
		Conn: c.Conn, Domains: domains, Contracts: c.cfg.Contracts, Signer: sign, Logger: a.quietLogger(),
	})
	if err != nil {
		return c.close(explainStore(err))
	}
	defer d.Close()
	return c.close(do(&deskClient{Desk: d, conn: c, approver: who}))
}

// widths of what the list shows of arguments and texts, in characters: without a terminal, and at least.
const (
	summaryWidth = 48
	leastSummary = 16
)

func (a *app) approvalsListCommand(f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what waits for a person, the oldest first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd.Context(), f, func(d *deskClient) error {
				items := d.List()
				return a.print(items, func(w io.Writer) error {
					if n := d.Omitted(); n > 0 {
						fmt.Fprintf(a.err, "%s more are open; decide some of these first\n", count(n, "request"))
					}
					return writeItems(w, items, columns(a.out))
				})
			})
		},
	}
}

// writeItems writes a line for each item, with its domain if that is not the usual one for all. On a terminal of that many columns, arguments and texts get what the others leave.
func writeItems(w io.Writer, items []desk.Item, columns int) error {
	if len(items) == 0 {
		_, err := fmt.Fprintln(w, "nothing waits for a person")
		return err
	}
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	several := slices.ContainsFunc(items, func(i desk.Item) bool { return i.Domain != sdk.HumanDomain })
	row := func(domain string, cells ...string) {
		if several {
			cells = slices.Insert(cells, 3, domain)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	row("DOMAIN", "ID", "AGE", "EXPIRES IN", "AGENT", "RUN", "ASKS", "RISK")
	for _, i := range items {
		row(oneLine(i.Domain, 24), i.Short, age(i.Asked), left(i.Expires),
			oneLine(i.Agent, 24), oneLine(i.Run, 24), what(&i), cmp.Or(oneLine(i.Risk, 12), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
	room := summaryWidth
	if columns > 0 {
		room = max(columns-len([]rune(lines[0])), leastSummary)
	}
	for n, line := range lines {
		summary := "ARGUMENTS OR TEXT"
		if n > 0 {
			summary = items[n-1].Summary
		}
		if _, err := fmt.Fprintln(w, line+oneLine(summary, room)); err != nil {
			return err
		}
	}
	return nil
}

// what is asked, in a word.
func what(i *desk.Item) string {
	switch {
	case i.Kind == desk.KindPermission:
		return oneLine(i.Tool, 28)
	case i.Kind == desk.KindTask:
		return oneLine(i.Type, 28)
	case len(i.Sent) > 0:
		return "(" + string(i.Kind) + ", again)"
	}
	return "(" + string(i.Kind) + ")"
}

// age is how long ago a time in Unix milliseconds was, left how far in the future it is.
func age(at int64) string { return length(time.Since(time.UnixMilli(at))) }

func left(at int64) string {
	if at == 0 {
		return "-"
	}
	return length(time.Until(time.UnixMilli(at)))
}

// oneLine makes text of others one line of at most n characters in which everything can be seen.
func oneLine(text string, n int) string {
	text = desk.Visible(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text), false)
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
