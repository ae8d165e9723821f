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
	"agentd/sdk/wire"
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
	if err := s.writeAsked(w); err != nil {
		return err
	}
	if s.Request != nil {
		fmt.Fprintln(w, "\nterms")
		var t Table
		s.Terms(func(label, text string) {
			if text != "" {
				t.Row(label, Visible(text))
			}
		})
		if err := t.Write(w, "  ", 0); err != nil {
			return err
		}
		for _, c := range s.Request.Each() {
			if full {
				Block(w, "schema of the arguments"+ofCall(s.Request, &c), VisibleJSON(c.Parameters))
			}
		}
	}
	s.writeDecisions(w)
	if s.Unrecorded != "" {
		fmt.Fprintf(w, "\nthat you saw it could not be recorded: %s\n", Visible(s.Unrecorded))
	}
	return nil
}

// writeAsked shows what nobody must decide without: what is asked, why, and with exactly what.
func (s *Request) writeAsked(w io.Writer) error {
	var t Table
	row := func(label, text string) { t.Row(label, Visible(text)) }
	row("id", s.Short+"  ("+s.ID+")")
	row("asked", When(s.Asked)+", by agent "+s.Agent)
	row("run", s.Run)
	if s.Lost {
		row("lost", "the run's journal is lost: "+nobodyWaits)
	}
	if s.Expires > 0 {
		row("expires", due(s.Expires))
	}
	title, text := "text", VisibleLines(s.Text)
	switch r := s.Request; {
	case r != nil && len(r.Calls) > 0:
		row("asks", "for "+Count(len(r.Calls), "call"))
		if err := t.Write(w, "", 0); err != nil {
			return err
		}
		return writeCalls(w, r)
	case r != nil:
		one := r.Each()[0]
		asksFor(&one, row)
		title, text = Proposal(r.Tool, r.Args)
	case s.Kind == requests.KindTask:
		row("asks", s.Type)
		title, text = "data", VisibleJSON(s.Event.Data)
	default:
		row("asks", string(s.Kind))
	}
	if err := t.Write(w, "", 0); err != nil {
		return err
	}
	asked, isForm := formIn(s.Form())
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
		fmt.Fprintf(w, "  %d. %s\n", n+1, Visible(suggestion))
	}
	return nil
}

// asksFor are the tool of a call and why it needs permission.
func asksFor(c *sdk.PermissionCall, row func(label, text string)) {
	why := cmp.Or(c.Reason, "the policy asks")
	if c.Risk != "" {
		why += "; risk " + c.Risk
	}
	row("tool", c.Tool)
	row("why", why)
}

// writeCalls shows the calls of a request for several.
func writeCalls(w io.Writer, r *sdk.PermissionRequest) error {
	for i := range r.Calls {
		var t Table
		fmt.Fprintf(w, "\ncall %s\n", Visible(wire.CallPlace(r.Calls[i].Call)))
		asksFor(&r.Calls[i], func(label, text string) { t.Row(label, Visible(text)) })
		if err := t.Write(w, "  ", 0); err != nil {
			return err
		}
		Block(w, "arguments"+ofCall(r, &r.Calls[i])+", written by the model", VisibleJSON(r.Calls[i].Args))
	}
	return nil
}

// ofCall says which call something is of, where the request is for several.
func ofCall(r *sdk.PermissionRequest, c *sdk.PermissionCall) string {
	if len(r.Calls) == 0 {
		return ""
	}
	return " of " + Visible(wire.CallPlace(c.Call))
}

// Terms are what only a permission request has, as they are: escape them. A text may be empty.
func (s *Request) Terms(row func(label, text string)) {
	r := s.Request
	then := "the call waits for the decision, and is made with exactly these arguments"
	if r.Mode == sdk.PermissionRetry {
		then = "the model is told of the decision, and may then make exactly this call once"
	}
	if s.Type == sdk.TypePlanReview {
		then = "the run waits for the decision, and carries out exactly this plan; each of its calls is ruled on when it is chosen"
	}
	if len(r.Calls) > 0 {
		then += "; this is so for each call, and they may be decided one by one"
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
	for _, c := range r.Each() {
		if c.Type != "" {
			row("contract"+ofCall(r, &c), c.Schema)
		}
		if claims := labelsOf(c.Labels); claims != "" {
			row("labels"+ofCall(r, &c), claims+", as the contract says")
		}
	}
	row("domain", s.Domain)
	if r.Stage > 0 {
		row("escalated", Count(r.Stage, "domain")+" did not decide in time")
	}
	for _, c := range r.Each() {
		row("rule"+ofCall(r, &c), c.Rule)
	}
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
	for _, d := range s.SoFar() {
		fmt.Fprintf(w, "  %s  %s  %s\n", clock(d.At), d.Who, Visible(d.Text))
	}
	if s.Unknown != "" {
		fmt.Fprintf(w, "  %s\n", Visible(s.Unknown))
	}
}

// Said is what somebody answered, and what became of it, in words. At is in Unix milliseconds.
type Said struct {
	At        int64
	Who, Text string
}

// SoFar are the answers that were published, as they are: escape them.
func (s *Request) SoFar() []Said {
	recorded := map[string]core.Decision{} // of a decision on several calls what counts, where some of it does
	for _, d := range s.Decisions {
		if before, known := recorded[d.Event]; !known || before.Refused != "" {
			recorded[d.Event] = d
		}
	}
	var all []Said
	for _, sent := range s.Sent {
		text := cmp.Or(string(sent.Decision), "answered")
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
		all = append(all, Said{sent.At, cmp.Or(sent.Who, "somebody anonymous"), text})
	}
	return all
}
