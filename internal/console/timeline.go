package console

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"agentd/internal/core"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

type timelinePage struct {
	runHead
	Spans []span
	// Height and Ticks are of the drawing, and Total how long all of it took.
	Height int
	Ticks  []tick
	Total  int64
	// Earlier is the address of the bars before; empty is that there are none.
	Earlier string
}

// span is a bar: something that took time. Begin and End are in Unix milliseconds.
type span struct {
	// Kind is "model", "service", "inline", "permission", "question", "turn" or "context", or, of what took no time, "takeover" or "retry".
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Outcome string `json:"outcome,omitempty"`
	Begin   int64  `json:"begin"`
	End     int64  `json:"end"`
	// Open says that it goes on, Later that its end is on a later page, Failed that its result is an error, Denied that it was not allowed,
	// Round is the run's round, and Revision where it began.
	Open     bool   `json:"open,omitempty"`
	Later    bool   `json:"later,omitempty"`
	Failed   bool   `json:"failed,omitempty"`
	Denied   bool   `json:"denied,omitempty"`
	Round    int    `json:"round"`
	Revision uint64 `json:"rev"`
	// Tries are when its call was sent again, in Unix milliseconds, and Child is what the run did that it started, where the page has room.
	Tries []int64   `json:"tries,omitempty"`
	Child *childRun `json:"child,omitempty"`
	// call is the id of its call, and of the contract type.
	call, of string
	// At are where Tries are drawn, and X, Y and Width are where the bar is drawn.
	X     int   `json:"-"`
	Y     int   `json:"-"`
	Width int   `json:"-"`
	At    []int `json:"-"`
}

// Duration is how long it took, or has taken so far, in milliseconds.
func (s span) Duration() int64 { return s.End - s.Begin }

// After is how long after another one it began, in milliseconds.
func (s span) After(other span) int64 { return s.Begin - other.Begin }

// Mark says that it is a point and not a bar: something happened, and took no time.
func (s span) Mark() bool { return s.Kind == markTakeover || s.Kind == markRetry }

// The kinds of marks.
const (
	markTakeover = "takeover"
	markRetry    = "retry"
)

// Within says that the bar is long enough for its text to stand in it.
func (s span) Within() bool { return s.Width > drawnWidth/2 }

// LabelX, LabelY and Anchor are where the bar's text is: after it, before it where there is more room, or within a long one.
func (s span) LabelX() int {
	switch {
	case s.Within():
		return s.X + labelGap
	case s.Anchor() == "end":
		return s.X - labelGap
	}
	return s.X + s.Width + labelGap
}

// LabelY is the text's baseline.
func (s span) LabelY() int { return s.Y + 14 }

// Anchor says on which side of LabelX the text is.
func (s span) Anchor() string {
	if !s.Within() && s.X+s.Width > drawnWidth*2/3 {
		return "end"
	}
	return "start"
}

// tick is a mark of the time axis; Break says that the time before it is drawn shorter than it was.
type tick struct {
	X     int
	Label string
	Break bool
}

// The drawing, in its own units. Its width is that of the page.
const (
	drawnWidth = 1000
	barHeight  = 26
	axisHeight = 24
	// spansShown is how many bars a page has at most: the last ones.
	spansShown = 200
	// least is how wide a bar is at least, so that it can be seen.
	least = 3
	// labelGap is between a bar and its text.
	labelGap = 6
)

func (c *console) timeline(r *request) (*view, error) {
	last, err := c.last(r)
	if err != nil {
		return nil, err
	}
	p := &timelinePage{runHead: c.head(r, &last, "timeline")}
	end := last.Rev + 1
	if before := mark(r.URL.Query().Get("before")).Revision; before > 0 && before < end {
		end = before
	}
	now := c.now().UnixMilli()
	entries, err := c.back(r.Context(), p.Run, end, func(read []core.Entry) bool { return len(spansOf(read, &last, end, now)) >= spansShown })
	if err != nil {
		return nil, err
	}
	// What began on this page may have ended after it.
	later, err := c.Source.Part(r.Context(), p.Run, end, entriesRead)
	if err != nil {
		return nil, err
	}
	p.Spans = spansOf(slices.Concat(entries, later), &last, end, now)
	switch n := len(p.Spans) - spansShown; {
	case n > 0:
		first := p.Spans[n].Revision // the bars of an entry stay together
		p.Spans = slices.DeleteFunc(p.Spans, func(s span) bool { return s.Revision < first })
		p.Earlier = earlier(wire.Mark{Revision: first})
	case len(entries) > 0 && entries[0].Rev > 1:
		p.Earlier = earlier(wire.Mark{Revision: entries[0].Rev + 1})
	}
	if err := c.children(r.Context(), p); err != nil {
		return nil, err
	}
	p.Ticks = draw(p.Spans)
	p.Height = axisHeight + len(p.Spans)*barHeight
	if n := len(p.Spans); n > 0 {
		p.Total = slices.MaxFunc(p.Spans, func(a, b span) int { return cmp.Compare(a.End, b.End) }).End - p.Spans[0].Begin
	}
	return &view{Title: "Timeline of " + show.Line(p.Run, shortLength), Template: "timeline", Place: placeRuns, Data: p}, nil
}

