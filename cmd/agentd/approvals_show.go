package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/sdk"
)

// shownItem is an item with what its run recorded.
type shownItem struct {
	desk.Detail
	// Decisions are those that the run recorded, also refused ones; Unknown says why they could not be read.
	Decisions []core.Decision `json:"decisions,omitempty"`
	Unknown   string          `json:"unknown,omitempty"`
	// Unrecorded says why the journal does not have that the person saw it.
	Unrecorded string `json:"unrecorded,omitempty"`
}

func (a *app) approvalsShowCommand(f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about one of them: who asks, why, exactly what, and who decided so far",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDesk(cmd.Context(), f, func(d *deskClient) error {
				s, err := d.show(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.print(s, func(w io.Writer) error {
					if err := s.write(w, a.verbose); err != nil {
						return err
					}
					return s.writeCommands(w, a, f.words())
				})
			})
		},
	}
}

func (d *deskClient) show(ctx context.Context, id string) (shownItem, error) {
	detail, unrecorded, err := d.View(ctx, id, d.approver.who)
	if err != nil {
		return shownItem{}, err
	}
	s := shownItem{Detail: detail}
	if unrecorded != nil {
		s.Unrecorded = problemText(unrecorded)
	}
	if detail.Kind != desk.KindPermission || len(detail.Sent) == 0 {
		return s, nil
	}
	if s.Decisions, err = d.History(ctx, detail.Item); err != nil {
		s.Unknown = "whether they counted is not known now: " + err.Error()
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			s.Unknown = "whether they counted is not known now: no worker serves " + detail.Agent
		}
	}
	return s, nil
}

// write shows the item for a person who decides. full also shows the schema of the arguments.
func (s *shownItem) write(w io.Writer, full bool) error {
	if err := s.writeAsked(w); err != nil {
		return err
	}
	if s.Request != nil {
		fmt.Fprintln(w, "\nterms")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		s.terms(func(label, text string) { fmt.Fprintf(t, "  %s\t%s\n", label, desk.Visible(text, false)) })
		if err := t.Flush(); err != nil {
			return err
		}
		if full {
			writeBlock(w, "schema of the arguments", desk.VisibleJSON(s.Request.Parameters))
		}
	}
	s.writeDecisions(w)
	if s.Unrecorded != "" {
		fmt.Fprintf(w, "\nthat you saw it could not be recorded: %s\n", desk.Visible(s.Unrecorded, false))
	}
	return nil
}

// writeAsked shows what nobody must decide without: what is asked, why, and with exactly what.
func (s *shownItem) writeAsked(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label, text string) { fmt.Fprintf(t, "%s\t%s\n", label, desk.Visible(text, false)) }
	row("id", s.Short+"  ("+s.ID+")")
	row("asked", clock(s.Asked)+" ("+age(s.Asked)+" ago), by agent "+s.Agent)
	row("run", s.Run)
	if s.Expires > 0 {
		row("expires", clock(s.Expires)+" (in "+left(s.Expires)+")")
	}
	title, text := "text", desk.Visible(s.Text, true)
	switch r := s.Request; {
	case r != nil:
		why := cmp.Or(r.Reason, "the policy asks")
		if r.Risk != "" {
			why += "; risk " + r.Risk
		}
		row("tool", r.Tool)
		row("why", why)
		title, text = "arguments", desk.VisibleJSON(r.Args)
	case s.Kind == desk.KindTask:
		row("asks", s.Type)
		title, text = "data", desk.VisibleJSON(s.Event.Data)
	default:
		row("asks", string(s.Kind))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	writeBlock(w, title+", written by the model", text)
	for n, suggestion := range s.Suggestions {
		fmt.Fprintf(w, "  %d. %s\n", n+1, desk.Visible(suggestion, false))
	}
	return nil
}

