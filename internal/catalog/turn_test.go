package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/internal/approval"
	"agentd/internal/catalog"
	"agentd/sdk"
)

func TestCheck_RefusesAWindowWithoutRoom(t *testing.T) {
	t.Parallel()
	object := json.RawMessage(`{"type": "object"}`)
	a := sdk.Agent{Spec: sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "script", Name: "m"}, System: strings.Repeat("Be brief. ", 100),
		Contract: sdk.Contract{URI: "#/desk", Type: "desk", Versions: map[string]sdk.ContractVersion{
			"1.0.0": {Accepts: object, Emits: map[string]json.RawMessage{"desk.done": object}},
		}},
		Memory: &sdk.Memory{Window: 600},
	}}
	err := catalog.Check(a, approval.Options{Grants: approval.NoGrants{}})
	const want = "tools and system prompt take about 313 of the window's 600 tokens; want a window of 626 at least"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	a.Spec.Memory.Window = 626
	if err := catalog.Check(a, approval.Options{Grants: approval.NoGrants{}}); err != nil {
		t.Error(err)
	}
}
