package contractlint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/contracts"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// soundContract is one that Lint has nothing to say about.
func soundContract() sdk.Contract {
	return sdk.Contract{
		URI: "#/shop/order", Type: "com.shop.order", Domain: "shop", Description: "Orders goods.",
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(`{"type": "object", "properties": {"what": {"type": "string", "description": "A name."}}, "required": ["what"]}`),
			Emits:   map[string]json.RawMessage{"evt.shop.ordered": json.RawMessage(`{"type": "object"}`)},
		}},
	}
}

func findings(c sdk.Contract) []string {
	list := []string{}
	for _, f := range Lint(c) {
		list = append(list, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Rule, strings.ReplaceAll(f.Path, `$.versions["1.0.0"].`, ""), f.Message))
	}
	return list
}

func TestLint_SoundContract(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]string{}, findings(soundContract())); diff != "" {
		t.Error(diff)
	}
}

// Nobody can describe what agentd puts in place of a contract.
func TestLint_LeavesTheContractOfAnAgentThatHasNoneAlone(t *testing.T) {
	t.Parallel()
	desk := sdk.Contract{
		URI: "agentd:/agent/desk", Type: "com.shop.desk", Description: "Answers.", Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(contracts.DefaultAccepts),
			Emits:   map[string]json.RawMessage{"com.shop.desk.done": json.RawMessage(contracts.DefaultEmits)},
		}},
	}
	if diff := cmp.Diff([]string{}, findings(desk)); diff != "" {
		t.Error(diff)
	}
}

