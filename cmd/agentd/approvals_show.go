package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
					return s.writeCommands(w, a)
				})
			})
		},
	}
}

func (d *deskClient) show(ctx context.Context, id string) (shownItem, error) {
	detail, err := d.Detail(ctx, id)
	if err != nil {
		return shownItem{}, err
	}
	s := shownItem{Detail: detail}
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label, text string) { fmt.Fprintf(t, "%s\t%s\n", label, desk.Visible(text, false)) }
	row("id", s.Short+"  ("+s.ID+")")
	row("asked", clock(s.Asked)+" ("+age(s.Asked)+" ago), by agent "+s.Agent)
	row("run", s.Run)
	if s.Expires > 0 {
		row("expires", clock(s.Expires)+" (in "+left(s.Expires)+")")
	}
	row("domain", s.Domain)
	if s.Request != nil {
		s.requestRows(row)
	} else {
		row("asks", string(s.Kind)+" ("+s.Type+")")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case s.Request != nil:
		writeBlock(w, "arguments, written by the model", desk.VisibleJSON(s.Request.Args))
		if full {
			writeBlock(w, "schema of the arguments", desk.VisibleJSON(s.Request.Parameters))
		}
	case s.Kind == desk.KindTask:
		writeBlock(w, "data, written by the model", desk.VisibleJSON(s.Event.Data))
	default:
		writeBlock(w, "text, written by the model", desk.Visible(s.Text, true))
		for n, suggestion := range s.Suggestions {
			fmt.Fprintf(w, "  %d. %s\n", n+1, desk.Visible(suggestion, false))
		}
	}
	s.writeDecisions(w)
	return nil
}

// requestRows are what only a permission request has.
func (s *shownItem) requestRows(row func(label, text string)) {
	r := s.Request
	tool := r.Tool
	if r.Type != "" {
		tool += ", contract " + r.Schema
	}
	row("tool", tool)
	if claims := labelsOf(r.Labels); claims != "" {
		row("labels", claims+" (its contract says so)")
	}
	why := r.Reason
	if why == "" {
		why = "the policy asks"
	}
	row("why", why+"; rule "+r.Rule)
	if r.Risk != "" {
		row("risk", r.Risk)
	}
	if r.Initiator != "" {
		row("started by", r.Initiator)
	} else {
		row("started by", "nobody knows")
	}
	if by := r.DelegatedBy; by != nil {
		row("called by", "agent "+by.Agent+", run "+by.Run)
	}
	row("who decides", approversOf(r))
	row("scopes", scopesOf(r))
	mode := "the call waits for the decision, and is made with exactly these arguments"
	if r.Mode == sdk.PermissionRetry {
		mode = "the model is told of the decision, and may then make exactly this call once"
	}
	row("then", mode)
	if r.Stage > 0 {
		row("escalated", fmt.Sprintf("%s did not decide in time", count(r.Stage, "domain")))
	}
	row("policy", "sha256:"+r.Policy)
	row("args", "sha256:"+r.ArgsHash)
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

// writeCommands says what can be done.
func (s *shownItem) writeCommands(w io.Writer, a *app) error {
	lines := [][]string{{verbAnswer, s.Short, "TEXT"}}
	switch s.Kind {
	case desk.KindPermission:
		lines = [][]string{{"approve", s.Short}, {"deny", s.Short, "--reason", "TEXT"}, {"ask", s.Short, "QUESTION"}}
		if s.Request.Mode == sdk.PermissionHold && s.Request.Quorum <= 1 {
			lines = append(lines, []string{"edit", s.Short})
		}
	case desk.KindTask:
		lines = [][]string{{verbAnswer, s.Short, "--data", "JSON"}}
	case desk.KindTurn:
		lines = append(lines, []string{verbAnswer, s.Short, "--end"})
	case desk.KindQuestion:
	}
	fmt.Fprintln(w)
	for _, l := range lines {
		fmt.Fprintln(w, a.command(append([]string{"approvals"}, l...)...))
	}
	return nil
}
