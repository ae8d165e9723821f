package console

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"

	"agentd/internal/core"
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
	// Can says what may be done with the run now.
	Can steering
}

// waitsFor is a call that a run waits for. Address is the page of the request, where a person is asked.
type waitsFor struct {
	What, Address, Type string
	Due                 int64
	Unserved            bool
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
		Reason: show.ReasonText(h.Reason, h.ReasonCode), Parked: show.ParkedText(h.Parked),
	}
	if h.Status != core.StatusDone {
		p.Reason = ""
	}
	for _, call := range show.WaitingCalls(h) {
		p.Waits = append(p.Waits, c.waitsFor(r.Context(), h, call))
	}
	done := h.Status == core.StatusDone
	p.Can = steering{
		Send: !done, Pause: !done && h.Paused == nil, Resume: !done && h.Paused != nil, Unpark: !done && h.Parked != nil && h.Parked.Until > 0,
		Retry: done && h.Purged == nil && h.CheckRetry() == nil, Cancel: !done,
	}
	return p
}

func (c *console) waitsFor(ctx context.Context, h *core.Head, call show.WaitingCall) waitsFor {
	w := waitsFor{What: cmp.Or(call.Tool, "the person"), Type: call.Type, Due: call.Due}
	if requests.KindOf(call.Type) == requests.KindPermission {
		w.What = "permission for " + call.Tool
	}
	for _, i := range c.Desk.List() {
		if ref, ok := wire.ParseCallRef(i.ID); ok && ref.ID == call.Call && i.Run == h.Run {
			w.Address = "/inbox/" + url.PathEscape(i.ID)
		}
	}
	if call.ToService {
		w.Unserved, _ = c.Source.Unserved(ctx, call.Domain, call.Type) // who may not see that is told of the call alone
	}
	return w
}

type conversationPage struct {
	runHead
	Started  int64
	System   string
	Messages []message
	// Earlier is the address of the messages before, Hidden how many there are.
	Earlier  string
	Hidden   int
	Unsaid   []string
	Terminal *core.Terminal
	Result   string
	Purged   *core.Purged
}

// message is something that was said, or a call with its result.
type message struct {
	Role, Text string
	Thinking   bool
	Call       *calledTool
}

// calledTool is a call joined to its result by the call's id.
type calledTool struct {
	ID, Tool, Args, Result string
	Answered, Error        bool
	Edited, Denied         string
}

// messagesShown is how many messages a page shows.
const messagesShown = 50

func (c *console) conversation(r *request) (*view, error) {
	last, err := c.last(r)
	if err != nil {
		return nil, err
	}
	p := &conversationPage{runHead: c.head(r, &last, "conversation"), Purged: last.Head.Purged}
	v := &view{Title: show.Line(p.Run, shortLength), Template: "conversation", Place: placeRuns, Data: p}
	if p.Purged != nil {
		return v, nil
	}
	entries, err := c.Source.Journal(r.Context(), p.Run)
	if err != nil {
		return nil, err
	}
	d, err := show.DetailsOf(entries)
	if err != nil {
		return nil, err
	}
	p.Started, p.System, p.Unsaid, p.Terminal = d.Started, d.System, d.Unsaid, d.Terminal
	if d.Terminal != nil {
		p.Result = show.VisibleJSON(d.Terminal.Data)
	}
	all := said(d.Messages, entries)
	end := len(all)
	if before, err := strconv.Atoi(r.URL.Query().Get("before")); err == nil && before > 0 {
		end = min(before, end)
	}
	p.Hidden = max(end-messagesShown, 0)
	p.Messages = all[p.Hidden:end]
	if p.Hidden > 0 {
		p.Earlier = "?before=" + strconv.Itoa(p.Hidden)
	}
	return v, nil
}

