package catalog

import (
	"encoding/json"
	"testing"

	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The input is hashed and compared as it is, so it has one form, whether anything is filled in or not.
func TestCheckInput_IsCanonicalWithItsDefaults(t *testing.T) {
	t.Parallel()
	accepts, err := schema.Compile(json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}, "beds": {"default": 2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	check := checkInput(sdk.AgentSpec{Name: "desk"}, accepts)
	for given, want := range map[string]string{
		`{"city": "Bergen"}`:             `{"beds":2,"city":"Bergen"}`,
		`{ "city": "Bergen", "beds": 1}`: `{"beds":1,"city":"Bergen"}`,
	} {
		data, problem := check(wire.Event{Data: json.RawMessage(given)})
		if problem != nil || string(data) != want {
			t.Errorf("%s is %s, %v; want %s", given, data, problem, want)
		}
	}
}