// terms are what only a permission request has.
func (s *shownItem) terms(row func(label, text string)) {
	r := s.Request
	then := "the call waits for the decision, and is made with exactly these arguments"
	if r.Mode == sdk.PermissionRetry {
		then = "the model is told of the decision, and may then make exactly this call once"
	}
	row("then", then)
	row("scopes", scopesOf(r))
	row("who decides", approversOf(r))
	row("started by", cmp.Or(r.Initiator, "somebody anonymous"))
	if by := r.DelegatedBy; by != nil {
		row("called by", "agent "+by.Agent+", run "+by.Run)
	}
	if r.Type != "" {
		row("contract", r.Schema)
	}
	if claims := labelsOf(r.Labels); claims != "" {
		row("labels", claims+", as the contract says")
	}
	row("domain", s.Domain)
	if r.Stage > 0 {
		row("escalated", count(r.Stage, "domain")+" did not decide in time")
	}
	row("rule", r.Rule)
	row("policy", "sha256:"+r.Policy)
	row("arguments", "sha256:"+r.ArgsHash)
}

func labelsOf(l sdk.ToolLabels) string {
	var set []string
	for _, one := range []struct {
		name string
		set  bool
	}{{"read-only", l.ReadOnly}, {"destructive", l.Destructive}, {"open world", l.OpenWorld}} {
		if one.set {
			set = append(set, one.name)
		}
	}
	return strings.Join(set, ", ")
}

func approversOf(r *sdk.PermissionRequest) string {
	text := "one person"
	if r.Quorum > 1 {
		text = fmt.Sprintf("%d different people", r.Quorum)
	}
	if len(r.Approvers) > 0 {
		text += " of " + strings.Join(r.Approvers, ", ")
	}
	if r.FourEyes {
		text += ", not who started the run"
	}
	if r.Signed {
		text += ", with a signed decision"
	}
	return text
}

func scopesOf(r *sdk.PermissionRequest) string {
	names := make([]string, len(r.Scopes))
	for i, s := range r.Scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

func writeBlock(w io.Writer, title, text string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func (s *shownItem) writeDecisions(w io.Writer) {
	if len(s.Sent) == 0 {
		return
	}
	fmt.Fprintln(w, "\nso far")
	recorded := map[string]core.Decision{}
	for _, d := range s.Decisions {
		recorded[d.Event] = d
	}
	for _, sent := range s.Sent {
		who := sent.Who
		if who == "" {
			who = "somebody anonymous"
		}
		text := string(sent.Decision)
		if text == "" {
			text = "answered"
		}
		if sent.Reason != "" {
			text += ": " + sent.Reason
		}
		d, known := recorded[sent.Event]
		switch {
		case sent.Refused != "":
			text += " (refused: " + sent.Refused + ")"
		case known && d.Refused != "":
			text += " (refused: " + d.Refused + ")"
		case known:
			text += " (counts)"
		case s.Unknown == "":
			text += " (not handled yet)"
		}
		fmt.Fprintf(w, "  %s  %s  %s\n", time.UnixMilli(sent.At).Format(time.TimeOnly), who, desk.Visible(text, false))
	}
	if s.Unknown != "" {
		fmt.Fprintf(w, "  %s\n", desk.Visible(s.Unknown, false))
	}
}

// verbAnswer is the command that answers.
const verbAnswer = "answer"

// writeCommands says what can be done. common are flags that this command had, and the others need.
func (s *shownItem) writeCommands(w io.Writer, a *app, common []string) error {
	lines := [][]string{{verbAnswer, s.Short, "TEXT"}}
	switch s.Kind {
	case desk.KindPermission:
		lines = [][]string{{"approve", s.Short}, {"deny", s.Short, "--reason", "TEXT"}, {"ask", s.Short, "QUESTION"}}
		if s.Request.Mode == sdk.PermissionHold && s.Request.Quorum <= 1 {
			lines = append(lines, []string{"edit", s.Short})
		}
	case desk.KindTask:
		lines = [][]string{{verbAnswer, s.Short, "--input", "JSON"}}
	case desk.KindTurn:
		lines = append(lines, []string{verbAnswer, s.Short, "--end"})
	case desk.KindQuestion:
	}
	fmt.Fprintln(w)
	for _, l := range lines {
		fmt.Fprintln(w, a.command(slices.Concat([]string{"approvals"}, l, common)...))
	}
	return nil
}
