package prompt_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"agentd/internal/prompt"
	"agentd/sdk"

	"github.com/google/go-cmp/cmp"
)

func round(id, text string) []sdk.Message {
	return []sdk.Message{
		{Role: sdk.RoleAssistant, Content: []sdk.Content{{Kind: sdk.ContentToolUse, CallID: id, Tool: "t", Args: json.RawMessage(`{}`)}}},
		{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: id, Tool: "t", Text: text}}},
	}
}

// TestPrune_KeepsWholeRounds prunes to every budget: what is kept is a suffix that begins with no result.
func TestPrune_KeepsWholeRounds(t *testing.T) {
	t.Parallel()
	messages := []sdk.Message{sdk.Text(sdk.RoleUser, "hello")}
	for _, id := range []string{"a", "b", "c"} {
		messages = append(messages, round(id, strings.Repeat("long ", 20))...)
	}
	lengths := map[int]bool{}
	for budget := range 200 {
		kept := prompt.Counter(prompt.Tokens).Prune(messages, budget)
		lengths[len(kept)] = true
		if kept[0].Content[0].Kind == sdk.ContentToolResult {
			t.Fatalf("budget %d begins with a result", budget)
		}
		if diff := cmp.Diff(messages[len(messages)-len(kept):], kept); diff != "" {
			t.Fatalf("budget %d is not a suffix:\n%s", budget, diff)
		}
	}
	if diff := cmp.Diff(map[int]bool{2: true, 4: true, 6: true, 7: true}, lengths); diff != "" {
		t.Errorf("lengths (-want +got):\n%s", diff)
	}
}

func TestTurn_NeverPartsACallFromItsResult(t *testing.T) {
	t.Parallel()
	sections := []sdk.Section{{Name: prompt.Planning, Text: "plan"}, {Name: prompt.Retrieval, Text: " "}}
	history := append([]sdk.Message{sdk.Text(sdk.RoleUser, "hello")}, round("a", "1")...)
	got := prompt.Turn(history, sections)
	if len(got) != 4 || got[3].PlainText() != "<planning>\nplan\n</planning>" {
		t.Errorf("after results: %+v", got)
	}
	got = prompt.Turn(history[:1], sections)
	if len(got) != 1 || got[0].PlainText() != "<planning>\nplan\n</planning>\nhello" || len(history[0].Content) != 1 {
		t.Errorf("before the input: %+v", got)
	}
}

func TestSummary_ShowsTheBeginningOfALargeResult(t *testing.T) {
	t.Parallel()
	short := strings.Repeat("word ", 100)
	if got := prompt.Preview(short); got != short {
		t.Errorf("a short text became %q", got)
	}
	for name, tc := range map[string]struct {
		text             string
		characters, line int
	}{
		"characters": {strings.Repeat("é", 4000), 1600, 0},
		"lines":      {strings.Repeat("a line\n", 4000), 24*7 - 1, 23},
	} {
		head, note, cut := strings.Cut(prompt.Preview(tc.text), "…")
		if !cut || utf8.RuneCountInString(head) != tc.characters || strings.Count(head, "\n") != tc.line || !strings.HasPrefix(tc.text, head) {
			t.Errorf("%s: %d characters, %d line breaks, then %q", name, utf8.RuneCountInString(head), strings.Count(head, "\n"), note)
		}
	}
}