func TestLint_Contract(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(c *sdk.Contract)
		want   []string
	}{
		{"names", func(c *sdk.Contract) {
			c.Type, c.Domain, c.Description = "shop_order", "My-Shop", " "
		}, []string{
			"note arvo-name $.type: Arvo handlers can neither serve nor call this: their types have at least three parts of " +
				"lower-case letters and digits, such as com.shop.order, unlike shop_order",
			`note arvo-name $.domain: Arvo handlers want a domain of lower-case letters, digits and dots, not "My-Shop"`,
			"warning missing-description $: a description is missing: it is what tells a model when to use the contract",
		}},
		{"an explosion", func(c *sdk.Contract) {
			v := c.Versions["1.0.0"]
			v.Accepts = json.RawMessage("{" + exploding(40) + "}")
			c.Versions["1.0.0"] = v
		}, []string{
			"error schema accepts.$defs.a28: expected at most 10000 schemas that apply to one value, got 16381, with every reference and branch followed",
		}},
		{"reserved name", func(c *sdk.Contract) { c.Type = "arvo.orc.shop" }, []string{
			"note arvo-name $.type: types that begin with arvo.orc are Arvo's own orchestrators",
		}},
		{"long name", func(c *sdk.Contract) { c.Type = "com.shop." + strings.Repeat("x", 60) }, []string{
			"warning tool-name $.type: models are shown the name " + toolbox.Name("com.shop."+strings.Repeat("x", 60)) +
				": the type is longer than 64 characters",
		}},
		{"breaking minor version", func(c *sdk.Contract) {
			c.Versions["1.1.0"] = sdk.ContractVersion{
				Accepts: json.RawMessage(`{"type": "object", "properties": {"what": {"type": "string", "description": "A name.", "maxLength": 9}}, "required": ["what"]}`),
				Emits:   c.Versions["1.0.0"].Emits,
			}
		}, []string{
			`error version-step $.versions["1.1.0"]: accepts $.what: the maxLength changes from none to 9: a call that was valid may be ` +
				"refused; after 1.0.0 that needs version 2.0.0 (breaks callers)",
		}},
		{"addition in a patch", func(c *sdk.Contract) {
			c.Versions["1.0.1"] = sdk.ContractVersion{
				Accepts: json.RawMessage(`{"type": "object", "properties": {"what": {"description": "A name.", "type": ["string", "null"]}}, "required": ["what"]}`),
				Emits:   c.Versions["1.0.0"].Emits,
			}
		}, []string{
			`warning version-step $.versions["1.0.1"]: version 1.0.1 adds to 1.0.0: by the rules of semantic versions it would be 1.1.0`,
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := soundContract()
			row.change(&c)
			if diff := cmp.Diff(row.want, findings(c)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// exploding has references by which 2^n schemas apply to one value.
func exploding(n int) string {
	defs := ""
	for i := range n {
		defs += fmt.Sprintf(`"a%d": {"anyOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}, `, i, i+1, i+1)
	}
	return fmt.Sprintf(`"type": "object", "$ref": "#/$defs/a0", "$defs": {%s"a%d": {}}`, defs, n)
}

// Each row is a schema of calls with what is said of it.
func TestLint_Schema(t *testing.T) {
	t.Parallel()
	const (
		old    = `"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", `
		older  = `"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", `
		newest = `"type": "object", `
		large  = 16 << 10
	)
	deep := `{"type": "string", "description": "x"}`
	for range 6 {
		deep = `{"type": "object", "description": "x", "properties": {"a": ` + deep + `}, "required": ["a"]}`
	}
	for _, row := range []struct{ name, accepts, want string }{
		{"does not compile", newest + `"minimum": "x"`, "error schema accepts.minimum: expected number, got string \"x\""},
		{"no objects", `"type": "string"`, `error schema accepts: expected a schema of objects: type "object" at its root, got {"type": "string"}`},
		{
			"newer keyword", old + `"dependentRequired": {"a": ["b"]}`,
			"error ignored-keyword accepts.dependentRequired: dependentRequired checks nothing in this dialect: it came with https://json-schema.org/draft/2019-09/schema",
		},
		{
			"much newer keyword", older + `"const": {}`,
			"error ignored-keyword accepts.const: const checks nothing in this dialect: it came with http://json-schema.org/draft-06/schema",
		},
		{
			"keyword that was given up", newest + `"additionalItems": false`,
			"error ignored-keyword accepts.additionalItems: additionalItems checks nothing in this dialect: it was given up after https://json-schema.org/draft/2019-09/schema",
		},
		{
			"beside a reference", old + `"allOf": [{"$ref": "#/definitions/a", "minProperties": 1}], "definitions": {"a": {}}`,
			"error ignored-keyword accepts.allOf[0].minProperties: minProperties checks nothing: in this dialect nothing counts beside $ref\n" +
				"warning root-condition accepts.allOf: providers refuse allOf at the root: models are told of it in the tool's description, which they follow less well",
		},
		{"slip", newest + `"minPropertys": 1`, `warning unknown-keyword accepts.minPropertys: no dialect of JSON Schema knows "minPropertys", so it checks nothing; minProperties may be meant`},
		{"unlike any", newest + `"nullable": true`, `warning unknown-keyword accepts.nullable: no dialect of JSON Schema knows "nullable", so it checks nothing`},
		{"extension", newest + `"x-internal": true`, ""},
		{
			"format", newest + `"additionalProperties": {"format": "date"}`,
			"warning unchecked-format accepts.additionalProperties.format: this dialect does not check formats: a pattern would be checked",
		},
		{
			"unknown format", old + `"additionalProperties": {"format": "iban"}`,
			`warning unchecked-format accepts.additionalProperties.format: the format string "iban" is not known and not checked`,
		},
		{"checked format", old + `"additionalProperties": {"format": "date"}`, ""},
		{"keywords as names", newest + `"required": ["const"], "properties": {"const": {"type": "string", "description": "x"}}`, ""},
		{
			"bare property", newest + `"properties": {"a": {}}`,
			"warning missing-description accepts.properties.a: a description is missing: a model has to guess what belongs here\n" +
				"warning untyped accepts.properties.a: a type is missing: a model may send anything\n" +
				"warning missing-required accepts: nothing is required: a call without any data is valid",
		},
		{
			"described by its reference", newest + `"required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "null", "description": "x"}}`, "",
		},
		{"the caller's subject", newest + `"required": ["parentSubject$$"], "properties": {"parentSubject$$": {}}`, ""},
		{
			"property name", newest + `"required": ["a b"], "properties": {"a b": {"type": "null", "description": "x"}}`,
			`warning property-name accepts.properties["a b"]: some providers refuse the name "a b": they want letters, digits, _, - and ., at most 64`,
		},
		{"deep", strings.TrimSuffix(strings.TrimPrefix(deep, "{"), "}"), "warning deep accepts: objects nest 6 levels deep; models make mistakes below 5"},
		{
			"large", newest + `"description": "` + strings.Repeat("x", large) + `"`,
			fmt.Sprintf("warning large accepts: %d bytes: models read all of it with every request; more than 16384 are seldom worth it", large+37),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := soundContract()
			c.Versions["1.0.0"] = sdk.ContractVersion{Accepts: json.RawMessage("{" + row.accepts + "}"), Emits: c.Versions["1.0.0"].Emits}
			if diff := cmp.Diff(row.want, strings.Join(findings(c), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
