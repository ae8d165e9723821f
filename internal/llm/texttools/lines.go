package texttools

import (
	"encoding/json"
	"regexp"
	"strings"

	"agentd/sdk"
)

// lines is a format whose calls begin a line. What stands in a code fence is quoted, and not a call.
type lines struct {
	rules, remedy string
	written       func(server, tool string, arguments json.RawMessage) string
	// begins matches a line that a call may begin with, up to the tool's name at least, which is its first group. partial matches a line
	// that is not whole and may still become such a one.
	begins, partial *regexp.Regexp
	// marker begins calls anywhere, in fences too; empty is none.
	marker string
	// read reads the calls that a text begins with.
	read func(text string, schemas Schemas) found
}

// found is what a text begins with: calls, or a fault instead. A length of 0 is prose.
type found struct {
	calls  []Call
	fault  *Fault
	length int
	// open says that the text ends in the middle of a call.
	open bool
}

func (l *lines) format() format {
	return format{
		rules: l.rules, remedy: l.remedy, written: l.written, parse: l.parse,
		address: func(t sdk.ToolDefinition, _ string) string { return "name: " + t.Name + "\n" },
		listen: func(send func(sdk.Delta), schemas Schemas) listener {
			return &lineFilter{lines: l, schemas: schemas, send: send}
		},
	}
}

func (l *lines) parse(text string, schemas Schemas) Reply {
	var out Reply
	var prose strings.Builder
	fenced, tries := false, maxTags
	for rest := text; rest != ""; {
		line := firstLine(rest)
		quotes := isFence(line)
		at := l.candidate(line, fenced || quotes, true)
		f := found{}
		if at >= 0 && tries > 0 {
			f = l.read(rest[at:], schemas)
		}
		if f.length == 0 {
			if at >= 0 {
				tries--
			}
			at = len(line)
		}
		fenced = fenced != quotes
		prose.WriteString(rest[:at])
		if f.fault != nil {
			f.fault.Snippet = snippet(rest[at : at+f.length])
			out.Faults = append(out.Faults, f.fault)
		}
		out.Calls, out.Open = append(out.Calls, f.calls...), out.Open || f.open
		rest = rest[at+f.length:]
	}
	out.Text = text
	if len(out.Calls)+len(out.Faults) > 0 {
		out.Text = strings.TrimSpace(withoutEmptyFences(prose.String()))
	}
	return out
}

// firstLine is the first line of a text, with its end.
func firstLine(text string) string {
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		return text[:end+1]
	}
	return text
}

func isFence(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, space), fence) }

const fence = "```"

// candidate is where in a line a call may begin; -1 is nowhere. quoted is a line of a fence, and whole says that nothing stands before it.
func (l *lines) candidate(line string, quoted, whole bool) int {
	if whole && !quoted && l.begins.MatchString(line) {
		return 0
	}
	for from := 0; l.marker != ""; {
		at := strings.Index(line[from:], l.marker)
		if at < 0 {
			break
		}
		if !mentioned(line, from+at) {
			return from + at
		}
		from += at + len(l.marker)
	}
	return -1
}

// lineFilter is the listener of lines: from where a call may begin it waits for the end of the reply.
type lineFilter struct {
	*lines
	schemas Schemas
	send    func(sdk.Delta)
	// text is all that has arrived; text[:read] is prose, of which text[from:from+sent] was sent.
	text             strings.Builder
	read, from, sent int
	// inLine says that text[:read] ends within a line, fenced that it does so within a fence, held that a call may begin there, and named
	// that its tool was told.
	inLine, fenced, held, named bool
}

func (f *lineFilter) add(d sdk.Delta) {
	if d.Reset {
		*f = lineFilter{lines: f.lines, schemas: f.schemas, send: f.send}
		f.send(d)
		return
	}
	if d.Text == "" {
		f.send(d)
		return
	}
	f.text.WriteString(d.Text)
	for !f.held && f.look() {
		continue
	}
	f.emit()
	if f.held {
		f.announce()
	}
}

// look reads on to the end of the line, or to where it cannot be said yet what begins, and reports whether another line may follow.
func (f *lineFilter) look() bool {
	line := firstLine(f.text.String()[f.read:])
	whole := strings.HasSuffix(line, "\n")
	begun := strings.TrimLeft(line, space)
	if !whole && !f.inLine && (begun == "" || strings.HasPrefix(begun, fence) || strings.HasPrefix(fence, begun) || f.partial.MatchString(line)) {
		return false
	}
	quotes := !f.inLine && isFence(line)
	if at := f.candidate(line, f.fenced || quotes, !f.inLine); at >= 0 {
		f.read, f.held = f.read+at, true
		return false
	}
	if whole {
		f.read, f.inLine, f.fenced = f.read+len(line), false, f.fenced != quotes
		return true
	}
	known := line[:len(line)-len(partOf(f.marker, line))]
	known = strings.TrimRight(known, "`") // they say whether a marker is only mentioned
	f.read, f.inLine = f.read+len(known), f.inLine || known != ""
	return false
}

// partOf is the end of a text that may become marker.
func partOf(marker, text string) string {
	for n := min(len(marker)-1, len(text)); n > 0; n-- {
		if strings.HasPrefix(marker, text[len(text)-n:]) {
			return text[len(text)-n:]
		}
	}
	return ""
}

// emit sends the prose, but for space that it begins with, and what at its end is left out where a call follows.
func (f *lineFilter) emit() {
	prose := f.text.String()[:f.read]
	if f.sent == 0 {
		f.from = len(prose) - len(strings.TrimLeft(prose, space))
	}
	prose = prose[f.from+f.sent:]
	f.speak(prose[:pendingProse(prose)])
}

func (f *lineFilter) speak(prose string) {
	if prose != "" {
		f.send(sdk.Delta{Text: prose})
		f.sent += len(prose)
	}
}

// announce tells the name of the first tool, once.
func (f *lineFilter) announce() {
	const nameWithin = 4 << 10
	text := f.text.String()[f.read:]
	text = strings.TrimPrefix(text[:min(len(text), nameWithin)], f.marker)
	if name := f.begins.FindStringSubmatch(text); name != nil && !f.named {
		f.named = true
		f.send(sdk.Delta{Tool: name[1]})
	}
}

func (f *lineFilter) flush() {
	text := f.text.String()
	prose := strings.TrimLeft(f.parse(text, f.schemas).Text, space)
	if rest, ok := strings.CutPrefix(prose, text[f.from:f.from+f.sent]); ok {
		f.speak(rest)
	}
}
