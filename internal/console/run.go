package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"

	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/milestone"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// runHead is what all pages of a run begin with. Times are in Unix milliseconds.
type runHead struct {
	Run, Agent, Tab string
	Head            *core.Head
	// Revision and Changed are those of the last entry.
	Revision uint64
	Changed  int64
	Status   string
	Reason   string
	Parked   string
	Waits    []waitsFor
	Tags     map[string]string
	// Called is the address of the list of runs that this one called.
	Called string
	// Can says what may be done with the run now.
	Can steering
}

// waitsFor is a call that a run waits for. Address is the page of the request, where a person is asked.
type waitsFor struct {
	What     string `json:"what"`
	Address  string `json:"-"`
	Type     string `json:"type"`
	Due      int64  `json:"due,omitempty"`
	Unserved bool   `json:"unserved,omitempty"`
	// Request is what a person is asked, and Call the call's id.
	Request string `json:"request,omitempty"`
	Call    string `json:"call"`
}

// steering says which actions the run offers.
type steering struct{ Send, Pause, Resume, Unpark, Retry, Cancel bool }

func (s steering) Any() bool { return s != steering{} }

// last is the last entry of the run that the address names.
func (c *console) last(r *request) (core.Entry, error) {
	return c.Source.Last(r.Context(), r.PathValue("run"))
}

// find is the run with that name as its clients know it.
func (c *console) find(ctx context.Context, run string) (client.Run, error) {
	last, err := c.Source.Last(ctx, run)
	return client.Run{Agent: last.Head.Agent, Name: run}, err
}

func (c *console) head(r *request, last *core.Entry, tab string) runHead {
	h := &last.Head
	p := runHead{
		Run: h.Run, Agent: h.Agent, Tab: tab, Head: h, Revision: last.Rev, Changed: last.At, Status: string(h.Status),
		Reason: show.ReasonText(h.Reason, h.ReasonCode), Parked: show.ParkedText(h.Parked, c.now().UnixMilli()),
	}
	if h.Status != core.StatusDone {
		p.Reason = ""
	}
	p.Tags, _ = wire.ParseTags(h.Tags) // what is in a head was read before
	p.Called = listAddress((index.Filter{Terms: []index.Term{{Key: index.KeyParent, With: index.Is, Value: h.Run}}}).String(), "", "")
	for _, call := range show.WaitingCalls(h) {
		p.Waits = append(p.Waits, c.waitsFor(r.Context(), h, call))
	}
	done := h.Status == core.StatusDone
	if !r.user.Operator {
		return p
	}
	p.Can = steering{
		Send: !done, Pause: !done && h.Paused == nil, Resume: !done && h.Paused != nil, Unpark: !done && h.Parked != nil && h.Parked.Until > 0,
		Retry: done && h.Purged == nil && h.CheckRetry() == nil, Cancel: !done,
	}
	return p
}

func (c *console) waitsFor(ctx context.Context, h *core.Head, call show.WaitingCall) waitsFor {
	w := waitsFor{What: cmp.Or(call.Tool, "the person"), Type: call.Type, Due: call.Due, Call: call.Call}
	switch {
	case call.Type == sdk.TypePlanReview:
		w.What = "approval of its plan"
	case requests.KindOf(call.Type) == requests.KindPermission:
		w.What = "permission for " + call.Tool
	}
	for _, i := range c.Desk.List() {
		if ref, ok := wire.ParseCallRef(i.ID); ok && ref.ID == call.Call && i.Run == h.Run {
			w.Request, w.Address = i.ID, itemAddress(i.ID)
		}
	}
	if call.ToService {
		w.Unserved, _ = c.Source.Unserved(ctx, call.Domain, call.Type) // who may not see that is told of the call alone
	}
	return w
}

type eventsPage struct {
	runHead
	Lines []happened
	// Earlier is the address of the events before, and Live that of those to come; empty is that there are none here.
	Earlier, Live string
}

// linesShown is how many milestones the page of events begins with at least, where there are as many.
const linesShown = 100

func (c *console) events(r *request) (*view, error) {
	last, err := c.last(r)
	if err != nil {
		return nil, err
	}
	p := &eventsPage{runHead: c.head(r, &last, "events")}
	end := last.Rev + 1
	if before := mark(r.URL.Query().Get("before")).Revision; before > 0 && before < end {
		end = before
	}
	entries, err := c.back(r.Context(), p.Run, end, func(read []core.Entry) bool { return len(happenedAt(read)) >= linesShown })
	if err != nil {
		return nil, err
	}
	p.Lines = happenedAt(entries)
	if n := len(p.Lines) - linesShown; n > 0 {
		first := mark(p.Lines[n].ID).Revision // the lines of an entry stay together
		p.Lines = slices.DeleteFunc(p.Lines, func(h happened) bool { return mark(h.ID).Revision < first })
		p.Earlier = earlier(wire.Mark{Revision: first})
	} else if len(entries) > 0 && entries[0].Rev > 1 {
		p.Earlier = earlier(wire.Mark{Revision: entries[0].Rev})
	}
	if end > last.Rev && last.Head.Status != core.StatusDone { // what follows is after all milestones of the last entry
		p.Live = "/live/runs/" + url.PathEscape(p.Run) + "?after=" + fmt.Sprintf("%d.%d", last.Rev, math.MaxInt32)
	}
	return &view{Title: "Events of " + show.Line(p.Run, shortLength), Template: "events", Place: placeRuns, Data: p}, nil
}

// happenedAt is what happened at entries.
func happenedAt(entries []core.Entry) []happened {
	var d show.Describer
	var lines []happened
	for i := range entries {
		for _, l := range milestone.Of(&entries[i]) {
			if h, ok := happenedIn(&d, l); ok {
				lines = append(lines, h)
			}
		}
	}
	return lines
}
