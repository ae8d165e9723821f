package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type inboxPage struct {
	Items   []asked
	Omitted int
}

// asked is an item in the list.
type asked struct {
	requests.Item
	What, Address string
}

func (c *console) inbox(r *request) (*view, error) {
	p := &inboxPage{Omitted: c.Desk.Omitted()}
	for _, i := range c.Desk.Marked(r.Context(), c.Desk.List()) {
		p.Items = append(p.Items, asked{i, show.What(&i), itemAddress(i.ID)})
	}
	return &view{Title: "Inbox", Template: placeInbox, Place: placeInbox, Data: p}, nil
}

func itemAddress(id string) string { return "/inbox/" + url.PathEscape(id) }

// requestPage is an item for somebody who decides or answers.
type requestPage struct {
	show.Request
	Address string
	// Message is the address of the place in the conversation that asks.
	Message string
	// Asks is what is asked, Mine whether somebody may act here at all, and Refusal why nobody can decide in the console.
	Asks    string
	Refusal string
	Calls   []askedCall
	Terms   []term
	// Data is that of a task, Form what an answer is filled in with, and Types the event types that it may have.
	Data  string
	Form  form
	Types []string
	// Several says that the request is for several calls, and Editable that arguments may be changed.
	Several, Editable bool
	Scopes            []sdk.GrantScope
	SaidSoFar         []show.Said
	// Seen are those who were shown it.
	Seen []string
	// Who answers; without one nobody can here, or NotYours says why this user cannot.
	Who, NotYours string
}

// askedCall is a call that needs permission.
type askedCall struct {
	sdk.PermissionCall
	// Proposal is what is decided on, and What it is.
	What, Proposal string
}

type term struct{ Label, Text string }

