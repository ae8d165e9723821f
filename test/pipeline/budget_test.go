package pipeline

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A run has the budget that its init event says, in whichever way CloudEvents has numbers. One that cannot be read, or allows nothing, begins
// no run: it would have no limit.
func TestBudget_IsWhatTheInitEventSays(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Say("three")))
	for name, c := range map[string]struct {
		value any
		want  int64
	}{
		"a text":     {"5000", 5000},
		"an integer": {json.Number("5000"), 5000},
		"nothing":    {nil, 0},
		"grouped":    {"5,000", -1},
		"a fraction": {"5000.0", -1},
		"a power":    {"1e4", -1},
		"zero":       {"0", -1},
		"less":       {"-1", -1},
		"signed":     {"+1", -1},
		"empty":      {"", -1},
		"yes":        {true, -1},
		"a number":   {json.Number("5000.5"), -1},
		"too much":   {"9223372036854775808", -1},
	} {
		init := h.Init("desk", map[string]string{"message": "Add one and two"})
		init.ID, init.Subject, init.Extensions = "init "+name, name, map[string]any{wire.TokenBudget: c.value}
		r := h.Send("desk", init)
		end := h.Done(r)
		if c.want < 0 {
			if p := wantProblem(t, end, "desk", sdk.CodeInvalidEvent); !strings.Contains(p.ErrorMessage, "must be a positive number in decimal digits") {
				t.Errorf("%s is refused with %q", name, p.ErrorMessage)
			}
			continue
		}
		wantResponse(t, end, "three")
		if got := h.Journal(r)[0].Head.Budget; got != c.want {
			t.Errorf("with %s the run has a budget of %d tokens, want %d", name, got, c.want)
		}
	}
}
