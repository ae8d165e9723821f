// Package show is what runs did and ask as text for people: the command line, agentd mcp and other front ends share it. It
// turns values into text and knows no broker. Everything that others wrote is escaped (Visible), and cut by columns.
package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/width"

	"agentd/sdk"
)

// LineMax is the most columns of a text or of data in one line.
const LineMax = 140

// Width is how many columns of a terminal a text takes, at most.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// fits is how many bytes of a text fit into n columns.
func fits(text string, n int) int {
	for at, r := range text {
		if n -= runeWidth(r); n < 0 {
			return at
		}
	}
	return len(text)
}

// Cut shortens a text to n columns.
func Cut(text string, n int) string {
	if fits(text, n) == len(text) {
		return text
	}
	return text[:fits(text, max(n-1, 0))] + "…"
}

// Pad is Cut that fills what is left with blanks.
func Pad(text string, n int) string {
	text = Cut(text, n)
	return text + strings.Repeat(" ", max(n-Width(text), 0))
}

// Middle shortens a text to n columns in its middle: what is alike in front often differs in the end.
func Middle(text string, n int) string {
	if fits(text, n) == len(text) {
		return text
	}
	begin := text[:fits(text, max(n-1, 0)/2)]
	room, at := n-1-Width(begin), len(text)
	for at > 0 {
		r, size := utf8.DecodeLastRuneInString(text[:at])
		if room -= runeWidth(r); room < 0 {
			break
		}
		at -= size
	}
	return begin + "…" + text[at:]
}

// Name is the name of a run or an agent in one line, whole: names are copied, and read by programs.
func Name(text string) string { return Line(text, math.MaxInt) }

// NameColumn is Name in a column of n columns. On a terminal, which has so many columns, a longer one is cut in its middle; 0 columns are
// no terminal.
func NameColumn(text string, n, columns int) string {
	text = Name(text)
	if columns > 0 {
		text = Middle(text, n)
	}
	return Pad(text, max(n, Width(text)))
}

// Line makes text of others one line of at most n columns in which everything can be seen.
func Line(text string, n int) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '\r' || r == '\t' })
	return Cut(Visible(strings.Join(words, " ")), n)
}

// line is Line, or with full the whole text.
func line(text string, n int, full bool) string {
	if full {
		return VisibleLines(text)
	}
	return Line(text, n)
}

// Wrap breaks lines between words where they are wider than columns; 0 columns leave them as they are.
func Wrap(text string, columns int) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		for columns > 0 && Width(line) > columns {
			end := max(fits(line, columns), 1)
			if space := strings.LastIndexByte(line[:min(end+1, len(line))], ' '); space > 0 {
				end = space
			}
			lines = append(lines, line[:end])
			line = strings.TrimLeft(line[end:], " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// room is how many columns a text gets in a line of which some are taken: no line of a terminal becomes two.
func room(columns, taken int) int {
	if columns == 0 {
		return LineMax
	}
	return min(LineMax, max(columns-taken, leastRoom))
}

// leastRoom is what a text gets even where the terminal is too narrow for it.
const leastRoom = 16

// Block writes an indented text under a title. Escape what others wrote.
func Block(w io.Writer, title, text string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// Count says how many there are of something; what ends in y has its own plural.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		what = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Problem is what an error says to people: its message without its code, its cause, and its faults.
func Problem(err error) string {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return err.Error()
	}
	text := e.Message
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	for _, f := range e.Faults {
		text += "; " + f.String()
	}
	return text
}

// ShellQuote makes text one word of a shell.
func ShellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// field is the text of a property of a JSON object, or "".
func field(data json.RawMessage, name string) string {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil {
		return ""
	}
	text, _ := object[name].(string)
	return text
}

// Indent is JSON as people read it.
func Indent(data json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return string(data)
	}
	return b.String()
}

// Ago is how long ago a time in Unix milliseconds was; "-" for none.
func Ago(at int64) string {
	if at == 0 {
		return "-"
	}
	return since(at) + " ago"
}

func since(at int64) string { return Duration(time.Since(time.UnixMilli(at))) }

// Until is how far in the future a time in Unix milliseconds is; "-" for none.
func Until(at int64) string {
	if at == 0 {
		return "-"
	}
	return left(time.Until(time.UnixMilli(at)))
}

// left is a duration that is left, where a second that has begun counts: what begins with an hour has an hour left.
func left(d time.Duration) string { return Duration(d + time.Second - 1) }

// Duration is a duration as people say it, in its two largest units: "23h59m". The second is left out where it is 0.
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return inUnits(d, time.Second, "s", time.Second, "")
	case d < time.Hour:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < 48*time.Hour:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return inUnits(d, 24*time.Hour, "d", time.Hour, "h")
}

func inUnits(d, large time.Duration, name string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, name)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}

// When is a time in Unix milliseconds, and how long ago that was.
func When(at int64) string { return clock(at) + " (" + Ago(at) + ")" }

// due is a time to come in Unix milliseconds, and how far away that is.
func due(at int64) string { return clock(at) + " (in " + Until(at) + ")" }

// clock is a time in Unix milliseconds by this machine's clock, with its zone: it is read elsewhere, too, and compared with logs.
func clock(at int64) string { return time.UnixMilli(at).Format(time.DateTime + " MST") }

func clockMillis(at int64) string { return time.UnixMilli(at).Format("15:04:05.000") }

// dateMillis is clockMillis with the date.
func dateMillis(at int64) string { return time.UnixMilli(at).Format("2006-01-02 15:04:05.000") }
