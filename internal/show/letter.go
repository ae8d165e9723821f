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

// lettersTitles are the titles of a list of dead letters, and lettersWidths how wide its columns are, all but the last: they are fixed, so that
// any number can be listed as they come.
var (
	lettersTitles = []string{"SEQ", "WHEN", "REASON", "AGENT", "RUN", "MESSAGE"}
	lettersWidths = []int{6, 10, 18, 16, 30, leastRoom}
)

// LettersTitle is the heading of the lines of dead letters, for a terminal of that many columns.
func LettersTitle(columns int) string { return letterLine(columns, lettersTitles) }

// Line is the dead letter in one line, for a terminal of that many columns.
func (l *Letter) Line(columns int) string {
	return letterLine(columns, []string{
		strconv.FormatUint(l.Sequence, 10), Ago(l.At), Line(string(l.Reason), LineMax), Name(cmp.Or(l.Agent, "-")), Name(cmp.Or(l.Run, "-")), Line(l.message(), 90),
	})
}

func letterLine(columns int, cells []string) string {
	widths := slices.Clone(lettersWidths)
	if columns > 0 {
		narrow(lettersTitles, widths, columns)
	} else { // names are whole
		for n, cell := range cells {
			widths[n] = max(widths[n], Width(cell))
		}
	}
	return tableLine(lettersTitles, widths, cells, "", columns)
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

// Write writes the dead letter and what can be done about it, by command lines that command makes; full does not shorten the body.
func (d *LetterDetail) Write(w io.Writer, full bool, command func(args ...string) string) error {
	var t Table
	row := func(label, text string) {
		if text != "" {
			t.Row(label, Visible(text))
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
	if err := t.Write(w, "", 0); err != nil {
		return err
	}
	if len(d.Headers) > 0 {
		fmt.Fprintln(w, "\nheaders")
		for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
			fmt.Fprintf(w, "  %s\n", Visible(name+": "+strings.Join(d.Headers[name], ", ")))
		}
	}
	Block(w, fmt.Sprintf("body (%d bytes)", d.Size), d.Content(full))
	sequence := strconv.FormatUint(d.Sequence, 10)
	todo := command("dlq", "redrive", sequence)
	if d.Refusal != "" {
		todo = Visible("It cannot be redriven: "+d.Refusal) + "."
	}
	Block(w, "what to do", d.Advice+"\n"+todo+"\n"+command("dlq", "drop", sequence, "--yes"))
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
