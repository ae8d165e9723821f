package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/internal/requests"
	"agentd/sdk"
)

// Request is an item with what its run recorded.
type Request struct {
	requests.Detail
	// Decisions are those that the run recorded, also refused ones; Unknown says why they could not be read.
	Decisions []core.Decision `json:"decisions,omitempty"`
	Unknown   string          `json:"unknown,omitempty"`
	// Unrecorded says why the journal does not have that the person saw it.
	Unrecorded string `json:"unrecorded,omitempty"`
}

// Write shows the item for a person who decides. full also shows the schema of the arguments.
func (s *Request) Write(w io.Writer, full bool) error {
	if err := s.WriteAsked(w); err != nil {
		return err
	}
	if s.Request != nil {
		fmt.Fprintln(w, "\nterms")
		var t table
		s.terms(func(label, text string) { t.row(label, Visible(text, false)) })
		if err := t.write(w, "  ", 0); err != nil {
			return err
		}
		if full {
			Block(w, "schema of the arguments", VisibleJSON(s.Request.Parameters))
		}
	}
	s.writeDecisions(w)
	if s.Unrecorded != "" {
		fmt.Fprintf(w, "\nthat you saw it could not be recorded: %s\n", Visible(s.Unrecorded, false))
	}
	return nil
}

// WriteAsked shows what nobody must decide without: what is asked, why, and with exactly what.
func (s *Request) WriteAsked(w io.Writer) error {
	var t table
	row := func(label, text string) { t.row(label, Visible(text, false)) }
	row("id", s.Short+"  ("+s.ID+")")
	row("asked", When(s.Asked)+", by agent "+s.Agent)
	row("run", s.Run)
	if s.Expires > 0 {
		row("expires", due(s.Expires))
	}
	title, text := "text", Visible(s.Text, true)
	switch r := s.Request; {
	case r != nil:
		why := cmp.Or(r.Reason, "the policy asks")
		if r.Risk != "" {
			why += "; risk " + r.Risk
		}
		row("tool", r.Tool)
		row("why", why)
		title, text = "arguments", VisibleJSON(r.Args)
	case s.Kind == requests.KindTask:
		row("asks", s.Type)
		title, text = "data", VisibleJSON(s.Event.Data)
	default:
		row("asks", string(s.Kind))
	}
	if err := t.write(w, "", 0); err != nil {
		return err
	}
	asked, isForm := formIn(s.Event.Data)
	isForm = isForm && s.Kind == requests.KindQuestion
	author := "the model"
	if isForm {
		author = "a tool" // models cannot ask for a form
	}
	Block(w, title+", written by "+author, text)
	if isForm {
		if err := asked.write(w); err != nil {
			return err
		}
	}
	for n, suggestion := range s.Suggestions {
		fmt.Fprintf(w, "  %d. %s\n", n+1, Visible(suggestion, false))
	}
	return nil
}

// terms are what only a permission request has.
func (s *Request) terms(row func(label, text string)) {
	r := s.Request
	then := "the call waits for the decision, and is made with exactly these arguments"
	if r.Mode == sdk.PermissionRetry {
		then = "the model is told of the decision, and may then make exactly this call once"
	}
	row("then", then)
	row("scopes", scopesOf(r))
	row("who decides", approversOf(r))
	if r.RemindMillis > 0 {
		row("reminders", "every "+Duration(time.Duration(r.RemindMillis)*time.Millisecond))
	}
	if r.Results {
		row("or", "you give the call its result, and it is not made")
	}
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
		row("escalated", Count(r.Stage, "domain")+" did not decide in time")
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

func (s *Request) writeDecisions(w io.Writer) {
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
		fmt.Fprintf(w, "  %s  %s  %s\n", time.UnixMilli(sent.At).Format(time.TimeOnly), who, Visible(text, false))
	}
	if s.Unknown != "" {
		fmt.Fprintf(w, "  %s\n", Visible(s.Unknown, false))
	}
}
