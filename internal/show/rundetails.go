package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// RunDetails is everything about a run. Times are in Unix milliseconds.
type RunDetails struct {
	Run        string      `json:"run"`
	Agent      string      `json:"agent"`
	Status     core.Status `json:"status"`
	Reason     core.Reason `json:"reason,omitempty"`
	Code       string      `json:"reason_code,omitempty"`
	Budget     int64       `json:"budget,omitempty"`
	TokensUsed int64       `json:"tokens_used"`
	// Messages that wait until the model can be shown them.
	Unsaid       []string       `json:"unsaid,omitempty"`
	Started      int64          `json:"started,omitempty"`
	Updated      int64          `json:"updated"`
	Deadline     int64          `json:"deadline"`
	Interactions int            `json:"interactions"`
	Usage        sdk.Usage      `json:"usage"`
	Units        json.Number    `json:"executionunits"`
	Spec         string         `json:"spec"`
	System       string         `json:"system,omitempty"`
	Purged       *core.Purged   `json:"purged,omitempty"`
	HandedBack   bool           `json:"handed_back,omitempty"`
	Parked       *core.Parking  `json:"parked,omitempty"`
	Paused       *core.Pause    `json:"paused,omitempty"`
	Plan         *core.Plan     `json:"plan,omitempty"`
	Waiting      []WaitingCall  `json:"waiting,omitempty"`
	Messages     []sdk.Message  `json:"messages"`
	Edits        []EditedCall   `json:"edits,omitempty"`
	Terminal     *core.Terminal `json:"terminal,omitempty"`
	// Undoable are the calls that can be undone, the newest first.
	Undoable []wire.UndoCall `json:"undoable,omitempty"`
	Journal  []JournalRow    `json:"journal"`
}

// Units is a cost in execution units, as the wire has it: exact, and in plain decimal.
func Units(u sdk.Units) json.Number { return json.Number(u.String()) }

// EditedCall is a call that is made with other arguments than the model's, because who allowed it has changed them.
type EditedCall struct {
	core.Edit
	Who string `json:"who,omitempty"`
}

// editedCalls are those of an entry.
func editedCalls(e *core.Entry) []EditedCall {
	var calls []EditedCall
	for _, part := range e.Parts() {
		for _, edit := range part.Edits {
			edited := EditedCall{Edit: edit}
			for _, d := range part.Decisions {
				if d.Call == edit.Call && d.Refused == "" {
					edited.Who = d.Who
				}
			}
			calls = append(calls, edited)
		}
	}
	return calls
}

// JournalRow is an entry of the journal, or one of its parts.
type JournalRow struct {
	Revision uint64   `json:"rev"`
	At       int64    `json:"at"`
	Kind     string   `json:"kind"`
	Status   string   `json:"status"`
	Effects  []string `json:"effects,omitempty"`
	Cause    string   `json:"cause"`
}

// RowsOfEntry are the rows of an entry: one for each of its parts, in their order.
func RowsOfEntry(e *core.Entry) []JournalRow {
	var rows []JournalRow
	for _, part := range e.Parts() {
		rows = append(rows, rowOf(part))
	}
	return rows
}

func rowOf(e *core.Entry) JournalRow {
	row := JournalRow{
		Revision: e.Rev, At: e.At, Kind: e.Kind, Status: StatusText(e.Head.Status, e.Head.Reason, ""),
		Cause: fmt.Sprintf("%s/%d", e.Cause.Stream, e.Cause.Sequence),
	}
	for _, f := range e.Effects {
		row.Effects = append(row.Effects, string(f.Kind))
	}
	return row
}

// EffectText counts what the entry brings about, by kind: "2 calls, timer".
func (r JournalRow) EffectText() string { return effectText(r.Effects) }

// DetailsOf are the details of the run with that journal.
func DetailsOf(entries []core.Entry) (RunDetails, error) {
	var d RunDetails
	var s core.State
	var err error
	for i := range entries {
		e := &entries[i]
		if s, err = core.Apply(s, e); err != nil {
			return d, fmt.Errorf("read entry %d: %w", e.Rev, err)
		}
		d.Journal, d.Edits = append(d.Journal, RowsOfEntry(e)...), append(d.Edits, editedCalls(e)...)
		if e.Terminal != nil {
			d.Terminal = e.Terminal
		}
		if i == 0 {
			d.Started = e.At
		}
		d.Updated = e.At
	}
	d.Run, d.Agent, d.Status, d.Reason, d.Deadline = s.Run, s.Agent, s.Status, s.Reason, s.Deadline
	d.Budget, d.TokensUsed = s.Budget, s.TokensUsed()
	if s.Status == core.StatusDone {
		d.Code = s.ReasonCode
	} else {
		for _, n := range s.Notes {
			d.Unsaid = append(d.Unsaid, n.Text)
		}
	}
	d.Interactions, d.Usage, d.Units, d.Spec, d.System = s.Turns, s.Usage, Units(s.Units), s.Spec, s.System
	if d.Purged = s.Purged; d.Purged != nil {
		d.Started = 0 // nobody knows any more
	}
	d.Parked, d.Paused, d.Plan = s.Parked, s.Paused, s.Plan
	d.HandedBack, d.Waiting, d.Messages = handedBack(&s.Head), WaitingCalls(&s.Head), append([]sdk.Message{}, s.Messages()...)
	return d, nil
}

