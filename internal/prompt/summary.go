package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"agentd/internal/excerpt"
	"agentd/sdk"
)

// Compaction shortens a conversation.
type Compaction struct {
	// Messages is how many of those that no summary stands for get one, from the first, and Lined up to where their results are in
	// one line.
	Messages, Lined int
	// Evicted is how many tokens fewer the prompt has.
	Evicted int
	// Large says that what gets a summary was a fifth of the window, so that a model's is worth its price. Where prompts never fit,
	// because of what else is in them, it would be asked for before every call. worth is how many tokens it was.
	Large bool
	worth int
	// Turns are the messages that get a summary: each a message, or a reply with the results of its calls.
	Turns [][]sdk.Message
}

func turnsOf(messages []sdk.Message) [][]sdk.Message {
	var turns [][]sdk.Message
	for i, m := range messages {
		if i == 0 || Frontier(messages, i) {
			turns = append(turns, nil)
		}
		last := len(turns) - 1
		turns[last] = append(turns[last], m)
	}
	return turns
}

// maxBatch is how many turns a model summarises at once.
const maxBatch = 6

// Batches are the turns in pieces of at most six, and of three at least where there are as many.
func (c *Compaction) Batches() [][][]sdk.Message {
	n := (len(c.Turns) + maxBatch - 1) / maxBatch
	batches := make([][][]sdk.Message, n)
	for i := range n {
		batches[i] = c.Turns[i*len(c.Turns)/n : (i+1)*len(c.Turns)/n]
	}
	return batches
}

// What a line of a summary has of a message, in bytes.
const (
	lineOfUser      = 160
	lineOfAssistant = 120
	lineOfCall      = 80
)

// Extract is a summary of turns without a model: a line for each thing that was said, and for each call with its result.
func Extract(turns [][]sdk.Message) string {
	var lines []string
	for _, turn := range turns {
		results := map[string]*sdk.Content{}
		for i := range turn {
			for j := range turn[i].Content {
				if c := &turn[i].Content[j]; c.Kind == sdk.ContentToolResult {
					results[c.CallID] = c
				}
			}
		}
		for i := range turn {
			for j := range turn[i].Content {
				if line := lineOf(turn[i].Role, &turn[i].Content[j], results); line != "" {
					lines = append(lines, line)
				}
			}
		}
	}
	return strings.Join(lines, "\n")
}

func lineOf(role sdk.Role, c *sdk.Content, results map[string]*sdk.Content) string {
	switch {
	case c.Kind == sdk.ContentText && role == sdk.RoleUser:
		return "- user: " + firstLine(c.Text, lineOfUser)
	case c.Kind == sdk.ContentText:
		return "- assistant: " + firstLine(c.Text, lineOfAssistant)
	case c.Kind != sdk.ContentToolUse:
		return ""
	}
	line := "- " + c.Tool + " " + firstLine(string(c.Args), lineOfCall)
	if r := results[c.CallID]; r != nil {
		became := " → "
		if r.IsError {
			became = " failed: "
		}
		line += became + firstLine(endsOf(r).Head, lineOfCall)
	}
	return line
}

// firstLine is a text in one line of at most limit bytes.
func firstLine(text string, limit int) string {
	if len(text) > 4*limit {
		end := 4 * limit
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	line := strings.Join(strings.Fields(text), " ")
	ends := excerpt.Of(line, limit, 0)
	return strings.TrimSpace(ends.Head)
}

// Append puts a summary of what came next under a summary. It has at most so many tokens: what is oldest is left out.
func Append(count Counter, summary, next string, tokens int) string {
	const omitted = "[what came before is left out]"
	lines := strings.Split(strings.TrimSpace(summary+"\n"+next), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == omitted })
	total, from := 0, len(lines)
	for from > 0 && total+count.Prose(lines[from-1])+1 <= tokens {
		from--
		total += count.Prose(lines[from]) + 1
	}
	kept := strings.Join(lines[from:], "\n")
	switch {
	case from == 0:
		return kept
	case kept == "":
		// A character may be several bytes, and a provider may count more tokens for them than are estimated.
		limit := tokens
		for kept = excerpt.Of(lines[len(lines)-1], limit, 0).Head; count.Prose(kept) > tokens; kept = excerpt.Of(kept, limit, 0).Head {
			limit = limit * 3 / 4
		}
	}
	return omitted + "\n" + kept
}

