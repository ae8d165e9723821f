package prompt_test

import (
	"encoding/json"
	"strings"
	"testing"

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
		kept := prompt.Prune(messages, budget)
		lengths[len(kept)] = true
		if kept[0].Content[0].Kind == sdk.ContentToolResult {
			t.Fatalf("budget %d begins with a result", budget)
		}
		if diff := cmp.Diff(messages[len(messages)-len(kept):], kept); diff != "" {
			t.Fatalf("budget %d is no suffix:\n%s", budget, diff)
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