// DetailsOfStatus are what a worker tells of a run: neither its conversation nor its journal.
func DetailsOfStatus(s wire.RunStatus) RunDetails {
	d := RunDetails{
		Run: s.Run, Agent: s.Agent, Status: s.Status, Reason: s.Reason, Started: s.Started, Updated: s.Updated, Deadline: s.Deadline,
		Interactions: s.Turns, Usage: s.Usage, Units: Units(s.Units), Waiting: waitingIn(s), Terminal: s.Terminal,
		Undoable: s.Undoable, Parked: s.Parked, Paused: s.Paused, Messages: []sdk.Message{}, Journal: []JournalRow{},
	}
	if s.Status == core.StatusDone {
		d.Code = s.Code
	}
	if s.Purged > 0 {
		d.Started, d.Purged = 0, &core.Purged{At: s.Purged, Rev: s.Revision} // workers do not tell the hash
	}
	return d
}

// Write writes the run for a terminal of that many columns, with command lines that command makes; full does not shorten.
func (d RunDetails) Write(w io.Writer, columns int, full bool, command func(args ...string) string) error {
	if err := d.writeHead(w); err != nil || d.Purged != nil {
		return err
	}
	if d.Plan != nil {
		writePlan(w, d.Plan, d.Status, d.Messages)
	}
	if len(d.Journal) > 0 {
		d.writeConversation(w, columns, full)
	}
	d.writeWaiting(w)
	if d.Terminal != nil {
		fmt.Fprintf(w, "\n%s\n%s\n", Line(d.Terminal.Type, LineMax), VisibleJSON(d.Terminal.Data))
	}
	if len(d.Undoable) > 0 {
		fmt.Fprintf(w, "\ncan be undone, with: %s\n", command("runs", "undo", d.Run))
		if err := UndoCalls(w, d.Undoable); err != nil {
			return err
		}
	}
	if len(d.Journal) == 0 {
		return nil
	}
	return d.writeJournal(w)
}

// writeHead writes how the run is, and of one whose history was removed all that is known.
func (d RunDetails) writeHead(w io.Writer) error {
	var t Table
	t.Row("run", Line(d.Run, LineMax))
	t.Row("agent", Line(d.Agent, LineMax))
	status := StatusText(d.Status, d.Reason, d.Code)
	if d.HandedBack {
		status += waitsForRetry
	}
	t.Row("status", Line(status, LineMax))
	if text := ParkedText(d.Parked, time.Now().UnixMilli()); text != "" {
		t.Row("waits for", Line(text, LineMax))
		if d.Parked.Message != "" {
			t.Row("because", Line(fmt.Sprintf("%s (%s, try %d)", d.Parked.Message, d.Parked.Code, d.Parked.Tries), LineMax))
		}
	}
	if d.Paused != nil {
		t.Row("paused", Line(strings.TrimSpace(When(d.Paused.At)+" "+d.Paused.Reason), LineMax))
	}
	if d.Purged == nil {
		t.Row("started", When(d.Started))
	}
	t.Row("changed", When(d.Updated))
	if d.Status != core.StatusDone {
		t.Row("deadline", due(d.Deadline))
	}
	t.Row("model", fmt.Sprintf("%s, %d prompt and %d completion tokens, %s execution units",
		Count(d.Interactions, "call"), d.Usage.Prompt, d.Usage.Completion, d.Units))
	if d.Purged != nil {
		t.Row("history", purgedText(d.Purged))
	}
	if d.Budget > 0 && d.Purged == nil {
		t.Row("budget", fmt.Sprintf("%d of %d tokens used or kept for agents that it called", d.TokensUsed, d.Budget))
	}
	return t.Write(w, "", 0)
}

// purgedText says what is left of a history that was removed.
func purgedText(p *core.Purged) string {
	text := fmt.Sprintf("removed %s: %s", When(p.At), Count(int(p.Rev), "entry"))
	if p.Digest != "" {
		text += ", the last with SHA-256 " + p.Digest
	}
	return text
}

func (d RunDetails) writeWaiting(w io.Writer) {
	if len(d.Waiting) == 0 {
		return
	}
	fmt.Fprintln(w, "\nwaits for")
	for _, c := range d.Waiting {
		fmt.Fprintf(w, "  %s: %s\n", c.text(), c.Call)
		if c.Unserved {
			fmt.Fprintln(w, "    "+Unserved(c.Type, c.Due))
		}
	}
}

// text is what is waited for, with its type and its time where it has them.
func (c WaitingCall) text() string {
	text := waitingText([]WaitingCall{c})
	if c.Type != "" {
		text += " (" + Line(c.Type, LineMax) + ")"
	}
	if c.Due > 0 {
		text += ", due in " + Until(c.Due)
	}
	return text
}

