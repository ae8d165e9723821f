package prompt

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/internal/excerpt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Parts are what a prompt is made of.
type Parts struct {
	// System is the system prompt without the Summary, which stands for what is not among the Messages.
	System, Summary string
	Tools           []sdk.ToolDefinition
	// ReadMore is offered once a result was cut; nil is never.
	ReadMore *sdk.ToolDefinition
	Sections []sdk.Section
	// Messages are the conversation. Task says which of them are never left out or cut. Of the first Kept, which are of the task,
	// and of the first Lined, whose results have one line, no more is to be decided.
	Messages    []sdk.Message
	Task        []bool
	Kept, Lined int
	// Added are texts that the model is told after the conversation, cut where they do not fit.
	Added []sdk.Message
	// Shown is how many characters of a tool's result may be shown at once.
	Shown func(tool string) int
}

// Fitted is a prompt that fits its window, unless Compaction says that the conversation is to be shortened first.
type Fitted struct {
	System   string
	Tools    []sdk.ToolDefinition
	Sections []sdk.Section
	Messages []sdk.Message
	Ledger   Ledger
	// Final says that too little is left for a round: the model is asked for its final answer.
	Final      bool
	Compaction *Compaction
}

// SummarySection is the name of the section of the system prompt that has the summary.
const SummarySection = "conversation_summary"

// verbatim is how many of the newest messages stay as they are while what is older is shortened.
const verbatim = 4

// Fit makes a prompt that fits the window, with the task, and with no call without its result. The error is CodeTooLarge when the
// task does not fit beside the system prompt and the tools.
func Fit(count Counter, w Window, p Parts) (Fitted, error) {
	f := Fitted{System: p.System, Tools: p.Tools, Sections: p.Sections}
	summary := ""
	if p.Summary != "" {
		summary = rendered([]sdk.Section{{Name: SummarySection, Text: p.Summary}})[0]
		f.System = System(p.System, sdk.Section{Name: SummarySection, Text: p.Summary})
	}
	f.Ledger = Ledger{Total: w.Total, Output: w.Output, Safety: w.Safety, System: count.Prose(p.System), Summary: count.Prose(summary)}
	tools := count.Tools(p.Tools)
	more := 0
	if p.ReadMore != nil {
		more = count.Tools([]sdk.ToolDefinition{*p.ReadMore})
	}
	room := w.Prompt() - f.Ledger.System - f.Ledger.Summary - tools - more
	task := 0
	for i := range p.Messages {
		if p.Task[i] {
			task += count.Message(&p.Messages[i])
		}
	}
	if task > room {
		return Fitted{}, sdk.Errorf(sdk.CodeTooLarge, "the task takes about %d tokens, and beside tools and system prompt the window of %d tokens "+
			"has room for %d; give a shorter task, or a model with a larger window (context_window)", task, w.Total, max(room, 0))
	}
	f.Sections = fitTexts(p.Sections, max((room-task)/3, 0), count.Sections, shortSection)
	f.Ledger.Sections = count.Sections(f.Sections)
	room -= f.Ledger.Sections
	added := fitTexts(p.Added, max((room-task)/2, 0), count.Messages, shortMessage)
	said := count.Messages(added)
	room -= said

	c := conversation{count: count, parts: &p, task: p.Task}
	c.begin()
	fifth := w.Prompt() / 5
	if free := max(fifth, w.Gate+w.Gate/4); room-c.tokens() < free {
		if f.Compaction = c.shorten(room, free, free+fifth); f.Compaction != nil {
			f.Compaction.Large = f.Compaction.worth >= fifth
			return f, nil
		}
	}
	c.squeeze(room, room-w.Gate)
	f.Messages = append(c.messages, added...)
	f.Ledger.Tools, f.Ledger.History = tools, c.tokens()+said
	if p.ReadMore != nil && c.cut {
		f.Tools = append(slices.Clip(p.Tools), *p.ReadMore)
		f.Ledger.Tools += more
	}
	f.Ledger.Remaining = w.Prompt() - f.Ledger.Prompt()
	f.Final = f.Ledger.Remaining < w.Gate
	return f, nil
}

