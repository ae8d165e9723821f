package schema

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func TestAdmit_IsCanonicalWithDefaultsOrTellsEveryFault(t *testing.T) {
	t.Parallel()
	s, err := Compile(json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}, "beds": {"type": "integer", "default": 2}}, "required": ["city", "beds"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]struct {
		Data   string
		Faults []sdk.Fault
	}{
		`{"city": "Bergen"}`:             {Data: `{"beds":2,"city":"Bergen"}`},
		`{ "city": "Bergen", "beds": 1}`: {Data: `{"beds":1,"city":"Bergen"}`},
		`{"city":5,"beds":"x"}`:          {Faults: []sdk.Fault{{Path: "$.beds", Expected: "integer", Got: `string "x"`}, {Path: "$.city", Expected: "string", Got: "number 5"}}},
		`{"city":"a","city":"b"}`:        {Faults: []sdk.Fault{{Path: "$.city", Expected: "each name once in an object", Got: "twice"}}},
		``:                               {Faults: []sdk.Fault{{Path: "$", Expected: "a JSON value", Got: "nothing"}}},
		`{"city":"a"} {}`:                {Faults: []sdk.Fault{{Path: "$", Expected: "one JSON value", Got: "more after it"}}},
	} {
		data, faults := s.Admit(json.RawMessage(given))
		if string(data) != want.Data || !cmp.Equal(faults, want.Faults) {
			t.Errorf("%s is %s, %+v; want %+v", given, data, faults, want)
		}
	}
}
