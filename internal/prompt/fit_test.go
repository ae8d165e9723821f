package prompt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/sdk"
)

// texts are what is said and returned in tests, of up to 10 MB.
func texts(t *rapid.T, label string) string {
	unit := rapid.SampledFrom([]string{"a", "word ", "a line\n", "é", "汉字", "🛫", `{"k":"v"},`, "e\u0301"}).Draw(t, label)
	n := rapid.SampledFrom([]int{0, 1, 30, 300, 3000, 30_000, 300_000}).Draw(t, label+" length")
	if n == 300_000 && rapid.IntRange(0, 19).Draw(t, label+" huge") == 0 {
		n = 10 << 20 / len(unit)
	}
	return strings.Repeat(unit, n)
}

// history is the journal's history of a run: the task, and turns of all kinds.
func history(t *rapid.T) core.State {
	var s core.State
	add := func(turns int, m sdk.Message) {
		s.History = append(s.History, core.Remembered{Message: m, Turns: turns})
	}
	add(0, sdk.Text(sdk.RoleUser, "The task: "+strings.Repeat("book a flight ", rapid.IntRange(0, 60).Draw(t, "task"))))
	for turn := 1; turn <= rapid.IntRange(0, 12).Draw(t, "turns"); turn++ {
		s.Turns = turn
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			add(turn, sdk.Text(sdk.RoleAssistant, texts(t, "said")))
			add(turn, sdk.Text(sdk.RoleUser, texts(t, "answered")))
		default:
			calls := rapid.SampledFrom([]int{1, 1, 2, 5, 40}).Draw(t, "calls")
			args := json.RawMessage(`{"path":"/a"}`)
			if rapid.IntRange(0, 9).Draw(t, "long arguments") == 0 {
				args, _ = json.Marshal(map[string]string{"content": strings.Repeat("é", 50_000)})
			}
			use := sdk.Message{Role: sdk.RoleAssistant, Seen: 1}
			for i := range calls {
				use.Content = append(use.Content, sdk.Content{Kind: sdk.ContentToolUse, CallID: callID(turn, i), Tool: "read", Args: args})
			}
			add(turn, use)
			text, err := json.Marshal(texts(t, "result"))
			if err != nil {
				t.Fatal(err)
			}
			for i := range calls {
				add(turn, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
					{Kind: sdk.ContentToolResult, CallID: callID(turn, i), Tool: "read", Text: string(text)},
				}})
			}
			if rapid.IntRange(0, 4).Draw(t, "media") == 0 {
				add(turn, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
					{Kind: sdk.ContentMedia, CallID: callID(turn, 0), Media: &sdk.Media{MIME: "image/png", Data: "aGk="}},
				}})
			}
		}
	}
	return s
}

func callID(turn, i int) string { return fmt.Sprintf("c%d-%d-abcdefgh", turn, i) }

// paired fails unless every call has its results, right after it, and every result and medium its call.
func paired(t rapid.TB, messages []sdk.Message) {
	open := map[string]bool{}
	known := map[string]bool{}
	for _, m := range messages {
		for _, c := range m.Content {
			switch c.Kind {
			case sdk.ContentToolUse:
				open[c.CallID], known[c.CallID] = true, true
				if !json.Valid(c.Args) {
					t.Fatalf("arguments are not JSON: %.80s", c.Args)
				}
			case sdk.ContentToolResult:
				if !open[c.CallID] {
					t.Fatalf("a result of %s without its call", c.CallID)
				}
				delete(open, c.CallID)
			case sdk.ContentMedia:
				if !known[c.CallID] {
					t.Fatalf("an image of %s without its call", c.CallID)
				}
			case sdk.ContentText:
				if m.Role == sdk.RoleAssistant && len(open) > 0 {
					t.Fatalf("calls %v have no results", open)
				}
			case sdk.ContentThinking, sdk.ContentRedacted:
			}
			if !utf8.ValidString(c.Text) || strings.HasPrefix(c.Text, "\u0301") {
				t.Fatalf("a character is cut in %.80q", c.Text)
			}
		}
	}
	if len(open) > 0 {
		t.Fatalf("calls %v have no results", open)
	}
}

