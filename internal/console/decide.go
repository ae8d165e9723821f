package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
)

// decide decides a permission request: on the arguments whose hash the form has, which are those that were shown.
func (c *console) decide(r *request) (*view, error) {
	item, err := c.Desk.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	d, err := c.decision(r)
	if err != nil {
		return nil, err
	}
	desk, done, err := r.desk(item.Domain)
	if err != nil {
		return nil, err
	}
	defer done()
	outcome, err := desk.Decide(r.Context(), item.ID, r.user.Who, d)
	if err != nil {
		return nil, err
	}
	return c.became(r, item, outcome, string(d.Decision)), nil
}

// decision is what the form says.
func (c *console) decision(r *request) (d sdk.PermissionDecision, err error) {
	value := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	d = sdk.PermissionDecision{
		Decision: sdk.Decision(value("decision")), ArgsHash: value("args_sha256"), Reason: strings.ReplaceAll(value("reason"), "\r\n", "\n"),
		Pattern: value("pattern"), All: value("call") == "all",
	}
	if d.Decision == sdk.DecisionAllow {
		d.Scope = sdk.GrantScope(value("scope"))
	}
	if args := value("args"); args != "" {
		d.Args = json.RawMessage(args)
	}
	if d.ArgsHash == "" {
		return d, sdk.Errorf(sdk.CodeContractViolation, "the form does not say which arguments it is about; open the request again")
	}
	if call := value("call"); call != "" && !d.All {
		d.Calls, d.ArgsHash = []sdk.CallDecision{{Call: call, ArgsHash: d.ArgsHash}}, ""
	}
	if d.Scope == "" || d.Scope == sdk.ScopeCall {
		return d, nil
	}
	if uses := value("uses"); uses != "" {
		if d.Uses, err = strconv.Atoi(uses); err != nil || d.Uses < 1 { // 0 would be without limit
			return d, sdk.Errorf(sdk.CodeContractViolation, "%q is not a number of uses; write one of at least 1, or leave it out", uses)
		}
	}
	if text := value("for"); text != "" {
		lasting, err := time.ParseDuration(text)
		if err != nil {
			return d, sdk.Errorf(sdk.CodeContractViolation, "%q is not a duration; write one such as 90m or 24h, or leave it out", text)
		}
		d.ExpiresMillis = c.now().Add(lasting).UnixMilli()
	}
	return d, nil
}

// answer answers a question, a turn or a task.
func (c *console) answer(r *request) (*view, error) {
	p, err := c.look(r)
	if err != nil {
		return nil, err
	}
	reply := client.Reply{Text: strings.ReplaceAll(r.PostFormValue("text"), "\r\n", "\n"), End: r.PostForm.Has("end"), Type: r.PostFormValue("type")}
	if suggested := r.PostFormValue("suggestion"); suggested != "" {
		reply.Text = suggested
	}
	if len(p.Form.Fields) > 0 || p.Kind == requests.KindTask || r.PostForm.Has(byJSON) {
		reply.Text = ""
		if reply.Data, err = p.Form.read(r.PostForm); err != nil {
			return nil, err
		}
	}
	desk, done, err := r.desk(p.Domain)
	if err != nil {
		return nil, err
	}
	defer done()
	outcome, err := desk.Answer(r.Context(), p.ID, r.user.Who, reply)
	if err != nil {
		return nil, err
	}
	return c.became(r, p.Item, outcome, "answer"), nil
}

// became says what an answer came to.
func (c *console) became(r *request, item requests.Item, o client.Outcome, what string) *view {
	p := &outcomePage{Item: item, As: r.user.As}
	v := &view{Template: "outcome", Place: placeInbox, Data: p}
	switch o.State {
	case client.OutcomeRefused:
		v.Status, p.Title, p.Refused = http.StatusConflict, "The run refused it", o.Refused
		p.Said = "It does not count."
		if o.Open {
			p.Said += " The request is still open."
		}
	case client.OutcomeSent:
		v.Status, p.Title = http.StatusAccepted, "Sent"
		p.Said = "It is stored, and no worker has handled it yet. The page of the run says what becomes of it."
	case client.OutcomeCounted:
		p.Title = map[string]string{"allow": "Allowed", "deny": "Denied", "ask": "Asked back"}[what]
		if p.Title == "" {
			p.Title = "Answered"
		}
		p.Said = "The run goes on."
		switch {
		case o.Quorum > 0:
			p.Said = fmt.Sprintf("%d of %s allowed it; further ones are needed.", o.Allowed, show.Count(o.Quorum, "approver"))
		case o.Rest > 0:
			p.Said = show.Count(o.Rest, "call") + " of the request are not decided yet."
		case o.Queued:
			p.Said = "The call is made when its turn has come."
		}
	}
	v.Title = p.Title
	for _, i := range c.Desk.List() {
		if i.ID != item.ID || o.Open {
			p.Next = itemAddress(i.ID)
			break
		}
	}
	return v
}
