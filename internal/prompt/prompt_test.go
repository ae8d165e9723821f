package prompt_test

import (
	"encoding/json"
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