// TestFit_AlwaysFits shortens histories of any size for any window, as a run does: until the prompt fits.
func TestFit_AlwaysFits(t *testing.T) {
	t.Parallel()
	compacted, final := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := history(t)
		count := prompt.CounterOf(sdk.ModelSpec{Name: "m"}).Calibrated(rapid.SampledFrom([]int{0, 750, 2000}).Draw(t, "calibration"))
		steps, last := fits(t, s, count, rapid.SampledFrom(windows).Draw(t, "window"), texts(t, "retrieved"))
		if compacted += steps; last {
			final++
		}
	})
	if compacted == 0 || final == 0 {
		t.Errorf("%d conversations were shortened, %d had room for nothing but an answer", compacted, final)
	}
}

// windows are those of models in tests.
var windows = []int{2000, 4096, 8000, 32_768, 200_000}

// A result of 10 MB fits any window, the newest and one that others have followed, of one call and beside others.
func TestFit_ResultsOfTenMegabytes(t *testing.T) {
	t.Parallel()
	for i, unit := range []string{"a line\n", "é", "🛫", `{"k":"v"},`, "e\u0301"} {
		large, short := encoded(t, strings.Repeat(unit, 10<<20/len(unit))), encoded(t, "short")
		s := core.State{History: []core.Remembered{{Message: sdk.Text(sdk.RoleUser, "The task: read it all.")}}}
		s.History = append(s.History, reads(1, large, short)...)
		if s.Turns = 1; i%2 == 0 {
			s.History, s.Turns = append(append(s.History, reads(2, short)...), reads(3, large)...), 3
		}
		fits(t, s, prompt.CounterOf(sdk.ModelSpec{Name: "m"}), windows[i], "")
	}
}

func encoded(t *testing.T, text string) string {
	t.Helper()
	data, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// reads is a turn with a call for each of the results.
func reads(turn int, results ...string) []core.Remembered {
	use := sdk.Message{Role: sdk.RoleAssistant, Seen: 1}
	messages := []core.Remembered{{}}
	for i, text := range results {
		use.Content = append(use.Content, sdk.Content{Kind: sdk.ContentToolUse, CallID: callID(turn, i), Tool: "read", Args: json.RawMessage(`{"path":"/a"}`)})
		messages = append(messages, core.Remembered{Turns: turn, Message: sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
			{Kind: sdk.ContentToolResult, CallID: callID(turn, i), Tool: "read", Text: text},
		}}})
	}
	messages[0] = core.Remembered{Turns: turn, Message: use}
	return messages
}

// fits shortens a history for a window until the prompt fits, and returns how often that was, and whether there is room for nothing but an
// answer.
func fits(t rapid.TB, s core.State, count prompt.Counter, tokens int, retrieved string) (compacted int, final bool) {
	t.Helper()
	window := prompt.WindowOf(sdk.ModelSpec{ContextWindow: tokens}, nil, 0)
	more := sdk.ToolDefinition{Name: sdk.ToolReadMore, Description: "Read more.", Parameters: json.RawMessage(`{}`)}
	task := s.History[0].PlainText()
	for {
		c := s.Conversation()
		parts := prompt.Parts{
			System: "You book flights.", Tools: []sdk.ToolDefinition{{Name: "read", Parameters: json.RawMessage(`{}`)}},
			ReadMore: &more, Sections: []sdk.Section{{Name: prompt.Retrieval, Text: retrieved}},
			Messages: c.Messages, Task: c.Task, Kept: c.Kept, Lined: c.Lined,
			Shown: func(string) int { return window.Result(sdk.DefaultResult) },
		}
		if c.Summary != nil {
			parts.Summary = prompt.Remembered(c.Summary.Text, c.Summary.Files)
		}
		f, err := prompt.Fit(count, window, parts)
		if err != nil {
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) || count.Prose(task) < window.Prompt()/2 {
				t.Fatalf("a task of %d tokens in a window of %d: %v", count.Prose(task), window.Total, err)
			}
			return compacted, false
		}
		if f.Compaction == nil {
			check(t, count, window, f, task)
			return compacted, f.Final
		}
		if compacted++; compacted > 4 {
			t.Fatalf("it is shortened again and again: %+v", f.Compaction)
		}
		s.Summary = apply(t, count, window, s.Summary, f.Compaction)
		if s.Summary.Messages > len(s.History) || s.Summary.Messages < len(s.History) && !prompt.Frontier(s.Messages(), s.Summary.Messages) {
			t.Fatalf("a summary of %d messages parts a call from its result", s.Summary.Messages)
		}
	}
}