// said are the parts of a conversation, with each result at its call.
func said(messages []sdk.Message, entries []core.Entry) []message {
	var all []message
	edits, denials := decisionsIn(entries)
	open := map[string]*calledTool{}
	for _, m := range messages {
		for i := range m.Content {
			content := &m.Content[i]
			switch content.Kind {
			case sdk.ContentToolUse:
				call := &calledTool{
					ID: content.CallID, Tool: content.Tool, Args: show.Indent(content.Args), Edited: edits[content.CallID], Denied: denials[content.CallID],
				}
				open[content.CallID] = call
				all = append(all, message{Role: "call", Call: call})
				continue
			case sdk.ContentToolResult:
				if call := open[content.CallID]; call != nil {
					call.Result, call.Answered, call.Error = show.Indent([]byte(content.Text)), true, content.IsError
					continue
				}
			case sdk.ContentMedia, sdk.ContentRedacted, sdk.ContentText, sdk.ContentThinking:
			}
			who, text := show.ContentText(m.Role, content)
			all = append(all, message{Role: who, Text: text, Thinking: content.Kind == sdk.ContentThinking})
		}
	}
	return all
}

// decisionsIn are what people put in place of arguments, and why they denied calls, by the calls' ids.
func decisionsIn(entries []core.Entry) (edits, denials map[string]string) {
	edits, denials = map[string]string{}, map[string]string{}
	for i := range entries {
		for _, e := range entries[i].Edits {
			edits[e.Call] = show.Indent(e.Args)
		}
		for _, d := range entries[i].Decisions {
			if d.Refused == "" && d.Decision == sdk.DecisionDeny {
				denials[d.Call] = cmp.Or(d.Reason, "denied") + by(d.Who)
			}
		}
	}
	return edits, denials
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " (" + who + ")"
}

type journalPage struct {
	runHead
	Rows []show.JournalRow
	Kind string
	// Kinds are those that the journal has, Older and Newer the addresses of other parts.
	Kinds        []string
	Older, Newer string
}

// entriesShown is how many entries a page of the journal has.
const entriesShown = 100

func (c *console) journal(r *request) (*view, error) {
	entries, err := c.Source.Journal(r.Context(), r.PathValue("run"))
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, notFound("this run does not exist")
	}
	p := &journalPage{runHead: c.head(r, &entries[len(entries)-1], "journal"), Kind: r.URL.Query().Get("kind")}
	seen := map[string]bool{}
	var chosen []*core.Entry
	for i := range entries {
		e := &entries[i]
		if !seen[e.Kind] {
			seen[e.Kind] = true
			p.Kinds = append(p.Kinds, e.Kind)
		}
		if p.Kind == "" || e.Kind == p.Kind {
			chosen = append(chosen, e)
		}
	}
	end := len(chosen)
	if from, err := strconv.Atoi(r.URL.Query().Get("before")); err == nil && from > 0 && from < end {
		end = from
		p.Newer = older(p.Kind, min(end+entriesShown, len(chosen)))
	}
	begin := max(end-entriesShown, 0)
	if begin > 0 {
		p.Older = older(p.Kind, begin)
	}
	for i := end - 1; i >= begin; i-- {
		p.Rows = append(p.Rows, show.RowOfEntry(chosen[i]))
	}
	return &view{Title: "Journal of " + show.Line(p.Run, shortLength), Template: "journal", Place: placeRuns, Data: p}, nil
}

// older is the address of the entries before the one with that number among those of the kind.
func older(kind string, before int) string {
	return "?" + url.Values{"kind": {kind}, "before": {strconv.Itoa(before)}}.Encode()
}

type entryPage struct {
	runHead
	Entry          *core.Entry
	JSON           string
	Previous, Next uint64
	// Difference is how the head differs from that of the entry before.
	Difference []show.ComparedLine
}

