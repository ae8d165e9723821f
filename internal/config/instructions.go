package config

import (
	"encoding/json"
	"strings"
	"time"

	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
)

// instructions are those of a project, from its file.
func (l *loader) instructions(n *strict.Node) string {
	file := n.Get("file")
	if file.Text() == "" {
		return ""
	}
	path := l.path(file.Text())
	data, ok := l.readFile(file.Position, path)
	if !ok {
		return ""
	}
	text := string(data)
	if sections := n.Get("sections").Items(); len(sections) > 0 {
		text = l.sections(text, path, sections)
	}
	if len(text) > maxPrompt {
		l.Faultf(file.Position, "the instructions have %d bytes; at most %d are allowed", len(text), maxPrompt)
	}
	return strings.TrimSpace(text)
}

// sections are the parts of a Markdown text under headings, in the order of the headings.
func (l *loader) sections(text, path string, headings []*strict.Node) string {
	all := headingsOf(text)
	var parts, names []string
	for _, h := range all {
		names = append(names, h.text)
	}
next:
	for _, wanted := range headings {
		for i, h := range all {
			if !strings.EqualFold(h.text, strings.TrimSpace(wanted.Text())) {
				continue
			}
			end := len(text)
			for _, after := range all[i+1:] {
				if after.level <= h.level {
					end = after.start
					break
				}
			}
			parts = append(parts, strings.TrimSpace(text[h.start:end]))
			continue next
		}
		l.Faultf(wanted.Position, "%s has no heading %q%s", path, wanted.Text(), spelling.Suggest(wanted.Text(), names))
	}
	return strings.Join(parts, "\n\n")
}

// heading is a heading of a Markdown text: a line that begins with one to six #.
type heading struct {
	text         string
	level, start int
}

// headingsOf lists the headings outside fenced code.
func headingsOf(text string) []heading {
	var all []heading
	fence, start := "", 0
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "    ")
		bare := strings.TrimSpace(line)
		marks := len(bare) - len(strings.TrimLeft(bare, "#"))
		switch {
		case fence != "":
			if strings.HasPrefix(bare, fence) && strings.Trim(bare, fence[:1]) == "" {
				fence = ""
			}
		case indented:
		case strings.HasPrefix(bare, "```"), strings.HasPrefix(bare, "~~~"):
			fence = bare[:len(bare)-len(strings.TrimLeft(bare, bare[:1]))]
		case marks >= 1 && marks <= 6 && (len(bare) == marks || bare[marks] == ' ' || bare[marks] == '\t'):
			name := strings.TrimSpace(bare[marks:])
			if closed := strings.TrimRight(name, "#"); strings.HasSuffix(closed, " ") {
				name = strings.TrimSpace(closed)
			}
			all = append(all, heading{name, marks, start})
		}
		start += len(line)
	}
	return all
}

// overlays checks what the model is told in each turn.
func (l *loader) overlays(n *strict.Node, o *sdk.Overlays, accepts json.RawMessage) {
	if o == nil {
		return
	}
	o.WorkingContext = l.prompt(n.Get("working_context"), accepts)
	if zone := n.Get("date"); zone.Present() {
		if _, err := time.LoadLocation(o.Date); err != nil || o.Date == "Local" {
			l.Faultf(zone.Position, "date: %q is not a time zone; name one such as Europe/Berlin or UTC", o.Date)
		}
	}
}
