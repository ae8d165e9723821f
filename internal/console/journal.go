package console

import (
	"net/url"
	"slices"
	"strconv"

	"agentd/internal/core"
	"agentd/internal/show"
)

type journalPage struct {
	runHead
	Rows []show.JournalRow
	// Kind is the kind of entries that is shown, or with Not the one that is not; empty is all. Kinds are all of them.
	Kind  string
	Not   bool
	Kinds []string
	// First and Last are the entries that the page looked through.
	First, Last uint64
	// Older, Newer and Newest are the addresses of other parts.
	Older, Newer, Newest string
}

// entriesShown is how many entries a page of the journal has.
const entriesShown = 100

func (c *console) journal(r *request) (*view, error) {
	last, err := c.last(r)
	if err != nil {
		return nil, err
	}
	values := r.URL.Query()
	p := &journalPage{runHead: c.head(r, &last, "journal"), Kind: values.Get("kind"), Not: values.Get("not") != "", Kinds: core.EntryKinds()}
	end := last.Rev + 1
	if before, err := strconv.ParseUint(values.Get("before"), 10, 64); err == nil && before > 0 && before < end {
		end = before
		p.Newest = p.part(last.Rev + 1)
		if p.Kind == "" {
			p.Newer = p.part(min(end+entriesShown, last.Rev+1))
		}
	}
	entries, err := c.back(r.Context(), p.Run, end, func(read []core.Entry) bool { return len(p.rows(read)) >= entriesShown })
	if err != nil {
		return nil, err
	}
	rows := p.rows(entries)
	shown := min(len(rows), entriesShown)
	for shown > 0 && shown < len(rows) && rows[shown].Revision == rows[shown-1].Revision {
		shown++ // the parts of an entry stay together
	}
	p.Rows = rows[:shown]
	p.Last = end - 1
	if p.First = p.Last; len(entries) > 0 {
		p.First = entries[0].Rev
	}
	if len(rows) > shown {
		p.First = p.Rows[shown-1].Revision
	}
	if p.First > 1 {
		p.Older = p.part(p.First)
	}
	return &view{Title: "Journal of " + show.Line(p.Run, shortLength), Template: "journal", Place: placeRuns, Data: p}, nil
}

// rows are those of the entries that are shown, the newest first.
func (p *journalPage) rows(entries []core.Entry) []show.JournalRow {
	var rows []show.JournalRow
	for i := range slices.Backward(entries) {
		for _, row := range slices.Backward(show.RowsOfEntry(&entries[i])) {
			if p.Kind == "" || (row.Kind == p.Kind) != p.Not {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// part is the address of the entries before a revision.
func (p *journalPage) part(before uint64) string {
	values := url.Values{"before": {strconv.FormatUint(before, 10)}}
	if p.Kind != "" {
		values.Set("kind", p.Kind)
	}
	if p.Not {
		values.Set("not", "1")
	}
	return "?" + values.Encode()
}

// entryAt is an entry of the run that the address names, and those beside it; nil is that there is none.
type entryAt struct {
	runHead
	Entry          *core.Entry
	Before, After  *core.Entry
	Previous, Next uint64
}

// at reads the entry with the revision rev; empty is the last.
func (c *console) at(r *request, rev, tab string) (entryAt, error) {
	last, err := c.last(r)
	if err != nil {
		return entryAt{}, err
	}
	a := entryAt{runHead: c.head(r, &last, tab)}
	wanted := last.Rev
	if rev != "" {
		if wanted, err = strconv.ParseUint(rev, 10, 64); err != nil {
			return a, notFound("entries have numbers, from 1 on")
		}
	}
	entries, err := c.Source.Part(r.Context(), a.Run, max(wanted, 2)-1, 3)
	if err != nil {
		return a, err
	}
	for i := range entries {
		switch e := &entries[i]; e.Rev {
		case wanted - 1:
			a.Before, a.Previous = e, e.Rev
		case wanted:
			a.Entry = e
		case wanted + 1:
			a.After, a.Next = e, e.Rev
		}
	}
	if a.Entry == nil {
		return a, notFound("the journal of this run does not have such an entry")
	}
	return a, nil
}

type entryPage struct {
	entryAt
	// Raw is the entry, and JSON what is shown of it.
	Raw  []byte
	JSON folded
	// Difference is how the head differs from that of the entry before.
	Difference []show.ComparedLine
}

func (c *console) entry(r *request) (*view, error) {
	at, err := c.at(r, r.PathValue("rev"), "journal")
	if err != nil {
		return nil, err
	}
	p := &entryPage{entryAt: at}
	data, err := p.Entry.Encode()
	if err != nil {
		return nil, err
	}
	p.Raw, p.JSON = data, whole(show.Indent(data))
	if p.Before != nil {
		if p.Difference, err = headsDiffer(&p.Before.Head, &p.Entry.Head); err != nil {
			return nil, err
		}
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
	entryAt
	JSON folded
}

// state is the head at any revision.
func (c *console) state(r *request) (*view, error) {
	at, err := c.at(r, r.URL.Query().Get("at"), "state")
	if err != nil {
		return nil, err
	}
	data, err := core.EncodeJSON(&at.Entry.Head)
	if err != nil {
		return nil, err
	}
	return &view{Title: "State of " + show.Line(at.Run, shortLength), Template: "state", Place: placeRuns, Data: &statePage{at, whole(show.Indent(data))}}, nil
}