// Where it is enough that old results are shown in one line, nothing is summarised.
func TestFit_ShortensResultsFirst(t *testing.T) {
	t.Parallel()
	count, window := prompt.CounterOf(sdk.ModelSpec{Name: "m"}), prompt.WindowOf(sdk.ModelSpec{ContextWindow: 8000}, nil, 0)
	parts := prompt.Parts{Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Read it all.")}, Shown: func(string) int { return sdk.DefaultResult }}
	for i := range 8 {
		parts.Messages = append(parts.Messages,
			sdk.Message{Role: sdk.RoleAssistant, Content: []sdk.Content{{Kind: sdk.ContentToolUse, CallID: callID(i, 0), Tool: "read", Args: json.RawMessage("{}")}}},
			sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
				{Kind: sdk.ContentToolResult, CallID: callID(i, 0), Tool: "read", Text: `"` + strings.Repeat("a line ", 250) + `"`},
			}})
	}
	parts.Task = make([]bool, len(parts.Messages))
	parts.Task[0] = true
	f, err := prompt.Fit(count, window, parts)
	if err != nil {
		t.Fatal(err)
	}
	if c := f.Compaction; c == nil || c.Messages != 0 || c.Lined == 0 {
		t.Fatalf("the compaction is %+v", c)
	}
	parts.Lined = f.Compaction.Lined
	if f, err = prompt.Fit(count, window, parts); err != nil || f.Compaction != nil || len(f.Messages) != len(parts.Messages) {
		t.Errorf("then the prompt has %d of %d messages, %+v, %v", len(f.Messages), len(parts.Messages), f.Compaction, err)
	}
}

// apply is what the runner makes of a compaction without a model.
func apply(t rapid.TB, count prompt.Counter, w prompt.Window, former *core.Summary, c *prompt.Compaction) *core.Summary {
	next := core.Summary{}
	if former != nil {
		next = *former
	}
	if c.Messages == 0 && c.Lined <= next.Lined-next.Messages {
		t.Fatalf("a compaction that changes nothing: %+v after %+v", c, next)
	}
	next.Messages, next.Lined = next.Messages+c.Messages, next.Messages+c.Lined
	for _, batch := range c.Batches() {
		next.Text = prompt.Append(count, next.Text, prompt.Extract(batch), w.SummaryTokens())
		next.Files = prompt.Touched(next.Files, batch)
	}
	if n := count.Prose(next.Text); n > w.SummaryTokens()+20 || !utf8.ValidString(next.Text) {
		t.Fatalf("a summary has %d tokens, more than %d", n, w.SummaryTokens())
	}
	return &next
}

func check(t rapid.TB, count prompt.Counter, w prompt.Window, f prompt.Fitted, task string) {
	paired(t, f.Messages)
	if len(f.Messages) == 0 || f.Messages[0].PlainText() != task {
		t.Fatalf("the task is gone from %d messages", len(f.Messages))
	}
	if !utf8.ValidString(f.System) {
		t.Fatalf("a character of the summary is cut in %q", f.System)
	}
	used := count.Prose(f.System) + count.Tools(f.Tools) + count.Sections(f.Sections)
	for i := range f.Messages {
		used += count.Message(&f.Messages[i])
	}
	l := f.Ledger
	if used > w.Total-w.Output-w.Safety+8 {
		t.Fatalf("the prompt has %d tokens of %d: %+v", used, w.Total-w.Output-w.Safety, l)
	}
	if sum := l.System + l.Tools + l.Summary + l.Sections + l.History + l.Output + l.Safety + l.Remaining; sum != l.Total || l.Remaining < 0 {
		t.Fatalf("the ledger's parts make %d of %d: %+v", sum, l.Total, l)
	}
	if diff := l.Prompt() - used; diff < -8 || diff > 8 {
		t.Fatalf("the ledger says %d tokens, the prompt has %d", l.Prompt(), used)
	}
	if f.Final != (l.Remaining < w.Gate) {
		t.Fatalf("final is %t with %d tokens left", f.Final, l.Remaining)
	}
}

