package contractlint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentd/internal/contracts"
	"agentd/sdk"
)

func booking(versions ...string) sdk.Contract {
	c := sdk.Contract{URI: "#/airline/book", Type: "airline.book", Versions: map[string]sdk.ContractVersion{}}
	for _, v := range versions {
		c.Versions[v] = sdk.ContractVersion{
			Accepts: json.RawMessage(`{"type": "object", "properties": {"flight": {"type": "string"}}}`),
			Emits:   map[string]json.RawMessage{"airline.booked": json.RawMessage(`{"type": "object"}`)},
		}
	}
	return c
}

// registered is a registry with two versions of booking, of which the second was removed.
func registered(t *testing.T) *contracts.Registry {
	t.Helper()
	var r contracts.Registry
	for _, version := range []string{"1.0.0", "1.1.0"} {
		record, err := contracts.EncodeVersion(booking(version), version)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(contracts.RegistryKey("airline.book", version), record); err != nil {
			t.Fatal(err)
		}
	}
	r.Remove(contracts.RegistryKey("airline.book", "1.1.0"))
	return &r
}

func TestPublish_SaysWhatItWouldDo(t *testing.T) {
	t.Parallel()
	narrower := booking("1.0.0", "1.2.0")
	narrower.Versions["1.2.0"] = sdk.ContractVersion{
		Accepts: json.RawMessage(`{"type": "object", "properties": {"flight": {"type": "string"}}, "required": ["flight"]}`),
		Emits:   narrower.Versions["1.0.0"].Emits,
	}
	other := booking("1.1.0")
	other.Versions["1.1.0"] = narrower.Versions["1.2.0"]
	renamed, twin, moved := booking("2.0.0"), booking("2.0.0"), booking("1.0.0")
	renamed.URI = "#/airline/reserve"
	twin.URI, twin.Type = "#/twin", "airline_book"
	moved.Domain = "airline"
	for name, tt := range map[string]struct {
		contract  sdk.Contract
		plan      string
		breaking  string
		forbidden string
	}{
		"a new version":          {booking("1.2.0"), "[1.2.0] [] []", "", ""},
		"all that there is":      {booking("1.0.0", "1.1.0"), "[1.1.0] [1.1.0] [1.0.0]", "", ""},
		"a breaking one":         {narrower, "[1.2.0] [] [1.0.0]", "1.2.0 accepts $.flight", ""},
		"other content":          {other, "", "", "1.1.0 accepts $.flight"},
		"another domain":         {moved, "", "", "$.domain"},
		"another uri":            {renamed, "", "", "$.uri: expected #/airline/book, which is that of airline.book"},
		"a type with that token": {twin, "", "", "$.type: expected a name in subjects of its own"},
	} {
		plan, err := Publish(registered(t), tt.contract)
		if tt.forbidden != "" {
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) || !strings.Contains(err.Error(), tt.forbidden) {
				t.Errorf("%s: %v, want %s", name, err, tt.forbidden)
			}
			continue
		}
		if got := fmt.Sprint(plan.New, plan.Restored, plan.Unchanged); err != nil || got != tt.plan {
			t.Errorf("%s: %s, %v; want %s", name, got, err, tt.plan)
		}
		if err := plan.Breaking(); (err == nil) != (tt.breaking == "") || err != nil && !strings.Contains(err.Error(), tt.breaking) {
			t.Errorf("%s breaks: %v, want %q", name, err, tt.breaking)
		}
	}
}