// spansOf are what a run did that took time and began before a revision: model calls, which end with the entry of a reply, and calls, from
// the entry that has them first to the one with their result. What is open lasts until now; what was open before these entries is on the
// page before.
func spansOf(entries []core.Entry, last *core.Entry, before uint64, now int64) []span {
	var spans []span
	if len(entries) == 0 {
		return nil
	}
	open := map[string]int{}
	since, driven := int64(0), false
	entries = core.InParts(entries)
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Rev == entries[0].Rev && e.Rev > 1: // what it begins is on the page before
			for n := range e.Head.Calls {
				open[e.Head.Calls[n].ID] = elsewhere
			}
		case e.Rev < before:
			if e.Kind == core.KindReplied && driven {
				spans = append(spans, span{Kind: "model", Name: "model call " + strconv.Itoa(e.Head.Turns), Begin: since, End: e.At, Round: e.Head.Round, Revision: e.Rev})
			}
			spans = append(spans, marks(e)...)
			spans = begun(spans, open, e, now)
		}
		tried(spans, open, e)
		for _, result := range e.Results {
			if n, known := open[result.Call]; known && n != elsewhere {
				spans[n].end(e, &result)
			}
		}
		since, driven = e.At, e.Head.Status == core.StatusRunning
	}
	if last.Rev < before && last.Head.Status != core.StatusDone && driven {
		spans = append(spans, span{Kind: "model", Name: "in progress", Begin: since, End: now, Open: true, Round: last.Head.Round, Revision: last.Rev})
	}
	read := &entries[len(entries)-1]
	for i := range spans {
		s := &spans[i]
		switch {
		case s.Open && last.Head.Status == core.StatusDone && read.Rev >= last.Rev:
			s.Open, s.End = false, last.At
		case s.Open && read.Rev < last.Rev: // it may have ended since
			s.Open, s.Later, s.End = false, true, read.At
		}
		s.End = max(s.End, s.Begin)
	}
	return spans
}

// end closes the bar of a call with its result, which an entry has. The answer to a permission request is what was decided: a denial is
// no error.
func (s *span) end(e *core.Entry, result *core.Result) {
	s.End, s.Open, s.Outcome = e.At, false, string(result.Kind)
	s.Denied = result.Kind == core.ResultDenied
	s.Failed = result.Error && !s.Denied
	for _, d := range e.Decisions {
		if d.Request == result.Call && d.Refused == "" {
			s.Failed, s.Denied, s.Outcome = false, d.Decision == sdk.DecisionDeny, decided(&d)
		}
	}
}

// decided is what became of a permission request by a decision.
func decided(d *core.Decision) string {
	text := string(d.Decision)
	switch d.Decision {
	case sdk.DecisionAllow:
		text = "allowed"
	case sdk.DecisionDeny:
		text = "denied"
	case sdk.DecisionAsk:
		text = "asked back"
	case sdk.DecisionResult:
		text = "given a result"
	case sdk.DecisionViewed:
	}
	switch {
	case d.Who != "":
		return text + " by " + d.Who
	case d.Grant != "":
		return text + ", as decided before"
	case d.Event == "" && d.Reason != "": // nobody did
		return text + ": " + d.Reason
	}
	return text
}

// marks are what an entry says happened to the run as a whole.
func marks(e *core.Entry) []span {
	mark := span{Begin: e.At, End: e.At, Round: e.Head.Round, Revision: e.Rev}
	switch d := e.Head.Driver; {
	case e.Kind == core.KindRetried:
		mark.Kind, mark.Name = markRetry, "taken up again after it had ended"
	case e.Kind == core.KindTakenOver && d != nil && d.Takeovers > 0:
		mark.Kind, mark.Name = markTakeover, "taken over: the worker before ended without a word"
	default:
		return nil
	}
	return []span{mark}
}

