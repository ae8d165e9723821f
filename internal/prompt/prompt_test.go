package prompt_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentd/internal/prompt"
	"agentd/sdk"
)

func round(id, text string) []sdk.Message {
	return []sdk.Message{
		{Role: sdk.RoleAssistant, Content: []sdk.Content{{Kind: sdk.ContentToolUse, CallID: id, Tool: "t", Args: json.RawMessage(`{}`)}}},
		{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: id, Tool: "t", Text: text}}},
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

func TestNoted_PutsNotesInFrontOfResults(t *testing.T) {
	t.Parallel()
	history := append([]sdk.Message{sdk.Text(sdk.RoleUser, "hello")}, round("a", "1")...)
	if got := prompt.Noted(history); !reflect.DeepEqual(got, history) {
		t.Errorf("without a note: %+v", got)
	}
	history[2].Content[0].Note = "The arguments were corrected."
	got := prompt.Noted(history)
	if c := got[2].Content[0]; c.Text != "The arguments were corrected.\n1" || c.Note != "" {
		t.Errorf("with a note: %+v", c)
	}
	if c := history[2].Content[0]; c.Text != "1" || c.Note == "" {
		t.Errorf("the history is modified: %+v", c)
	}
}

func TestFit_LeavesTheConversationAsItIs(t *testing.T) {
	t.Parallel()
	history := append([]sdk.Message{sdk.Text(sdk.RoleUser, "hello")}, append(round("a", strings.Repeat("long ", 100)), round("b", "2")...)...)
	window := prompt.WindowOf(sdk.ModelSpec{Name: "none"}, nil, 0)
	for lined := range len(history) {
		given := slices.Clone(history)
		f, err := prompt.Fit(prompt.CounterOf(sdk.ModelSpec{Name: "none"}), window, prompt.Parts{
			Messages: given, Task: make([]bool, len(given)), Lined: lined, Shown: func(string) int { return sdk.DefaultResult },
		})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(given, history) {
			t.Errorf("with %d messages in one line the conversation is modified: %+v", lined, given)
		}
		if cut := f.Messages[2].Content[0].Text != history[2].Content[0].Text; cut != (lined > 2) {
			t.Errorf("with %d messages in one line the first result is in one: %t", lined, cut)
		}
	}
}
