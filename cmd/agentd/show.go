package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/internal/runner"
	"agentd/sdk"
)

func (a *app) runsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: conversation, calls, counters, result and journal",
		Long:  "show reads the run's journal from the store, so it works without a worker. --verbose shows texts in full.",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withRun(cmd.Context(), args[0], func(_ *client, store runner.Store, last core.Entry) error {
				return a.show(cmd.Context(), store, last.Head.Key())
			})
		},
	}
}

// runDetails is everything about a run. Times are in Unix milliseconds.
type runDetails struct {
	Run        string      `json:"run"`
	Agent      string      `json:"agent"`
	Status     core.Status `json:"status"`
	Reason     core.Reason `json:"reason,omitempty"`
	Code       string      `json:"reason_code,omitempty"`
	Budget     int64       `json:"budget,omitempty"`
	TokensUsed int64       `json:"tokens_used"`
	// Messages that wait until the model can be shown them.
	Unsaid       []string       `json:"unsaid,omitempty"`
	Started      int64          `json:"started"`
	Updated      int64          `json:"updated"`
	Deadline     int64          `json:"deadline"`
	Interactions int            `json:"interactions"`
	Usage        sdk.Usage      `json:"usage"`
	Units        sdk.Units      `json:"executionunits"`
	Spec         string         `json:"spec"`
	System       string         `json:"system,omitempty"`
	Purged       *core.Purged   `json:"purged,omitempty"`
	Waiting      []waiting      `json:"waiting,omitempty"`
	Messages     []sdk.Message  `json:"messages"`
	Terminal     *core.Terminal `json:"terminal,omitempty"`
	Journal      []journalRow   `json:"journal"`
}

type journalRow struct {
	Revision uint64   `json:"rev"`
	At       int64    `json:"at"`
	Kind     string   `json:"kind"`
	Status   string   `json:"status"`
	Effects  []string `json:"effects,omitempty"`
	Cause    string   `json:"cause"`
}

func (a *app) show(ctx context.Context, store runner.Store, key wire.RunKey) error {
	entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, key)
	if err != nil {
		return err
	}
	d, err := detailsOf(entries)
	if err != nil {
		return err
	}
	return a.print(d, func(w io.Writer) error { return d.write(w, a.verbose) })
}

func detailsOf(entries []core.Entry) (runDetails, error) {
	var d runDetails
	var s core.State
	var err error
	for i := range entries {
		e := &entries[i]
		if s, err = core.Apply(s, e); err != nil {
			return d, fmt.Errorf("read entry %d: %w", e.Rev, err)
		}
		row := journalRow{
			Revision: e.Rev, At: e.At, Kind: e.Kind, Status: statusText(e.Head.Status, e.Head.Reason, ""),
			Cause: fmt.Sprintf("%s/%d", e.Cause.Stream, e.Cause.Sequence),
		}
		for _, f := range e.Effects {
			row.Effects = append(row.Effects, string(f.Kind))
		}
		d.Journal = append(d.Journal, row)
		if e.Terminal != nil {
			d.Terminal = e.Terminal
		}
		if i == 0 {
			d.Started = e.At
		}
		d.Updated = e.At
	}
	d.Run, d.Agent, d.Status, d.Reason, d.Deadline = s.Run, s.Agent, s.Status, s.Reason, s.Deadline
	d.Budget, d.TokensUsed = s.Budget, s.TokensUsed()
	if s.Status == core.StatusDone {
		d.Code = s.ReasonCode
	}
	for _, n := range s.Notes {
		d.Unsaid = append(d.Unsaid, n.Text)
	}
	d.Interactions, d.Usage, d.Units, d.Spec, d.System = s.Interactions, s.Usage, s.Units, s.Spec, s.System
	if d.Purged = s.Purged; d.Purged != nil {
		d.Started = 0 // nobody knows any more
	}
	d.Waiting, d.Messages = waitingCalls(&s.Head), s.Messages()
	return d, nil
}

