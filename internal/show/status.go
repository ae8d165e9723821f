package show

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// statusTail is the most characters of a text that is being written.
	statusTail  = 64
	labelThinks = "thinks"
	// eraseLine takes away what is in the terminal's current line.
	eraseLine = "\r\x1b[2K"
)

// status is the last line of a terminal: what a run is doing that is in no milestone yet. It is taken away before any other
// line is printed.
type status struct {
	text  string
	shown bool
}

// show replaces the line by what an ephemeral event tells.
func (s *status) show(p *Progress, l wire.Live) {
	label, text := s.describe(l)
	if label == "" {
		return
	}
	fmt.Fprintf(p.W, "%s\x1b[2m%-9s %s\x1b[0m", eraseLine, label, Visible(text))
	s.shown = true
}

func (s *status) describe(l wire.Live) (label, text string) {
	var d struct {
		sdk.Delta
		Model string `json:"model"`
	}
	if json.Unmarshal(l.Data, &d) != nil {
		return "", ""
	}
	switch l.Type {
	case wire.LiveThinkingEnded:
		s.text = ""
	case wire.LiveTurnStarted:
		s.text = ""
		return labelThinks, strings.TrimSpace(d.Model)
	case wire.LiveToolStarted:
		return "runs", d.Tool
	case wire.LiveDelta:
		if d.Reset {
			s.text = ""
		}
		if d.Tool != "" {
			return "calls", d.Tool + " …"
		}
		label = "writes"
		if d.Thinking != "" {
			label = labelThinks
		}
		s.text = lastOf(s.text + d.Thinking + d.Text)
		return label, strings.Join(strings.Fields(s.text), " ")
	}
	return "", ""
}

// clear takes the line away.
func (s *status) clear(p *Progress) {
	if s.shown {
		fmt.Fprint(p.W, eraseLine)
	}
	*s = status{}
}

// lastOf is the end of a text.
func lastOf(text string) string {
	if runes := []rune(text); len(runes) > statusTail {
		return "…" + string(runes[len(runes)-statusTail+1:])
	}
	return text
}