// SummaryTokens is how many tokens a summary may have.
func (w Window) SummaryTokens() int { return min(max(500, w.Prompt()/16), w.Prompt()/4) }

// Touched are the files that calls of the turns name, after those of files: by arguments such as "path", each once, at its last place.
func Touched(files []string, turns [][]sdk.Message) []string {
	files = slices.Clone(files)
	for _, turn := range turns {
		for _, m := range turn {
			for _, c := range m.Content {
				var args map[string]any
				if c.Kind != sdk.ContentToolUse || json.Unmarshal(c.Args, &args) != nil {
					continue
				}
				for _, name := range pathArguments {
					for _, path := range pathsIn(args[name]) {
						files = slices.DeleteFunc(files, func(f string) bool { return f == path })
						files = append(files, path)
					}
				}
			}
		}
	}
	return files
}

// pathArguments are the names of arguments that name files.
var pathArguments = []string{"path", "paths", "file", "files", "file_path", "filename", "source", "destination"}

// maxPath is the longest path that is remembered, in bytes.
const maxPath = 512

func pathsIn(value any) []string {
	switch v := value.(type) {
	case string:
		if v != "" && len(v) <= maxPath {
			return []string{v}
		}
	case []any:
		var paths []string
		for _, item := range v {
			if path, ok := item.(string); ok {
				paths = append(paths, pathsIn(path)...)
			}
		}
		return paths
	}
	return nil
}

// Remembered is a summary with the files that it lists, as the model is shown it.
func Remembered(summary string, files []string) string {
	if summary == "" && len(files) == 0 {
		return ""
	}
	text := "What happened before, the oldest first:\n" + summary
	if len(files) > 0 {
		text += "\nFiles that were touched: " + strings.Join(files, ", ")
	}
	return text
}

const summaryRules = `You keep the memory of an agent. Summarise the part of its conversation below as the agent would remember it, in the
first person and in few words, with names, numbers, paths and ids exactly as they are. Invent nothing. Write under these headings, and
leave out those that have nothing:
%s
Reply with the summary alone.`

// The headings of a summary: of turns that a person speaks in, and of tool calls alone.
const (
	goalHeadings = "Goal; What the user asked or decided; Achieved; Dead ends; Lasting constraints; Key facts; Open items"
	toolHeadings = "Strategy; Operations; Discoveries; Dead ends; What worked; Critical artifacts; Status (complete, partial or blocked)"
)

// Ask asks a model for a summary of a batch of turns, of at most limit characters. They are put down as text: the model must not go on
// with them. task is what the agent works on.
func Ask(batch [][]sdk.Message, task string, limit int) (system string, asked []sdk.Message) {
	headings := toolHeadings
	var text strings.Builder
	for _, turn := range batch {
		for _, m := range turn {
			if m.Role == sdk.RoleUser && m.PlainText() != "" {
				headings = goalHeadings
			}
			write(&text, m)
		}
	}
	body := shortText(text.String(), limit)
	return fmt.Sprintf(summaryRules, headings), []sdk.Message{
		sdk.Text(sdk.RoleUser, "The agent's task: "+shortText(task, limit/4)+"\n\n"+body),
	}
}

func write(text *strings.Builder, m sdk.Message) {
	for i := range m.Content {
		c := &m.Content[i]
		switch c.Kind {
		case sdk.ContentText:
			fmt.Fprintf(text, "%s: %s\n", m.Role, c.Text)
		case sdk.ContentToolUse:
			fmt.Fprintf(text, "call of %s: %s\n", c.Tool, shortText(string(c.Args), previewed))
		case sdk.ContentToolResult:
			fmt.Fprintf(text, "result of %s: %s\n", c.Tool, preview(c))
		case sdk.ContentMedia:
			fmt.Fprintf(text, "%s: [media]\n", m.Role)
		case sdk.ContentThinking, sdk.ContentRedacted:
		}
	}
}

// previewed is how many characters of a result a summary is made of. A table of a megabyte must not be what the summary is of.
const previewed = 1600

func preview(c *sdk.Content) string {
	ends := endsOf(c).Shorter(previewed)
	if ends.Whole() {
		return ends.Head + ends.Tail
	}
	return fmt.Sprintf("%s… (%d bytes in all) …%s", ends.Head, ends.Size, ends.Tail)
}