// entriesAt are the entries of the run that the address names, and the place of the one with the revision rev; 0 is the last.
func (c *console) entriesAt(r *request, rev string) (entries []core.Entry, at int, err error) {
	if entries, err = c.Source.Journal(r.Context(), r.PathValue("run")); err != nil {
		return nil, 0, err
	}
	if rev == "" && len(entries) > 0 {
		return entries, len(entries) - 1, nil
	}
	wanted, err := strconv.ParseUint(rev, 10, 64)
	for i := range entries {
		if err == nil && entries[i].Rev == wanted {
			return entries, i, nil
		}
	}
	return nil, 0, notFound("the journal of this run does not have such an entry")
}

func (c *console) entry(r *request) (*view, error) {
	entries, at, err := c.entriesAt(r, r.PathValue("rev"))
	if err != nil {
		return nil, err
	}
	e := &entries[at]
	p := &entryPage{runHead: c.head(r, &entries[len(entries)-1], "journal"), Entry: e}
	data, err := e.Encode()
	if err != nil {
		return nil, err
	}
	p.JSON = show.VisibleJSON(data)
	if at > 0 {
		p.Previous = entries[at-1].Rev
		if p.Difference, err = headsDiffer(&entries[at-1].Head, &e.Head); err != nil {
			return nil, err
		}
	}
	if at+1 < len(entries) {
		p.Next = entries[at+1].Rev
	}
	return &view{Title: "Entry of " + show.Line(p.Run, shortLength), Template: "entry", Place: placeRuns, Data: p}, nil
}

func headsDiffer(was, is *core.Head) ([]show.ComparedLine, error) {
	x, err := core.EncodeJSON(was)
	if err != nil {
		return nil, err
	}
	y, err := core.EncodeJSON(is)
	if err != nil {
		return nil, err
	}
	return show.DifferentLines(x, y), nil
}

type statePage struct {
	runHead
	At             uint64
	JSON           string
	Previous, Next uint64
}

// state is the head at any revision.
func (c *console) state(r *request) (*view, error) {
	entries, at, err := c.entriesAt(r, r.URL.Query().Get("at"))
	if err != nil {
		return nil, err
	}
	p := &statePage{runHead: c.head(r, &entries[len(entries)-1], "state"), At: entries[at].Rev}
	data, err := core.EncodeJSON(&entries[at].Head)
	if err != nil {
		return nil, err
	}
	p.JSON = show.VisibleJSON(data)
	if at > 0 {
		p.Previous = entries[at-1].Rev
	}
	if at+1 < len(entries) {
		p.Next = entries[at+1].Rev
	}
	return &view{Title: "State of " + show.Line(p.Run, shortLength), Template: "state", Place: placeRuns, Data: p}, nil
}

type eventsPage struct {
	runHead
	Lines   []happened
	Omitted int
	Live    string
	// Silent says why milestones cannot be had.
	Silent string
}

// linesShown is how many milestones the page of events begins with.
const linesShown = 100

func (c *console) events(r *request) (*view, error) {
	last, err := c.last(r)
	if err != nil {
		return nil, err
	}
	p := &eventsPage{runHead: c.head(r, &last, "events")}
	var d show.Describer
	after := ""
	for l, err := range c.Runs.History(r.Context(), client.Run{Agent: p.Agent, Name: p.Run}, wire.Mark{}) {
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			p.Silent = "No worker of " + show.Line(p.Agent, shortLength) + " answers, and workers tell what happened. The journal has it all the same."
			break
		}
		if err != nil {
			return nil, err
		}
		h, ok := happenedIn(&d, l)
		after = h.ID
		if ok {
			p.Lines = append(p.Lines, h)
		}
	}
	if p.Omitted = len(p.Lines) - linesShown; p.Omitted > 0 {
		p.Lines = p.Lines[p.Omitted:]
	}
	if last.Head.Status != core.StatusDone {
		p.Live = "/live/runs/" + url.PathEscape(p.Run) + "?after=" + after
	}
	return &view{Title: "Events of " + show.Line(p.Run, shortLength), Template: "events", Place: placeRuns, Data: p}, nil
}
