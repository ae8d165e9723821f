package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"agentd/internal/core"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type conversationPage struct {
	runHead
	System   folded
	Messages []message
	// Plan is what became of each step of the run's plan; it is empty on pages of earlier messages.
	Plan string
	// Earlier is the address of the messages before; empty is that the conversation begins here.
	Earlier  string
	Unsaid   []folded
	Terminal *core.Terminal
	Result   folded
	Purged   *core.Purged
}

// message is something that was said, or a call with its result.
type message struct {
	Role, Text string
	Shown      folded
	Thinking   bool
	Call       *calledTool
	// at is the entry that it came with, and its place there.
	at wire.Mark
}

// calledTool is a call joined to its result by the call's id.
type calledTool struct {
	ID, Tool, Args, Result string
	// What is shown of Args, Result and what they were edited to.
	ShownArgs, ShownResult, ShownEdit folded
	// Answered says that Result is there, and Later that there is one which the page has not read.
	Answered, Later, Error bool
	Edited, Denied         string
}

// messagesShown is how many messages a page shows, and roomShown how many bytes of them it shows beside the beginnings.
const (
	messagesShown = 50
	roomShown     = 96 << 10
)

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
	end := mark(r.URL.Query().Get("before"))
	newest := end == (wire.Mark{}) || end.Revision > last.Rev
	if newest {
		end = wire.Mark{Revision: last.Rev + 1}
	}
	entries, err := c.back(r.Context(), p.Run, end.Revision+1, func(read []core.Entry) bool {
		return len(saidBefore(said(read, &last.Head), end)) > messagesShown
	})
	if err != nil {
		return nil, err
	}
	// Results come later than their calls.
	later, err := c.Source.Part(r.Context(), p.Run, end.Revision+1, entriesRead)
	if err != nil {
		return nil, err
	}
	entries = slices.Concat(entries, later)
	all := saidBefore(said(entries, &last.Head), end)
	p.Messages = all[max(len(all)-messagesShown, 0):]
	switch {
	case len(all) > messagesShown:
		p.Earlier = earlier(p.Messages[0].at)
	case len(entries) > 0 && entries[0].Rev > 1:
		p.Earlier = earlier(wire.Mark{Revision: entries[0].Rev})
	}
	var f folder
	if newest {
		p.Plan = show.Plan(&last.Head)
		p.end(&f, entries)
	}
	for i := len(p.Messages) - 1; i >= 0; i-- {
		p.Messages[i].fold(&f)
	}
	if p.Earlier == "" {
		p.System = f.fold(systemOf(entries))
	}
	return v, nil
}

// earlier is the address of the messages before a place.
func earlier(at wire.Mark) string { return "?before=" + markText(at) }

func markText(at wire.Mark) string { return fmt.Sprintf("%d.%d", at.Revision, at.Index) }

// saidBefore are the messages before a place.
func saidBefore(all []message, end wire.Mark) []message {
	n, _ := slices.BinarySearchFunc(all, end, func(m message, end wire.Mark) int {
		return cmp.Or(cmp.Compare(m.at.Revision, end.Revision), cmp.Compare(m.at.Index, end.Index))
	})
	return all[:n]
}

// end is what the page of the last messages has besides: what is not said yet, and what the run ended with.
func (p *conversationPage) end(f *folder, entries []core.Entry) {
	notes := map[string]string{}
	entries = core.InParts(entries)
	for i := range entries {
		if entries[i].Terminal != nil {
			p.Terminal = entries[i].Terminal
		}
		for _, n := range entries[i].Notes {
			notes[n.ID] = n.Text
		}
	}
	if p.Terminal != nil {
		p.Result = f.fold(show.Indent(p.Terminal.Data))
	}
	if p.Head.Status == core.StatusDone {
		return
	}
	for _, id := range p.Head.Notes {
		if text, known := notes[id]; known {
			p.Unsaid = append(p.Unsaid, f.fold(text))
		}
	}
}

// systemOf is the system prompt that the run has after these entries, which begin with its first.
func systemOf(entries []core.Entry) (system string) {
	for i := range entries {
		system = cmp.Or(entries[i].System, system)
	}
	return system
}