// fitTexts cuts texts so that they take no more than room, and where that is not enough leaves out the first of them.
func fitTexts[T any](texts []T, room int, tokens func([]T) int, shorter func(text T, limit int) T) []T {
	all := texts
	for limit := 1 << 16; tokens(all) > room && limit >= sdk.MinResult; limit /= 2 {
		all = make([]T, len(texts))
		for i, text := range texts {
			all[i] = shorter(text, limit)
		}
	}
	for len(all) > 0 && tokens(all) > room {
		all = all[1:]
	}
	return all
}

func shortSection(s sdk.Section, limit int) sdk.Section {
	return sdk.Section{Name: s.Name, Text: shortText(s.Text, limit)}
}

func shortMessage(m sdk.Message, limit int) sdk.Message {
	shorter := sdk.Text(m.Role, shortText(m.PlainText(), limit))
	shorter.Seen = m.Seen
	return shorter
}

// shortText is a text of at most limit characters, with a notice in the place of what is left out.
func shortText(text string, limit int) string {
	ends := excerpt.Of(text, limit-limit/3, limit/3)
	if ends.Whole() {
		return text
	}
	return fmt.Sprintf("%s\n[%d of %d bytes are left out here]\n%s", ends.Head, ends.Size-len(ends.Head)-len(ends.Tail), ends.Size, ends.Tail)
}

// conversation is that of a prompt in the making.
type conversation struct {
	count Counter
	parts *Parts
	// whole are the messages before results are cut, messages what they are now, and task says which of them are the task.
	whole, messages []sdk.Message
	task            []bool
	// cut says that something of a result is not shown.
	cut bool
	// known are the tokens of each message, 0 where they are to be counted.
	known []int
}

// begin shows the results of the first messages in one line, and cuts the others.
func (c *conversation) begin() {
	c.whole = c.parts.Messages
	if c.parts.Lined > 0 {
		c.whole = slices.Clone(c.whole)
	}
	for i := range min(c.parts.Lined, len(c.whole)) {
		m, cut := inOneLine(c.whole[i])
		c.whole[i], c.cut = m, c.cut || cut
	}
	c.known = make([]int, len(c.whole))
	c.limit(c.parts.Shown)
}

// limit cuts results to what may be shown of them.
func (c *conversation) limit(shown func(tool string) int) {
	messages, cut := Cut(c.whole, shown)
	c.messages, c.cut = messages, c.cut || cut
	clear(c.known)
}

// inOneLine is a message with its results in one line, and whether something of them is not shown.
func inOneLine(m sdk.Message) (lined sdk.Message, cut bool) {
	m.Content = slices.Clone(m.Content)
	for j := range m.Content {
		part := &m.Content[j]
		if part.Kind != sdk.ContentToolResult {
			continue
		}
		part.Note = ""
		if text := oneLine(part); text != part.Text {
			part.Text, part.Size, cut = text, 0, true
		}
	}
	return m, cut
}

// shortResult is how many bytes of a result are shown in its one line; a result that is not longer is left as it is.
const shortResult = 160

// oneLine is a result in one line.
func oneLine(c *sdk.Content) string {
	if c.Size == 0 && len(c.Text) <= shortResult {
		return c.Text
	}
	ends := endsOf(c)
	return fmt.Sprintf("[%s … %d bytes in all; to read them, call read_more with result %q and offset 0]",
		firstLine(ends.Head, shortResult/2), ends.Size, wire.CallPlace(c.CallID))
}

func (c *conversation) tokens() int {
	n := 0
	for i := range c.messages {
		n += c.of(i)
	}
	return n
}

func (c *conversation) of(i int) int {
	if c.known[i] == 0 {
		c.known[i] = c.count.Message(&c.messages[i])
	}
	return c.known[i]
}

// ofLine is how many tokens a message takes with its results in one line.
func (c *conversation) ofLine(i int) int {
	m, _ := inOneLine(c.parts.Messages[i])
	return c.count.Message(&m)
}

// Frontier reports whether messages may be cut before i: it is not a result of an earlier call, nor what such a result has of media.
func Frontier(messages []sdk.Message, i int) bool {
	return !slices.ContainsFunc(messages[i].Content, func(c sdk.Content) bool {
		return c.Kind == sdk.ContentToolResult || c.Kind == sdk.ContentMedia && c.CallID != ""
	})
}

