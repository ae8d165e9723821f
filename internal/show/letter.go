package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk"
)

// Letter is a dead letter in a list.
type Letter struct {
	Sequence uint64   `json:"seq"`
	At       int64    `json:"at"`
	Reason   sdk.Code `json:"reason"`
	Detail   string   `json:"detail"`
	// Agent is the agent's token, Run the run's name or, where nobody says it, its key.
	Agent string `json:"agent,omitempty"`
	Run   string `json:"run,omitempty"`
	// Event and Type are the event's id and type.
	Event string `json:"event,omitempty"`
	Type  string `json:"type,omitempty"`
	// Subject, Stream and Origin are where it came from.
	Subject  string `json:"subject"`
	Stream   string `json:"stream"`
	Origin   uint64 `json:"stream_seq"`
	Redrives int    `json:"redrives"`
}

// LettersTitle is the heading of the lines of dead letters, for a terminal of that many columns.
func LettersTitle(columns int) string {
	return letterLine(columns, "SEQ", "WHEN", "REASON", "AGENT", "RUN", "MESSAGE")
}

// Line is the dead letter in one line, for a terminal of that many columns. The widths are fixed, so that any number can be listed as they
// come.
func (l *Letter) Line(columns int) string {
	return letterLine(columns, strconv.FormatUint(l.Sequence, 10), Ago(l.At), string(l.Reason), l.Agent, l.Run, l.message())
}

func letterLine(columns int, sequence, when, reason, agent, run, message string) string {
	or := func(text string) string { return cmp.Or(text, "-") }
	return Pad(sequence, 6) + gap + Pad(when, 11) + gap + Pad(or(Line(reason, 18)), 18) + gap + NameColumn(or(agent), 16, columns) + gap +
		NameColumn(or(run), 30, columns) + gap + or(Line(message, 90))
}

// message is the message in a few words.
func (l *Letter) message() string {
	text := l.Type + " " + l.Event
	if l.Event == "" {
		text = l.Subject
	}
	switch {
	case l.Redrives == 1:
		text += " (redriven once)"
	case l.Redrives > 1:
		text += fmt.Sprintf(" (redriven %d times)", l.Redrives)
	}
	return text
}

// LetterDetail is a dead letter in full.
type LetterDetail struct {
	Letter
	Who     string              `json:"who,omitempty"`
	Status  string              `json:"run_status,omitempty"`
	Headers map[string][]string `json:"headers"`
	// Body is the body: JSON as it is, else text, else Binary.
	Body   json.RawMessage `json:"body,omitempty"`
	Binary []byte          `json:"body_base64,omitempty"`
	// Omitted says that the body was too large to be kept.
	Omitted bool `json:"body_omitted,omitempty"`
	// Undecodable says why the body is not an event.
	Undecodable string `json:"undecodable,omitempty"`
	// Refusal is empty when the message can be published again, else why not.
	Refusal string `json:"redrive_refused,omitempty"`
	Advice  string `json:"advice"`
	// Source, ParentID and DataSchema are those of the event, Size that of the whole body, in bytes.
	Source     string `json:"-"`
	ParentID   string `json:"-"`
	DataSchema string `json:"-"`
	Size       int    `json:"-"`
}

// Write writes the dead letter and what can be done about it; full does not shorten the body.
func (d *LetterDetail) Write(w io.Writer, full bool) error {
	var t table
	row := func(label, text string) {
		if text != "" {
			t.row(label, Visible(text))
		}
	}
	row("dead letter", strconv.FormatUint(d.Sequence, 10))
	row("when", When(d.At))
	row("reason", string(d.Reason))
	row("detail", strings.TrimPrefix(d.Detail, string(d.Reason)+": "))
	row("came on", d.Subject)
	row("stored as", fmt.Sprintf("message %d of %s", d.Origin, d.Stream))
	row("published by", d.Who)
	row("agent", d.Agent)
	if d.Run != "" {
		row("run", d.Run+" ("+d.Status+")")
	}
	row("event", d.Event)
	row("type", d.Type)
	row("source", d.Source)
	row("answers", d.ParentID)
	row("contract", d.DataSchema)
	row("not an event", d.Undecodable)
	if d.Redrives > 0 {
		row("redriven", fmt.Sprintf("%d× before", d.Redrives))
	}
	if err := t.write(w, "", 0); err != nil {
		return err
	}
	if len(d.Headers) > 0 {
		fmt.Fprintln(w, "\nheaders")
		for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
			fmt.Fprintf(w, "  %s\n", Visible(name+": "+strings.Join(d.Headers[name], ", ")))
		}
	}
	Block(w, fmt.Sprintf("body (%d bytes)", d.Size), d.Content(full))
	todo := fmt.Sprintf("agentd dlq redrive %d", d.Sequence)
	if d.Refusal != "" {
		todo = Visible("It cannot be redriven: "+d.Refusal) + "."
	}
	Block(w, "what to do", fmt.Sprintf("%s\n%s\nagentd dlq drop %d --yes", d.Advice, todo, d.Sequence))
	return nil
}

// mostBody is how many bytes of a body are shown.
const mostBody = 4000

// Content is the body as text, escaped; full does not shorten it.
func (d *LetterDetail) Content(full bool) string {
	if d.Omitted {
		return "too large to be kept, and no longer in " + d.Stream
	}
	var text string
	switch {
	case d.Body == nil:
		text = fmt.Sprintf("%q", d.Binary)
	case json.Unmarshal(d.Body, &text) != nil: // else the body is a text, which JSON quotes
		text = Indent(d.Body)
	}
	more := ""
	if len(text) > mostBody && !full {
		more = fmt.Sprintf("\n… %d more; see --verbose", len(text)-mostBody)
		text = strings.ToValidUTF8(text[:mostBody], "")
	}
	return VisibleLines(text) + more
}