// UndoCalls lists calls that can be undone, or were to be.
func UndoCalls(w io.Writer, calls []wire.UndoCall) error {
	var t Table
	for _, c := range calls {
		outcome := strings.ReplaceAll(string(c.Outcome), "_", " ")
		if c.Message != "" {
			outcome += ": " + c.Message
		}
		t.Row(Line(c.Tool, LineMax), c.Call, Line(outcome, LineMax))
	}
	return t.Write(w, "  ", 0)
}

// Unserved is what is said of a call that nobody takes.
func Unserved(contractType string, due int64) string {
	text := "nobody serves " + Line(contractType, LineMax) + " now; the call waits"
	if due > 0 {
		text += ", due in " + Until(due)
	}
	return text
}

// NoWorker is what is said of an init event that nobody takes.
func NoWorker(agent string) string {
	return "no worker serves " + Line(agent, LineMax) + " now; the event is stored, and handled when one starts"
}

// conversationIndent is how many columns are before the texts of a conversation.
const conversationIndent = 13

func (d RunDetails) writeConversation(w io.Writer, columns int, full bool) {
	say := func(who, text string) {
		fmt.Fprintf(w, "  %-9s  %s\n", who, line(text, room(columns, conversationIndent), full))
	}
	fmt.Fprintln(w, "\nconversation")
	if d.System != "" {
		say("system", d.System)
	}
	for _, m := range d.Messages {
		for i := range m.Content {
			say(ContentText(m.Role, &m.Content[i]))
			if text := d.editText(&m.Content[i]); text != "" {
				say("  edited", text)
			}
		}
	}
	for _, text := range d.Unsaid {
		say("(waits)", text)
	}
}

// editText says with what a call was made instead; empty is that it was not edited.
func (d RunDetails) editText(c *sdk.Content) string {
	for _, e := range d.Edits {
		if c.Kind == sdk.ContentToolUse && e.Call == c.CallID {
			return strings.TrimSpace("to " + string(e.Args) + " " + by(e.Who))
		}
	}
	return ""
}

// ContentText is who said a part of a message, and what.
func ContentText(role sdk.Role, c *sdk.Content) (who, text string) {
	switch c.Kind {
	case sdk.ContentToolUse:
		return "  call", c.Tool + " " + string(c.Args)
	case sdk.ContentToolResult:
		if c.IsError {
			return "  error", c.Tool + " " + c.Text
		}
		if c.Pending {
			return "  pending", c.Tool
		}
		return "  result", c.Tool + " " + c.Text
	case sdk.ContentMedia:
		if c.Media == nil {
			return string(role), "(media)"
		}
		return string(role), "(" + strings.TrimSpace(c.Media.MIME+" "+c.Media.Name) + ")"
	case sdk.ContentThinking:
		return "  thinks", c.Text
	case sdk.ContentRedacted:
		return "  thinks", "(not shown by the provider)"
	case sdk.ContentText:
		if text, ok := decisionTold(c); ok {
			return "  decided", text
		}
	}
	return string(role), c.Text
}

// decisionTold is the decision that a text tells the model of, in words; not ok is another text.
func decisionTold(c *sdk.Content) (text string, ok bool) {
	var told struct {
		Permission *sdk.PermissionDecision `json:"permission"`
	}
	if c.CallID == "" || c.Tool == "" || c.Pending { // somebody's message, or the late result of a call
		return "", false
	}
	if json.Unmarshal([]byte(c.Text), &told) != nil || told.Permission == nil {
		return "", false
	}
	_, text = describeDecision(core.Decision{Decision: told.Permission.Decision, Reason: told.Permission.Reason}, told.Permission.Args)
	return c.Tool + " " + text, true
}

func (d RunDetails) writeJournal(w io.Writer) error {
	first, last := time.UnixMilli(d.Journal[0].At), time.UnixMilli(d.Journal[len(d.Journal)-1].At)
	fmt.Fprintf(w, "\njournal (%d), times in %s\n", len(d.Journal), first.Format("MST"))
	at := clockMillis
	if first.Format(time.DateOnly) != last.Format(time.DateOnly) {
		at = dateMillis
	}
	var t Table
	for _, e := range d.Journal {
		t.Row(strconv.FormatUint(e.Revision, 10), at(e.At), e.Kind, Line(e.Status, LineMax), e.EffectText(), e.Cause)
	}
	return t.Write(w, "  ", 0)
}

// effectText counts effects of a kind: "2 calls, timer".
func effectText(effects []string) string {
	text := ""
	for i := 0; i < len(effects); {
		n := i
		for n < len(effects) && effects[n] == effects[i] {
			n++
		}
		if text != "" {
			text += ", "
		}
		if n-i > 1 {
			text += Count(n-i, effects[i])
		} else {
			text += effects[i]
		}
		i = n
	}
	if text == "" {
		return "-"
	}
	return text
}