// tried notes which open calls an entry sends again.
func tried(spans []span, open map[string]int, e *core.Entry) {
	for i := range e.Head.Calls {
		call := &e.Head.Calls[i]
		if n, known := open[call.ID]; known && n != elsewhere && call.Attempt > 1 && call.Sent == e.Rev {
			spans[n].Tries = append(spans[n].Tries, e.At)
		}
	}
}

// elsewhere is the place of a bar of another page.
const elsewhere = -1

// begun adds the calls that an entry opens.
func begun(spans []span, open map[string]int, e *core.Entry, now int64) []span {
	for n := range e.Head.Calls {
		call := &e.Head.Calls[n]
		if _, known := open[call.ID]; known || call.Closed() && e.Kind != core.KindReplied {
			continue
		}
		open[call.ID] = len(spans)
		spans = append(spans, span{
			Kind: string(call.Kind), Name: spanName(call), Begin: e.At, End: now, Open: true, Round: e.Head.Round, Revision: e.Rev,
			call: call.ID, of: call.Type,
		})
	}
	return spans
}

func spanName(call *core.Call) string {
	switch call.Kind {
	case core.CallPermission:
		return "permission for " + call.Tool
	case core.CallTurn:
		return "the person"
	case core.CallQuestion:
		return "question"
	case core.CallContext, core.CallInline, core.CallService:
	}
	return cmp.Or(call.Tool, call.Type, sdk.TypeQuestion)
}

// axis puts times on the drawing. Between two times at which something happened, what is longer than usual is compressed.
type axis struct {
	times []int64
	// at is where each time is, before scaling.
	at     []float64
	breaks []bool
}

// usual is how much longer than the median a gap may be before it is compressed.
const usual = 8

func newAxis(spans []span) axis {
	var a axis
	for _, s := range spans {
		a.times = append(a.times, s.Begin, s.End)
		a.times = append(a.times, s.Tries...)
	}
	slices.Sort(a.times)
	a.times = slices.Compact(a.times)
	gaps := make([]int64, 0, len(a.times))
	for i := 1; i < len(a.times); i++ {
		gaps = append(gaps, a.times[i]-a.times[i-1])
	}
	longest := 1.0
	if len(gaps) > 0 {
		sorted := slices.Sorted(slices.Values(gaps))
		longest = float64(max(sorted[len(sorted)/2], 1)) * usual
	}
	a.at, a.breaks = make([]float64, len(a.times)), make([]bool, len(a.times))
	for i, gap := range gaps {
		length := float64(gap)
		if length > longest {
			length, a.breaks[i+1] = longest*(1+math.Log2(length/longest)/4), length > 2*longest
		}
		a.at[i+1] = a.at[i] + length
	}
	return a
}

// x is where a time is drawn, which is one of the axis.
func (a axis) x(t int64) int {
	i, _ := slices.BinarySearch(a.times, t)
	if end := a.at[len(a.at)-1]; end > 0 {
		return int(a.at[i] / end * drawnWidth)
	}
	return 0
}

// draw puts the bars in their places, and returns the marks of the axis.
func draw(spans []span) []tick {
	if len(spans) == 0 {
		return nil
	}
	a := newAxis(spans)
	for i := range spans {
		s := &spans[i]
		s.X, s.Y = a.x(s.Begin), axisHeight+i*barHeight
		s.Width = max(a.x(s.End)-s.X, least)
		s.X = min(s.X, drawnWidth-s.Width)
		for _, t := range s.Tries {
			s.At = append(s.At, min(a.x(t), drawnWidth-1))
		}
	}
	const room = 90
	var ticks []tick
	for i, t := range a.times {
		x := a.x(t)
		if n := len(ticks); n > 0 && x-ticks[n-1].X < room && !a.breaks[i] || x > drawnWidth-room/2 && i > 0 && !a.breaks[i] {
			continue
		}
		label := "+" + spelled(time.Duration(t-a.times[0])*time.Millisecond)
		if n := len(ticks); n > 0 && x-ticks[n-1].X < room {
			label = ""
		}
		ticks = append(ticks, tick{min(x, drawnWidth-1), label, a.breaks[i]})
	}
	return ticks
}
