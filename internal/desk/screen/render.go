package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/internal/show"

	"agentd/internal/requests"
)

// How text is set off, in ANSI.
const (
	reset   = "\x1b[0m"
	bold    = "\x1b[1m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	reverse = "\x1b[7m"
)

// smallest is the least size that everything fits in.
const (
	smallestWidth  = 40
	smallestHeight = 8
)

// Render returns the lines of the screen, as many as it is high.
func (s *Screen) Render(width, height int, now time.Time) []string {
	width, height = max(width, smallestWidth), max(height, smallestHeight)
	lines := []string{reverse + show.Pad(s.title(), width) + reset}
	body := height - 3 // title, status, keys
	if s.large {
		lines = append(lines, s.renderDetail(width, body)...)
	} else {
		rows := min(len(s.items)+1, max(body/3, 4))
		lines = append(lines, s.renderList(width, rows, now)...)
		lines = append(lines, dim+strings.Repeat("─", width)+reset)
		lines = append(lines, s.renderDetail(width, body-rows-1)...)
	}
	status := s.status
	if status == "" && s.busy[s.selected] {
		status = "waiting for what becomes of the answer"
	}
	return append(lines, bold+show.Cut(show.Visible(status, false), width)+reset, s.footer(width))
}

func (s *Screen) title() string {
	return fmt.Sprintf(" agentd approvals · %d open · as %s", len(s.items), s.Who)
}

// renderList is the heading and as many items as fit, the selected one among them.
func (s *Screen) renderList(width, rows int, now time.Time) []string {
	table := [][]string{{"ID", "AGE", "LEFT", "AGENT", "RUN", "ASKS", "RISK", "ARGUMENTS OR TEXT"}}
	fit := rows - 1
	first := min(max(s.index()-fit/2, 0), max(len(s.items)-fit, 0))
	last := min(first+fit, len(s.items))
	for n := first; n < last; n++ {
		table = append(table, cells(&s.items[n], now))
	}
	sizes := sizesOf(table, width)
	lines := []string{dim + show.Cut("  "+row(table[0], sizes), width) + reset}
	for n := first; n < last; n++ {
		i, text := &s.items[n], row(table[1+n-first], sizes)
		switch {
		case i.ID == s.selected:
			lines = append(lines, reverse+show.Pad("> "+text, width)+reset)
		case i.Risk == "high" && !s.Plain:
			lines = append(lines, red+show.Cut("  "+text, width)+reset)
		default:
			lines = append(lines, show.Cut("  "+text, width))
		}
	}
	if len(s.items) == 0 {
		lines = append(lines, dim+"  nothing waits for a person"+reset)
	}
	for len(lines) < rows {
		lines = append(lines, "")
	}
	return lines
}

// cells are the columns of an item.
func cells(i *requests.Item, now time.Time) []string {
	left := "-"
	if i.Expires > 0 {
		left = show.Duration(time.UnixMilli(i.Expires).Sub(now))
	}
	asks := i.Tool
	switch i.Kind {
	case requests.KindPermission:
	case requests.KindTask:
		asks = i.Type
	default:
		asks = "(" + string(i.Kind) + ")"
	}
	return []string{i.Short, show.Duration(now.Sub(time.UnixMilli(i.Asked))), left, i.Agent, i.Run, asks, i.Risk, i.Summary}
}

// The columns of the list, but the last one: how wide they are at most, and which are left out where the last one would get
// less than leastSummary.
var (
	widest  = []int{8, 5, 5, 14, 18, 18, 6}
	leftOut = []int{3, 4}
)

const leastSummary = 20

// sizesOf are the widths of all columns but the last one: what they have to show. 0 leaves one out.
func sizesOf(table [][]string, width int) []int {
	sizes := make([]int, len(widest))
	total := len("> ")
	for n := range sizes {
		for _, line := range table {
			sizes[n] = max(sizes[n], show.Width(show.Line(line[n], widest[n])))
		}
		total += sizes[n] + len(gap)
	}
	for _, n := range leftOut {
		if total+leastSummary > width {
			total -= sizes[n] + len(gap)
			sizes[n] = 0
		}
	}
	return sizes
}

// gap is between columns.
const gap = "  "

// row is a line of the list.
func row(cells []string, sizes []int) string {
	var b strings.Builder
	for n, size := range sizes {
		if size > 0 {
			b.WriteString(show.Pad(show.Line(cells[n], size), size) + gap)
		}
	}
	return b.String() + show.Line(cells[len(cells)-1], smallestWidth*8)
}

// renderDetail is the part of the detail that fits. It says when there is more, and notes when all that is vital has been
// to be seen, at once or by scrolling.
func (s *Screen) renderDetail(width, rows int) []string {
	lines := make([]string, 0, rows)
	vital := len(show.Break(s.lines[:min(s.vital, len(s.lines))], width))
	wrapped := show.Break(s.lines, width)
	s.scroll = min(s.scroll, max(len(wrapped)-rows, 0))
	for _, line := range wrapped[s.scroll:] {
		if len(lines) == rows {
			break
		}
		lines = append(lines, line)
	}
	seen := s.scroll + len(lines)
	if more := len(wrapped) - seen; more > 0 && rows > 0 {
		seen--
		lines[rows-1] = dim + fmt.Sprintf("… %d more lines: s shows them, page down scrolls", more+1) + reset
	}
	if seen >= vital {
		s.hidden = false
	}
	for len(lines) < rows {
		lines = append(lines, "")
	}
	return lines
}

// footer says what keys mean now.
func (s *Screen) footer(width int) string {
	switch s.mode {
	case confirming:
		ask := fmt.Sprintf("allow %s?  y: this call", show.Line(s.action.Item.Tool, 24))
		for _, c := range scopeKeys {
			if s.detail != nil && slices.Contains(s.detail.Request.Scopes, c.scope) {
				ask += fmt.Sprintf("  %s: %s", c.key, c.scope)
			}
		}
		return bold + show.Cut(ask+"  any other key: no", width) + reset
	case typing:
		prompt := map[Verb]string{
			Deny: "why not (the model reads it)", Ask: "ask back (the model reads it)", Answer: "answer",
		}[s.action.Verb]
		if s.detail != nil && len(s.detail.Suggestions) > 0 && s.action.Verb == Answer {
			prompt += ", or the number of a suggestion"
		}
		if s.action.Item.Kind == requests.KindTurn {
			prompt += ", /end ends the conversation"
		}
		typed := s.typed
		if room := width - len(prompt) - 4; len(typed) > max(room, 8) {
			typed = typed[len(typed)-max(room, 8):] // the end is where one types
		}
		return bold + prompt + " > " + reset + show.Visible(string(typed), false) + "▏"
	case browsing:
	}
	return dim + show.Cut(s.keys(width), width) + reset
}

// keys are those that do something now. The arrows explain themselves where room is short.
func (s *Screen) keys(width int) string {
	move, back := "↑↓ select  ", "  s show"
	if s.large {
		move, back = "↑↓ scroll  ", "  s back"
	}
	keys := "q quit"
	if at := s.index(); at >= 0 {
		does := "r answer"
		if s.items[at].Kind == requests.KindPermission {
			does = "a approve  d deny  e edit  r ask back"
		}
		keys = does + back + "  " + keys
		if len(keys)+show.Width(move) <= width {
			keys = move + keys
		}
	}
	return keys
}