func TestWindowOf_IsTheModelsOrTheSpecs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model  sdk.ModelSpec
		memory *sdk.Memory
		want   prompt.Window
	}{
		"published":    {sdk.ModelSpec{Name: "openai/gpt-4o-mini"}, nil, prompt.Window{Total: 128_000, Output: 2000, Safety: 768, Gate: 1500}},
		"unknown":      {sdk.ModelSpec{Name: "m"}, nil, prompt.Window{Total: 32_768, Output: 2000, Safety: 768, Gate: 1500}},
		"of the spec":  {sdk.ModelSpec{Name: "gpt-4o", ContextWindow: 8000, MaxTokens: 1000}, nil, prompt.Window{Total: 8000, Output: 1000, Safety: 768, Gate: 1500}},
		"small":        {sdk.ModelSpec{Name: "m", ContextWindow: 2000}, nil, prompt.Window{Total: 2000, Output: 500, Safety: 200, Gate: 433}},
		"of a claude":  {sdk.ModelSpec{Name: "claude-sonnet-4-5"}, nil, prompt.Window{Total: 200_000, Output: 8192, Safety: 768, Gate: 1500}},
		"of memory":    {sdk.ModelSpec{Name: "gpt-4o"}, &sdk.Memory{Window: 10_000, Gate: 2500}, prompt.Window{Total: 12_768, Output: 2000, Safety: 768, Gate: 2500}},
		"of the least": {sdk.ModelSpec{Name: "gpt-4o", Fallback: []sdk.ModelSpec{{Name: "m"}}}, nil, prompt.Window{Total: 32_768, Output: 2000, Safety: 768, Gate: 1500}},
	} {
		if diff := cmp.Diff(c.want, prompt.WindowOf(c.model, c.memory, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is left of a window of 32,768 tokens.
func TestLedger_IsThatOfTheSeed(t *testing.T) {
	t.Parallel()
	l := prompt.Ledger{Total: 32_768, System: 500, Tools: 2257, Sections: 9500, Output: 2000, Safety: 768}
	if left := l.Total - l.Prompt() - l.Output - l.Safety; left != 17_743 {
		t.Errorf("%d tokens remain, want 17743", left)
	}
}

func TestExtract_HasALineForEachCall(t *testing.T) {
	t.Parallel()
	turns := [][]sdk.Message{
		{sdk.Text(sdk.RoleUser, "Also\nlook at /b.")},
		{
			{Role: sdk.RoleAssistant, Content: []sdk.Content{
				{Kind: sdk.ContentText, Text: "I look."},
				{Kind: sdk.ContentToolUse, CallID: "c1-0-x", Tool: "read", Args: json.RawMessage(`{"path":"/b"}`)},
				{Kind: sdk.ContentToolUse, CallID: "c1-1-x", Tool: "move", Args: json.RawMessage(`{"destination":"/d","source":"/a"}`)},
			}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: "c1-0-x", Tool: "read", Text: `"` + strings.Repeat("long ", 100) + `"`}}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: "c1-1-x", Tool: "move", Text: `{"error":{"code":"tool_failed"}}`, IsError: true}}},
		},
	}
	want := "- user: Also look at /b.\n- assistant: I look.\n" +
		`- read {"path":"/b"} → ` + strings.TrimSpace(strings.Repeat("long ", 16)) + "\n" +
		`- move {"destination":"/d","source":"/a"} failed: {"error":{"code":"tool_failed"}}`
	if diff := cmp.Diff(want, prompt.Extract(turns)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/c", "/b", "/a", "/d"}, prompt.Touched([]string{"/a", "/c"}, turns)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestAppend_LeavesOutWhatIsOldest(t *testing.T) {
	t.Parallel()
	count := prompt.CounterOf(sdk.ModelSpec{Name: "m"})
	summary := ""
	for i := range 50 {
		summary = prompt.Append(count, summary, fmt.Sprintf("- line %d of the summary – é", i), 100)
	}
	lines := strings.Split(summary, "\n")
	if lines[0] != "[what came before is left out]" || lines[len(lines)-1] != "- line 49 of the summary – é" || len(lines) < 7 || count.Prose(summary) > 115 {
		t.Errorf("%d tokens:\n%s", count.Prose(summary), summary)
	}
}

// Batches have three to six turns, where there are as many.
func TestBatches(t *testing.T) {
	t.Parallel()
	for n := 1; n < 40; n++ {
		c := prompt.Compaction{Turns: make([][]sdk.Message, n)}
		all := 0
		for _, batch := range c.Batches() {
			all += len(batch)
			if len(batch) > 6 || len(batch) < min(n, 3) {
				t.Errorf("of %d turns a batch has %d", n, len(batch))
			}
		}
		if all != n {
			t.Errorf("%d of %d turns are summarised", all, n)
		}
	}
}