// said are the parts of a conversation, or of a part of it, with each result at its call.
func said(entries []core.Entry, last *core.Head) []message {
	t := transcript{open: map[string]*calledTool{}, results: map[string]*core.Result{}, notes: map[string]string{}, last: last}
	entries = core.InParts(entries)
	t.edits, t.denials = decisionsIn(entries)
	for i := range entries {
		for n := range entries[i].Results {
			t.results[entries[i].Results[n].Call] = &entries[i].Results[n]
		}
		for _, n := range entries[i].Notes {
			t.notes[n.ID] = n.Text
		}
	}
	before, n := 0, 0 // what there was before the last part, and of the entry
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Reopens:
			t.all = t.all[:before]
		case i > 0 && e.Kind == core.KindRetried && entries[i-1].Head.Unbegun():
			t.all = nil
		}
		before = len(t.all)
		if i == 0 || entries[i-1].Rev < e.Rev {
			n = 0
		}
		for _, m := range e.Messages {
			media := 0
			for k := range m.Content {
				if part, ok := t.part(m.Role, &m.Content[k], &media); ok {
					part.at = wire.Mark{Revision: e.Rev, Index: n}
					t.all = append(t.all, part)
					n++
				}
			}
		}
	}
	return t.all
}

// transcript is a conversation that is being put together.
type transcript struct {
	all     []message
	open    map[string]*calledTool
	results map[string]*core.Result
	notes   map[string]string
	edits   map[string]json.RawMessage
	denials map[string]string
	last    *core.Head
}

// part is what a content is shown as; ok is false for a result, which is shown at its call.
func (t *transcript) part(role sdk.Role, content *sdk.Content, media *int) (m message, ok bool) {
	if content.Kind == sdk.ContentToolUse {
		call := t.called(content)
		t.open[content.CallID] = call
		return message{Role: "call", Call: call}, true
	}
	if content.Kind == sdk.ContentToolResult && t.open[content.CallID] != nil {
		return m, false
	}
	shown := *content
	switch result := t.results[content.CallID]; {
	case content.CallID == "":
	case t.notes[content.CallID] != "":
		shown.Text = t.notes[content.CallID]
	case result == nil && !content.Pending:
		shown.Text = "(in an entry before)"
	case result != nil && content.Kind == sdk.ContentMedia:
		if *media < len(result.Media) {
			shown.Media = &result.Media[*media]
			*media++
		}
	case result != nil:
		shown.Text = t.text(result)
	}
	who, text := show.ContentText(role, &shown)
	return message{Role: who, Text: text, Thinking: content.Kind == sdk.ContentThinking}, true
}

// called is a call with what is known of its result.
func (t *transcript) called(content *sdk.Content) *calledTool {
	call := &calledTool{
		ID: content.CallID, Tool: content.Tool, Args: proposed(content.Tool, content.Args), Denied: t.denials[content.CallID],
	}
	if edited := t.edits[content.CallID]; len(edited) > 0 {
		call.Edited = proposed(content.Tool, edited)
	}
	if result := t.results[content.CallID]; result != nil {
		call.Result, call.Answered, call.Error = proposed(content.Tool, []byte(t.text(result))), true, result.Error
		return call
	}
	call.Later = !slices.ContainsFunc(t.last.Calls, func(c core.Call) bool { return c.ID == content.CallID && !c.Closed() })
	return call
}

// proposed is a plan that people review, in steps, or JSON, indented.
func proposed(tool string, data json.RawMessage) string {
	if tool != sdk.ToolReviewPlan {
		return show.Indent(data)
	}
	_, text := show.Proposal(tool, data)
	return text
}

// text is a result, or the one of the earlier call that it repeats.
func (t *transcript) text(result *core.Result) string {
	if earlier := t.results[result.Of]; earlier != nil {
		return string(earlier.Data)
	}
	return string(result.Data)
}

// fold says how much of the message is shown.
func (m *message) fold(f *folder) {
	if m.Call == nil {
		m.Shown = f.fold(m.Text)
		return
	}
	m.Call.ShownResult, m.Call.ShownEdit, m.Call.ShownArgs = f.fold(m.Call.Result), f.fold(m.Call.Edited), f.fold(m.Call.Args)
}

// decisionsIn are what people put in place of arguments, and why they denied calls, by the calls' ids.
func decisionsIn(entries []core.Entry) (edits map[string]json.RawMessage, denials map[string]string) {
	edits, denials = map[string]json.RawMessage{}, map[string]string{}
	for i := range entries {
		for _, e := range entries[i].Edits {
			edits[e.Call] = e.Args
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
