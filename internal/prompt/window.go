package prompt

import (
	"cmp"
	"regexp"

	"agentd/sdk"
)

// Window is what a prompt and its reply may take, in tokens.
type Window struct {
	// Total is the whole; Output is reserved for the reply, and Safety for what the estimate misses.
	Total, Output, Safety int
	// Gate is how many tokens a round must have left to call tools in.
	Gate int
}

// What is reserved where nothing else is said, and of small windows at most a part of it.
const (
	defaultOutput = 2000
	defaultSafety = 768
)

// published are windows by models' names, as their providers publish them, also behind the name of a vendor ("openai/gpt-4o").
// The first that matches counts.
var published = []struct {
	name           *regexp.Regexp
	window, output int
}{
	{models(`gpt-4\.1.*`), 1_047_576, 0},
	{models(`gpt-5.*`), 400_000, 0},
	{models(`(?:chatgpt-4o|gpt-4o|gpt-4-turbo|gpt-4-1106|gpt-4-0125).*`), 128_000, 0},
	{models(`gpt-4.*`), 8192, 0},
	{models(`gpt-3\.5.*`), 16_385, 0},
	{models(`o1-(?:mini|preview).*`), 128_000, 0},
	{models(`o[1-9].*`), 200_000, 0},
	{models(`claude-.*`), 200_000, 8192}, // the reply of the protocol's default length
	{models(`gemini-1\.5-pro.*`), 2_097_152, 0},
	{models(`gemini-.*`), 1_048_576, 0},
	{models(`(?:mistral-large|mistral-medium|mistral-small|ministral|pixtral).*`), 128_000, 0},
	{models(`(?:llama-?3\.[123]).*`), 128_000, 0},
	{models(`deepseek-(?:chat|reasoner).*`), 128_000, 0},
}

func models(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:.*/)?` + pattern + `$`) }

// WindowOf is the window of a model, and with fallbacks the smallest of all, for a reply of so many tokens; 0 is what their specs say.
// memory bounds the prompt further.
func WindowOf(model sdk.ModelSpec, memory *sdk.Memory, reply int) Window {
	w := windowOf(model, reply)
	for _, fallback := range model.Fallback {
		if other := windowOf(fallback, reply); other.Prompt() < w.Prompt() {
			w = other
		}
	}
	gate := sdk.DefaultGate
	if memory != nil {
		if memory.Window > 0 {
			w.Total = min(w.Total, memory.Window+w.Output+w.Safety)
		}
		gate = cmp.Or(memory.Gate, gate)
	}
	w.Gate = min(gate, w.Prompt()/3)
	return w
}

func windowOf(model sdk.ModelSpec, reply int) Window {
	model.MaxTokens = cmp.Or(reply, model.MaxTokens)
	w := Window{Total: model.ContextWindow, Output: model.MaxTokens}
	for _, p := range published {
		if p.name.MatchString(model.Name) {
			w.Total, w.Output = cmp.Or(w.Total, p.window), cmp.Or(w.Output, p.output)
			break
		}
	}
	w.Total = cmp.Or(w.Total, sdk.DefaultWindow)
	w.Output = min(cmp.Or(w.Output, defaultOutput), w.Total/2)
	if model.MaxTokens == 0 {
		w.Output = min(w.Output, w.Total/4)
	}
	w.Safety = min(defaultSafety, w.Total/10)
	return w
}

// Reply is how many tokens a model may be asked for that is to reply with so many: at most what is reserved for them, half of its window.
func Reply(model sdk.ModelSpec, tokens int) int { return min(tokens, windowOf(model, tokens).Output) }

// Prompt is how many tokens a prompt may have.
func (w Window) Prompt() int { return w.Total - w.Output - w.Safety }

// Result is how many characters of a result may be shown at once: no more than limit, and what about a quarter of the window holds.
func (w Window) Result(limit int) int { return max(min(limit, w.Prompt()*7/10), sdk.MinResult) }

// Ledger says what the tokens of a window are for. Its parts add up to Total.
type Ledger struct {
	Total   int `json:"total"`
	System  int `json:"system"`
	Tools   int `json:"tools"`
	Summary int `json:"summary"`
	// Sections are those of the current turn, History is the rest of the conversation.
	Sections  int `json:"sections"`
	History   int `json:"history"`
	Output    int `json:"output"`
	Safety    int `json:"safety"`
	Remaining int `json:"remaining"`
}

// Prompt is how many tokens the prompt has.
func (l *Ledger) Prompt() int { return l.System + l.Tools + l.Summary + l.Sections + l.History }
