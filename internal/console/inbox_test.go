package console

import (
	"testing"

	"agentd/internal/core"
)

// A request is about a call in the conversation: the first that it holds, the one whose tool asks, or the one that is the question.
func TestAsker_IsACallOfTheConversation(t *testing.T) {
	t.Parallel()
	calls := []core.Call{
		{ID: "asked", Kind: core.CallService},
		{ID: "first", Kind: core.CallService, Held: "permission"},
		{ID: "second", Kind: core.CallService, Held: "permission"},
		{ID: "permission", Kind: core.CallPermission},
		{ID: "question", Kind: core.CallQuestion, Tool: "asked"},
		{ID: "turn", Kind: core.CallTurn},
	}
	for request, want := range map[string]string{"permission": "first", "question": "asked", "turn": "", "asked": "asked", "gone": "gone"} {
		if got := asker(calls, request); got != want {
			t.Errorf("%s is about %q; want %q", request, got, want)
		}
	}
	if got, want := messageAddress("a b/c", ""), "/runs/a%20b%2Fc#last"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