func (d runDetails) write(w io.Writer, full bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "run\t%s\n", clip(d.Run, shown))
	fmt.Fprintf(t, "agent\t%s\n", d.Agent)
	fmt.Fprintf(t, "status\t%s\n", statusText(d.Status, d.Reason, d.Code))
	if d.Purged == nil {
		fmt.Fprintf(t, "started\t%s (%s)\n", clock(d.Started), ago(d.Started))
	}
	fmt.Fprintf(t, "changed\t%s (%s)\n", clock(d.Updated), ago(d.Updated))
	if d.Status != core.StatusDone {
		fmt.Fprintf(t, "deadline\t%s (in %s)\n", clock(d.Deadline), length(time.Until(time.UnixMilli(d.Deadline))))
	}
	fmt.Fprintf(t, "model\t%s, %d prompt and %d completion tokens, %s execution units\n",
		count(d.Interactions, "call"), d.Usage.Prompt, d.Usage.Completion, d.Units)
	if p := d.Purged; p != nil {
		fmt.Fprintf(t, "history\tremoved %s (%s): %d entries, the last with SHA-256 %s\n", clock(p.At), ago(p.At), p.Rev, p.Digest)
		return t.Flush()
	}
	if d.Budget > 0 {
		fmt.Fprintf(t, "budget\t%d of %d tokens used or kept for agents that it called\n", d.TokensUsed, d.Budget)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	d.writeConversation(w, full)
	for _, text := range d.Unsaid {
		fmt.Fprintf(w, "  %-9s  %s\n", "(waits)", desk.Visible(clip(text, fitting(w, conversationIndent)), false))
	}
	if len(d.Waiting) > 0 {
		fmt.Fprintln(w, "\nwaits for")
		for _, c := range d.Waiting {
			fmt.Fprintf(w, "  %s (%s), due in %s: %s\n", waitingText([]waiting{c}), c.Type, length(time.Until(time.UnixMilli(c.Due))), c.Call)
		}
	}
	if d.Terminal != nil {
		fmt.Fprintf(w, "\n%s\n%s\n", d.Terminal.Type, indent(d.Terminal.Data))
	}
	return d.writeJournal(w)
}

// conversationIndent is how many columns are before the texts of a conversation.
const conversationIndent = 13

func (d runDetails) writeConversation(w io.Writer, full bool) {
	cut := func(text string) string {
		if !full {
			text = clip(text, fitting(w, conversationIndent))
		}
		return desk.Visible(text, full) // models wrote it
	}
	fmt.Fprintln(w, "\nconversation")
	if d.System != "" {
		fmt.Fprintf(w, "  %-9s  %s\n", "system", cut(d.System))
	}
	for _, m := range d.Messages {
		for _, c := range m.Content {
			who, text := string(m.Role), c.Text
			switch c.Kind {
			case sdk.ContentToolUse:
				who, text = "  call", c.Tool+" "+string(c.Args)
			case sdk.ContentToolResult:
				who, text = "  result", c.Tool+" "+c.Text
				if c.IsError {
					who = "  error"
				}
			case sdk.ContentMedia:
				text = "(media)"
				if c.Media != nil {
					text = fmt.Sprintf("(%s %s)", c.Media.MIME, c.Media.Name)
				}
			case sdk.ContentThinking:
				who = "  thinks"
			case sdk.ContentRedacted:
				who, text = "  thinks", "(not shown by the provider)"
			case sdk.ContentText:
			}
			fmt.Fprintf(w, "  %-9s  %s\n", who, cut(text))
		}
	}
}

func (d runDetails) writeJournal(w io.Writer) error {
	fmt.Fprintf(w, "\njournal (%d)\n", len(d.Journal))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range d.Journal {
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\n",
			e.Revision, time.UnixMilli(e.At).Format("15:04:05.000"), e.Kind, e.Status, effectText(e.Effects), e.Cause)
	}
	return t.Flush()
}

// effectText counts effects of a kind: "2 calls, timer".
func effectText(effects []string) string {
	text := ""
	for i := 0; i < len(effects); {
		n := i
		for n < len(effects) && effects[n] == effects[i] {
			n++
		}
		if text != "" {
			text += ", "
		}
		if n-i > 1 {
			text += count(n-i, effects[i])
		} else {
			text += effects[i]
		}
		i = n
	}
	if text == "" {
		return "-"
	}
	return text
}

// clock is a time in Unix milliseconds as people read it.
func clock(at int64) string { return time.UnixMilli(at).Format("2006-01-02 15:04:05") }
