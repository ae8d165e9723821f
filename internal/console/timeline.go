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
)

type timelinePage struct {
	runHead
	Spans []span
	// Height and Ticks are of the drawing, Hidden is how many bars come before those that are drawn.
	Height int
	Ticks  []tick
	Hidden int
	Total  int64
}

// span is a bar: something that took time. Begin and End are in Unix milliseconds.
type span struct {
	// Kind is "model", "service", "inline", "permission", "question", "turn" or "context".
	Kind, Name, Outcome string
	Begin, End          int64
	// Open says that it goes on, Failed that its result is an error, Round is the run's round, and Revision where it began.
	Open, Failed bool
	Round        int
	Revision     uint64
	// X, Y and Width are where the bar is drawn.
	X, Y, Width int
}

// Duration is how long it took, or has taken so far, in milliseconds.
func (s span) Duration() int64 { return s.End - s.Begin }

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
	entries, err := c.Source.Journal(r.Context(), r.PathValue("run"))
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, notFound("this run does not exist")
	}
	last := &entries[len(entries)-1]
	p := &timelinePage{runHead: c.head(r, last, "timeline")}
	p.Spans = spansOf(entries, c.now().UnixMilli())
	if p.Hidden = len(p.Spans) - spansShown; p.Hidden > 0 {
		p.Spans = p.Spans[p.Hidden:]
	}
	p.Ticks = draw(p.Spans)
	p.Height = axisHeight + len(p.Spans)*barHeight
	if n := len(p.Spans); n > 0 {
		p.Total = slices.MaxFunc(p.Spans, func(a, b span) int { return cmp.Compare(a.End, b.End) }).End - p.Spans[0].Begin
	}
	return &view{Title: "Timeline of " + show.Line(p.Run, shortLength), Template: "timeline", Place: placeRuns, Data: p}, nil
}

// spansOf are what a run did that took time: model calls, which end with the entry of a reply, and calls, from the entry that has
// them first to the one with their result. What is open lasts until now.
func spansOf(entries []core.Entry, now int64) []span {
	var spans []span
	open := map[string]int{}
	since, driven := int64(0), false
	for i := range entries {
		e := &entries[i]
		if e.Kind == core.KindReplied && driven {
			spans = append(spans, span{Kind: "model", Name: "model call " + strconv.Itoa(e.Head.Turns), Begin: since, End: e.At, Round: e.Head.Round, Revision: e.Rev})
		}
		for n := range e.Head.Calls {
			call := &e.Head.Calls[n]
			if _, known := open[call.ID]; known || call.Closed() && e.Kind != core.KindReplied {
				continue
			}
			open[call.ID] = len(spans)
			spans = append(spans, span{
				Kind: string(call.Kind), Name: spanName(call), Begin: e.At, End: now, Open: true, Round: e.Head.Round, Revision: e.Rev,
			})
		}
		for _, result := range e.Results {
			if n, known := open[result.Call]; known {
				s := &spans[n]
				s.End, s.Open, s.Failed, s.Outcome = e.At, false, result.Error, string(result.Kind)
			}
		}
		since, driven = e.At, e.Head.Status == core.StatusRunning
	}
	last := &entries[len(entries)-1]
	if last.Head.Status != core.StatusDone && driven {
		spans = append(spans, span{Kind: "model", Name: "in progress", Begin: since, End: now, Open: true, Round: last.Head.Round, Revision: last.Rev})
	}
	for i := range spans {
		if spans[i].Open && last.Head.Status == core.StatusDone {
			spans[i].Open, spans[i].End = false, last.At
		}
		spans[i].End = max(spans[i].End, spans[i].Begin)
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
