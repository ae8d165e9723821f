package show

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/sdk"
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
	Started      int64          `json:"started"`
	Updated      int64          `json:"updated"`
	Deadline     int64          `json:"deadline"`
	Interactions int            `json:"interactions"`
	Usage        sdk.Usage      `json:"usage"`
	Units        sdk.Units      `json:"executionunits"`
	Spec         string         `json:"spec"`
	System       string         `json:"system,omitempty"`
	Purged       *core.Purged   `json:"purged,omitempty"`
	HandedBack   bool           `json:"handed_back,omitempty"`
	Waiting      []waiting      `json:"waiting,omitempty"`
	Messages     []sdk.Message  `json:"messages"`
	Terminal     *core.Terminal `json:"terminal,omitempty"`
	Journal      []JournalRow   `json:"journal"`
}

// JournalRow is an entry of the journal.
type JournalRow struct {
	Revision uint64   `json:"rev"`
	At       int64    `json:"at"`
	Kind     string   `json:"kind"`
	Status   string   `json:"status"`
	Effects  []string `json:"effects,omitempty"`
	Cause    string   `json:"cause"`
}

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
		row := JournalRow{
			Revision: e.Rev, At: e.At, Kind: e.Kind, Status: StatusText(e.Head.Status, e.Head.Reason, ""),
			Cause: fmt.Sprintf("%s/%d", e.Cause.Stream, e.Cause.Sequence),
		}
		for _, f := range e.Effects {
			row.Effects = append(row.Effects, string(f.Kind))
		}
		d.Journal = append(d.Journal, row)
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
	}
	for _, n := range s.Notes {
		d.Unsaid = append(d.Unsaid, n.Text)
	}
	d.Interactions, d.Usage, d.Units, d.Spec, d.System = s.Interactions, s.Usage, s.Units, s.Spec, s.System
	if d.Purged = s.Purged; d.Purged != nil {
		d.Started = 0 // nobody knows any more
	}
	d.HandedBack, d.Waiting, d.Messages = handedBack(&s.Head), waitingCalls(&s.Head), s.Messages()
	return d, nil
}

func (d RunDetails) Write(w io.Writer, full bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "run\t%s\n", Clip(d.Run, LineMax))
	fmt.Fprintf(t, "agent\t%s\n", d.Agent)
	status := StatusText(d.Status, d.Reason, d.Code)
	if d.HandedBack {
		status += waitsForRetry
	}
	fmt.Fprintf(t, "status\t%s\n", status)
	if d.Purged == nil {
		fmt.Fprintf(t, "started\t%s (%s)\n", Clock(d.Started), Ago(d.Started))
	}
	fmt.Fprintf(t, "changed\t%s (%s)\n", Clock(d.Updated), Ago(d.Updated))
	if d.Status != core.StatusDone {
		fmt.Fprintf(t, "deadline\t%s (in %s)\n", Clock(d.Deadline), Duration(time.Until(time.UnixMilli(d.Deadline))))
	}
	fmt.Fprintf(t, "model\t%s, %d prompt and %d completion tokens, %s execution units\n",
		Count(d.Interactions, "call"), d.Usage.Prompt, d.Usage.Completion, d.Units)
	if p := d.Purged; p != nil {
		fmt.Fprintf(t, "history\tremoved %s (%s): %d entries, the last with SHA-256 %s\n", Clock(p.At), Ago(p.At), p.Rev, p.Digest)
		return t.Flush()
	}
	if d.Budget > 0 {
		fmt.Fprintf(t, "budget\t%d of %d tokens used or kept for agents that it called\n", d.TokensUsed, d.Budget)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	d.writeConversation(w, full)
	for _, text := range d.Unsaid {
		fmt.Fprintf(w, "  %-9s  %s\n", "(waits)", desk.Visible(Clip(text, fitting(w, conversationIndent)), false))
	}
	if len(d.Waiting) > 0 {
		fmt.Fprintln(w, "\nwaits for")
		for _, c := range d.Waiting {
			fmt.Fprintf(w, "  %s (%s), due in %s: %s\n", WaitingText([]waiting{c}), c.Type, Duration(time.Until(time.UnixMilli(c.Due))), c.Call)
		}
	}
	if d.Terminal != nil {
		fmt.Fprintf(w, "\n%s\n%s\n", d.Terminal.Type, Indent(d.Terminal.Data))
	}
	return d.writeJournal(w)
}

// conversationIndent is how many columns are before the texts of a conversation.
const conversationIndent = 13

func (d RunDetails) writeConversation(w io.Writer, full bool) {
	cut := func(text string) string {
		if !full {
			text = Clip(text, fitting(w, conversationIndent))
		}
		return desk.Visible(text, full) // models wrote it
	}
	fmt.Fprintln(w, "\nconversation")
	if d.System != "" {
		fmt.Fprintf(w, "  %-9s  %s\n", "system", cut(d.System))
	}
	for _, m := range d.Messages {
		for _, c := range m.Content {
			who, text := string(m.Role), c.Text
			switch c.Kind {
			case sdk.ContentToolUse:
				who, text = "  call", c.Tool+" "+string(c.Args)
			case sdk.ContentToolResult:
				who, text = "  result", c.Tool+" "+c.Text
				if c.IsError {
					who = "  error"
				}
			case sdk.ContentMedia:
				text = "(media)"
				if c.Media != nil {
					text = fmt.Sprintf("(%s %s)", c.Media.MIME, c.Media.Name)
				}
			case sdk.ContentThinking:
				who = "  thinks"
			case sdk.ContentRedacted:
				who, text = "  thinks", "(not shown by the provider)"
			case sdk.ContentText:
			}
			fmt.Fprintf(w, "  %-9s  %s\n", who, cut(text))
		}
	}
}

func (d RunDetails) writeJournal(w io.Writer) error {
	fmt.Fprintf(w, "\njournal (%d)\n", len(d.Journal))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range d.Journal {
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\n",
			e.Revision, time.UnixMilli(e.At).Format("15:04:05.000"), e.Kind, e.Status, effectText(e.Effects), e.Cause)
	}
	return t.Flush()
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