func (c *console) request(r *request) (*view, error) {
	p, err := c.look(r)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		if removed, known := c.Desk.Closed(r.PathValue("id")); known {
			return c.tooLate(r.Context(), removed), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &view{Title: "Request " + p.Short, Template: "request", Place: placeInbox, Data: p}, nil
}

// closedPage is a request that is not open any more, with what was decided on it.
type closedPage struct {
	show.Request
	Asks, Closed string
	SaidSoFar    []show.Said
}

// tooLate shows what became of a request to whoever opens it too late.
func (c *console) tooLate(ctx context.Context, removed requests.Change) *view {
	item := removed.Item
	item.Short = requests.ShortID(item.ID)
	p := &closedPage{Asks: heading(&item), Closed: "It is not open: it " + removed.Reason.Text()}
	p.Item = item
	c.recorded(ctx, &p.Request)
	p.SaidSoFar = p.SoFar()
	return &view{Title: "Request " + item.Short, Template: "closed", Place: placeInbox, Data: p, Status: http.StatusGone}
}

// liveRequest sends whether a request is still open when that is not what the page says already: somebody else may have answered it, and an
// answer that did not count opens it again.
func (c *console) liveRequest(w http.ResponseWriter, r *http.Request) {
	id, closed := r.PathValue("id"), ""
	if item, err := c.Desk.Find(id); err != nil {
		closed = sdk.AsError(err).Message
	} else if item.ID != id {
		closed = "request " + id + " is not open"
	}
	if said := r.URL.Query().Has("said"); said == (closed != "") {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.sendPart(w, "open", map[string]string{"Address": itemAddress(id), "Closed": closed})
}

// heading is what is asked, in words.
func heading(i *requests.Item) string {
	if i.Type == sdk.TypePlanReview {
		return "Approval of a plan"
	}
	switch i.Kind {
	case requests.KindPermission:
		return "Permission for " + show.What(i)
	case requests.KindQuestion:
		return "A question"
	case requests.KindTurn:
		return "The person’s turn"
	case requests.KindTask:
	}
	return show.What(i)
}

// look reads a request for somebody who is going to see it, which the run records.
func (c *console) look(r *request) (*requestPage, error) {
	item, err := c.Desk.Find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p := &requestPage{Address: itemAddress(item.ID), Asks: heading(&item)}
	own, done, err := r.desk(item.Domain)
	if err != nil {
		p.NotYours = sdk.AsError(err).Message
		if p.Detail, err = c.Desk.Detail(r.Context(), item.ID); err == nil {
			p.Item = c.Desk.Marked(r.Context(), []requests.Item{p.Item})[0]
		}
	} else {
		defer done()
		var unrecorded error
		p.Who = r.user.Who
		if p.Detail, unrecorded, err = own.View(r.Context(), item.ID, r.user.Who); unrecorded != nil {
			p.Unrecorded = sdk.AsError(unrecorded).Message
		}
	}
	if err != nil {
		return nil, err
	}
	detail := p.Detail
	if !detail.Lost {
		c.recorded(r.Context(), &p.Request)
	}
	p.SaidSoFar = p.SoFar()
	c.ofRun(r.Context(), p, &item)
	switch detail.Kind {
	case requests.KindPermission:
		p.permission()
	case requests.KindTask:
		p.Data = show.VisibleJSON(detail.Event.Data)
		p.task(c.Desk)
	case requests.KindQuestion:
		if asked := detail.Form(); len(asked) > 0 {
			p.Form = newForm(asked, nil)
		}
	case requests.KindTurn:
	}
	return p, nil
}

// recorded adds what the run recorded of decisions on a request.
func (c *console) recorded(ctx context.Context, shown *show.Request) {
	var err error
	if shown.Decisions, err = c.Desk.History(ctx, shown.Item); err != nil {
		shown.Unknown = "what the run recorded is not known: " + sdk.AsError(err).Message
	}
}

// ofRun adds what the run knows: who was shown a permission request, and which call of the conversation asks. Where its journal cannot be
// read, that is told elsewhere.
func (c *console) ofRun(ctx context.Context, p *requestPage, i *requests.Item) {
	ref, _ := wire.ParseCallRef(i.ID) // no call has another form of id
	last, err := c.Source.Last(ctx, i.Run)
	if err != nil {
		p.Message = messageAddress(i.Run, "")
		return
	}
	p.Message = messageAddress(i.Run, asker(last.Head.Calls, ref.ID))
	for n := range last.Head.Calls {
		call := &last.Head.Calls[n]
		if call.Permission == nil || call.ID != ref.ID && call.Permission.Batch != ref.ID {
			continue
		}
		for _, name := range call.Permission.Viewed {
			if name = cmp.Or(name, "somebody anonymous"); !slices.Contains(p.Seen, name) {
				p.Seen = append(p.Seen, name)
			}
		}
	}
}

// asker is the call in the conversation that a request is about: of several, the first. A person's turn is about none.
func asker(calls []core.Call, request string) string {
	for n := range calls {
		switch call := &calls[n]; {
		case call.Held == request:
			return call.ID
		case call.ID == request && call.Kind == core.CallTurn:
			return ""
		case call.ID == request && call.Kind == core.CallQuestion:
			return call.Asker()
		}
	}
	return request
}

// messageAddress is that of a call in the conversation of a run; no call is the end of it.
func messageAddress(run, call string) string {
	place := "#last"
	if call != "" {
		place = "#call-" + url.PathEscape(call)
	}
	return "/runs/" + url.PathEscape(run) + place
}

func (p *requestPage) permission() {
	q := p.Request.Request
	for _, call := range q.Each() {
		what, proposal := show.Proposal(call.Tool, call.Args)
		p.Calls = append(p.Calls, askedCall{call, what, proposal})
	}
	p.Request.Terms(func(label, text string) { p.Terms = append(p.Terms, term{label, text}) })
	p.Several = len(q.Calls) > 0
	p.Editable = !p.Several && q.Mode == sdk.PermissionHold && q.Quorum <= 1 && !q.Signed
	p.Scopes = slices.DeleteFunc(slices.Clone(q.Scopes), func(s sdk.GrantScope) bool { return s == sdk.ScopeCall })
	switch {
	case p.Lost:
		p.Refusal = "The journal of the run is lost, so nobody waits for an answer. To end such runs: agentd reconcile"
	case q.Signed:
		p.Refusal = "This request wants a signed decision, and no key for that ever comes into a browser: agentd approvals approve " + p.Short
	}
}

func (p *requestPage) task(d *desk.Desk) {
	eventType, schema, err := d.AnswerSchema(p.Detail, "")
	if err == nil {
		p.Types, p.Form = []string{eventType}, newForm(schema, nil)
		return
	}
	p.Refusal = show.Problem(err) + ". Answer it with: agentd approvals answer " + p.Short
}

// editPage is a form with the arguments of a call, or what was filled in, next to what it was.
type editPage struct {
	ID, Short, Tool, Hash string
	// What is what is edited: a plan, or arguments.
	What string
	Form form
	// Args are the new arguments, once they fit the tool, as they are sent, and Difference how they differ.
	Args       string
	Difference []show.ComparedLine
	Same       bool
	// Problem says why what was filled in cannot count.
	Problem string
	Faults  []sdk.Fault
}

// editable reads a request for one call whose arguments may be changed.
func (c *console) editable(r *request) (*requestPage, *editPage, error) {
	p, err := c.look(r)
	if err != nil {
		return nil, nil, err
	}
	if p.Request.Request == nil || !p.Editable {
		return nil, nil, sdk.Errorf(sdk.CodeDecisionRefused, "the arguments of this request cannot be edited; approve or deny it as it is")
	}
	q := p.Request.Request
	return p, &editPage{ID: p.ID, Short: p.Short, Tool: q.Tool, Hash: q.ArgsHash, What: p.Calls[0].What, Form: newForm(q.Parameters, q.Args)}, nil
}

func (c *console) edit(r *request) (*view, error) {
	_, e, err := c.editable(r)
	return &view{Title: "Edit", Template: "edit", Place: placeInbox, Data: e}, err
}

// compare shows what an edit changes, before it counts.
func (c *console) compare(r *request) (*view, error) {
	p, e, err := c.editable(r)
	if err != nil {
		return nil, err
	}
	v := &view{Title: "Edit", Template: "edit", Place: placeInbox, Data: e}
	q := p.Request.Request
	args, err := e.Form.read(r.PostForm)
	if err == nil {
		var checked sdk.PermissionDecision
		if checked, err = desk.CheckEdit(q, args); err == nil {
			args = checked.Args
		}
	}
	if err != nil {
		problem := sdk.AsError(err)
		e.Problem, e.Faults, v.Status = problem.Message, problem.Faults, http.StatusUnprocessableEntity
		e.Form = e.Form.with(r.PostForm)
		return v, nil
	}
	e.Args, e.Difference, e.Same = string(args), show.DifferentProposals(q.Tool, q.Args, args), string(args) == string(q.Args)
	e.Form = newForm(q.Parameters, args)
	return v, nil
}

type outcomePage struct {
	Item    requests.Item
	Title   string
	Said    string
	Refused string
	As      string
	// Next is the address of what waits next; empty is that nothing does.
	Next string
}
