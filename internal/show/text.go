// Package show is what runs did and ask as text for people. Everything that others wrote is escaped.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"agentd/internal/desk"
)

// age is how long ago a time in Unix milliseconds was, left how far in the future it is.
func age(at int64) string { return Duration(time.Since(time.UnixMilli(at))) }

func left(at int64) string {
	if at == 0 {
		return "-"
	}
	return Duration(time.Until(time.UnixMilli(at)))
}

// OneLine makes text of others one line of at most n characters in which everything can be seen.
func OneLine(text string, n int) string {
	text = desk.Visible(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text), false)
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// WriteBlock writes an indented text under a title.
func WriteBlock(w io.Writer, title, text string) {
	fmt.Fprintf(w, "\n%s\n", title)
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "  %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// ClipUnless shortens a long text to some lines, unless it is to be shown in full.
func ClipUnless(full bool, text string) string {
	if full {
		return text
	}
	return Clip(text, 4*LineMax)
}

// Plural says how many there are of something with an irregular plural.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Count says how many there are of something.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ShellQuote makes text one word of a shell.
func ShellQuote(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// OrDash is the text, or a dash for none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Margin indents each line.
func Margin(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// LineMax is the most characters of a text or of data in one line.
const LineMax = 140

// Columns is how wide the terminal is that w writes to, 0 when it is none.
func Columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// fitting is the most characters of a text in a line of which used columns are taken: no line of a terminal becomes two.
func fitting(w io.Writer, used int) int {
	if width := Columns(w); width > 0 {
		return min(LineMax, max(width-used, labelled))
	}
	return LineMax
}

// wrapped breaks lines between words where they are longer than width; one without width is left as it is.
func wrapped(text string, width int) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		for width > 0 && utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			at := strings.LastIndexByte(string(runes[:width+1]), ' ')
			if at <= 0 {
				at = len(string(runes[:width]))
			}
			lines = append(lines, line[:at])
			line = strings.TrimLeft(line[at:], " ")
		}
		lines = append(lines, line)
	}
	return lines
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

// Clip makes text one line of at most n characters.
func Clip(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
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

// Histories says how many histories there are.
func Histories(n int) string {
	if n == 1 {
		return "1 history"
	}
	return fmt.Sprintf("%d histories", n)
}

// Ago is how long ago a time in Unix milliseconds was.
func Ago(at int64) string {
	if at == 0 {
		return "-"
	}
	return Duration(time.Since(time.UnixMilli(at))) + " ago"
}

// Duration is a duration as people say it, in its largest unit.
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Clock is a time in Unix milliseconds as people read it.
func Clock(at int64) string { return time.UnixMilli(at).Format("2006-01-02 15:04:05") }