// newest is where the newest messages begin, at least n of them, and no fewer than the newest turn.
func (c *conversation) newest(n int) int {
	for i := len(c.messages) - 1; i >= 0; i-- {
		if len(c.messages)-i >= n && Frontier(c.messages, i) {
			return i
		}
	}
	return 0
}

// shorten plans which of the oldest messages a summary is to stand for, and up to where results are in one line, so that free tokens
// are left in room: by lines alone, where that is enough, else wanted tokens, so that it is not to be done again soon. Nil: nothing
// more can be done.
func (c *conversation) shorten(room, free, wanted int) *Compaction {
	before := c.tokens()
	lined := max(c.newest(verbatim), c.parts.Lined)
	total := before
	for i := c.parts.Lined; i < lined; i++ {
		total += c.ofLine(i) - c.of(i)
	}
	until := c.parts.Kept
	enough := func(goal int) bool { return room-total >= goal }
	evict := func(end, goal int) {
		for until < end && !enough(goal) {
			next := until + 1
			for next < end && !Frontier(c.messages, next) {
				next++
			}
			for i := until; i < next; i++ {
				if c.parts.Task[i] {
					continue
				}
				if i >= c.parts.Lined && i < lined {
					total -= c.ofLine(i)
				} else {
					total -= c.of(i)
				}
			}
			until = next
		}
	}
	if !enough(free) {
		evict(c.newest(verbatim), wanted)
		evict(c.newest(1), free)
	}
	lined = max(lined, until)
	if until == c.parts.Kept && lined == c.parts.Lined {
		return nil
	}
	var evicted []sdk.Message
	for i := c.parts.Kept; i < until; i++ {
		if !c.parts.Task[i] {
			evicted = append(evicted, c.parts.Messages[i])
		}
	}
	worth := 0
	shown, _ := Cut(evicted, c.parts.Shown)
	for i := range shown {
		worth += c.count.Message(&shown[i])
	}
	return &Compaction{
		worth: worth, Messages: until - c.parts.Kept, Lined: lined - c.parts.Kept, Evicted: max(before-total, 0), Turns: turnsOf(evicted),
	}
}

// squeeze cuts what is in the prompt harder and harder until it leaves the gate free, or at last until it fits: first results, then
// what else was said, and then the oldest turns are left out. The task stays.
func (c *conversation) squeeze(room, gated int) {
	for limit := sdk.MaxResult; c.tokens() > gated && limit >= sdk.MinResult; limit /= 2 {
		c.limit(func(tool string) int { return min(limit, c.parts.Shown(tool)) })
	}
	for limit := sdk.MaxResult; c.tokens() > room && limit >= sdk.MinResult; limit /= 2 {
		c.cutTexts(limit)
	}
	for c.tokens() > room && c.leaveOutOldest() {
	}
}

// cutTexts shortens what was said, but for the task, leaves out media, and arguments, which stay JSON.
func (c *conversation) cutTexts(limit int) {
	c.cut = true
	clear(c.known)
	for i := range c.messages {
		if c.task[i] {
			continue
		}
		content := slices.Clone(c.messages[i].Content)
		for j := range content {
			part := &content[j]
			switch part.Kind {
			case sdk.ContentText, sdk.ContentToolResult:
				part.Text = shortText(part.Text, limit)
			case sdk.ContentToolUse:
				if len(part.Args) > limit {
					part.Args = json.RawMessage(fmt.Sprintf(`{"left_out":"%d bytes of arguments"}`, len(part.Args)))
				}
			case sdk.ContentMedia:
				*part = sdk.Content{Kind: sdk.ContentText, Text: "[an image or a sound for which there is no room]"}
			case sdk.ContentThinking, sdk.ContentRedacted:
			}
		}
		c.messages[i].Content = content
	}
}

// leaveOutOldest leaves out the oldest turn that is not of the task. It reports whether there was one.
func (c *conversation) leaveOutOldest() bool {
	for from := range c.messages {
		if c.task[from] {
			continue
		}
		end := from + 1
		for end < len(c.messages) && !c.task[end] && !Frontier(c.messages, end) {
			end++
		}
		c.task = slices.Delete(slices.Clone(c.task), from, end)
		c.messages, c.known = slices.Delete(c.messages, from, end), slices.Delete(c.known, from, end)
		return true
	}
	return false
}
