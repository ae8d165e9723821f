package expression

import (
	"encoding/json"
	"testing"

	"agentd/sdk"
)

// What a schema admits beside the properties that it declares may be anything.
func TestCheckArguments_PassesOverOpenSchemas(t *testing.T) {
	t.Parallel()
	for schema, refused := range map[string]bool{
		`{"type":"object","properties":{"a":{}}}`:                                          true,
		`{"type":"object","properties":{"a":{}},"additionalProperties":false}`:             true,
		`{"type":"object","properties":{"a":{}},"additionalProperties":true}`:              false,
		`{"type":"object","properties":{"a":{}},"additionalProperties":{"type":"string"}}`: false,
		`{"type":"object","properties":{"a":{}},"patternProperties":{"^b":{}}}`:            false,
		`{"type":"object","properties":{"a":{}},"anyOf":[{"properties":{"b":{}}}]}`:        false,
		`{"type":"object","properties":{"a":{}},"$ref":"#/$defs/x","$defs":{"x":{}}}`:      false,
		`{"type":"object"}`:                 false,
		`{"type":"object","properties":{}}`: false,
		`{"type":"object","properties":{"b":{"type":"object","additionalProperties":true}}}`:        false,
		`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"null"}}}}}`: true,
	} {
		err := CheckArguments("args.b == 1", []Arguments{{"pay", json.RawMessage(schema)}})
		if (err != nil) != refused {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// A rule for several tools may name what only one of them takes; one that does not compile is reported elsewhere.
func TestCheckArguments_OfSeveralTools(t *testing.T) {
	t.Parallel()
	pay := Arguments{"pay", json.RawMessage(`{"type":"object","properties":{"sum":{"type":"number"}}}`)}
	mail := Arguments{"mail", json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}}}`)}
	for when, refused := range map[string]bool{
		"args.sum > 1": false, "args.to == ''": false, "args.cc == ''": true, "args.": false,
		`args.to.startsWith("a") && size(args) > 0`: false, `tool == "pay" && args.sum > 1 || args.to == ""`: false,
	} {
		if err := CheckArguments(when, []Arguments{pay, mail}); (err != nil) != refused {
			t.Errorf("%s: %v", when, err)
		}
	}
	want := `"args.cc == ''", column 5: pay, mail have no argument "cc"; there is sum, to`
	if err := CheckArguments("args.cc == ''", []Arguments{pay, mail}); sdk.AsError(err).Message != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := CheckArguments("args.sum > 1", nil); err != nil {
		t.Errorf("without a tool: %v", err)
	}
}
