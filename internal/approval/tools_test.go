package approval

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/toolbox"
	"agentd/sdk"
)

// shop has the tools refund, of the contract shop.refund, and book_hotel, which takes anything. What it knows of others is in its
// services.
func shop(t *testing.T, unknown []string, services ...sdk.ServiceTool) func(*sdk.AgentSpec) []string {
	t.Helper()
	service := func(contract, as, accepts string) sdk.ServiceTool {
		return sdk.ServiceTool{As: as, Version: "1.0.0", Contract: sdk.Contract{
			URI: "#/" + contract, Type: contract, Versions: map[string]sdk.ContractVersion{"1.0.0": {
				Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{contract + ".done": json.RawMessage(`{"type":"object"}`)},
			}},
		}}
	}
	spec := sdk.AgentSpec{Name: "desk", Services: []sdk.ServiceTool{
		service("shop.refund", "refund", `{"type":"object","properties":{"amount":{"type":"number"},"to":{
			"type":"object","properties":{"iban":{"type":"string"}}}},"required":["amount"]}`),
		service("book.hotel", "", `{"type":"object","additionalProperties":true,"properties":{"nights":{"type":"integer"}}}`),
	}}
	box, err := toolbox.New(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec.Services = append(spec.Services, services...)
	tools := ToolsOf(&spec, box, unknown)
	return func(s *sdk.AgentSpec) []string {
		var faults []string
		for _, f := range tools.Faults(s) {
			faults = append(faults, f.Path+": "+f.Got)
		}
		return faults
	}
}

// ruleFor is a spec with a rule for tools, under a condition.
func ruleFor(when string, tools ...string) *sdk.AgentSpec {
	return &sdk.AgentSpec{Permissions: &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{When: when, Tools: tools}}}}
}

func TestFaults_OfPatternsThatMatchNothing(t *testing.T) {
	t.Parallel()
	faults := shop(t, []string{"bank_"})
	for name, test := range map[string]struct {
		spec *sdk.AgentSpec
		want []string
	}{
		"all there": {ruleFor("", "refund", "book_*", "*", "re?und", "[r]efund"), nil},
		"misspelt": {ruleFor("", "refund", "refnud"), []string{
			`$.permissions.rules[0].tools[1]: "refnud"; did you mean "refund"?`,
		}},
		"type of a contract": {ruleFor("", "shop.refund"), []string{
			`$.permissions.rules[0].tools[0]: "shop.refund", which is the type of a contract; did you mean "refund"?`,
		}},
		"types of contracts": {ruleFor("", "shop.*"), []string{
			`$.permissions.rules[0].tools[0]: "shop.*", which is the type of a contract; did you mean "refund"?`,
		}},
		"nothing like it": {ruleFor("", "wipe_*"), []string{
			`$.permissions.rules[0].tools[0]: "wipe_*"; there is refund, book_hotel`,
		}},
		"toolset that is not known":            {ruleFor("", "bank_pay", "b*_pay", "?ank_pay"), nil},
		"not of the toolset that is not known": {ruleFor("", "banks"), []string{`$.permissions.rules[0].tools[0]: "banks"; there is refund, book_hotel`}},
		"hooks": {&sdk.AgentSpec{Rules: []sdk.HookRule{{Only: []string{"refund"}}, {Only: []string{"refunds"}, Hide: []string{"refund", "bokk_*"}}}}, []string{
			`$.rules[1].only[0]: "refunds"; did you mean "refund"?`, `$.rules[1].hide[1]: "bokk_*"; there is refund, book_hotel`,
		}},
		"stop": {&sdk.AgentSpec{StopOn: []string{"refund", "book_*", "bank_pay"}}, []string{
			`$.stop_on[1]: "book_*"; there is refund, book_hotel`,
		}},
		"constraints": {&sdk.AgentSpec{Constraints: &sdk.Constraints{
			Allow: []string{"refund", "book_*", "refunds"}, Deny: []string{"bank_*", "refnud"},
			Files: &sdk.FileConstraints{Writers: []sdk.FileWriter{{Tool: "refnud", Path: "path"}, {Tool: "bank_write", Path: "path"}}},
		}}, []string{
			`$.constraints.allow[2]: "refunds"; did you mean "refund"?`, `$.constraints.deny[1]: "refnud"; did you mean "refund"?`,
			`$.constraints.files.writers[0].tool: "refnud"; did you mean "refund"?`,
		}},
		"arguments of constraints": {&sdk.AgentSpec{Constraints: &sdk.Constraints{Files: &sdk.FileConstraints{Writers: []sdk.FileWriter{
			{Tool: "refund", Path: "to", Content: "amuont"}, {Tool: "book_*", Path: "file", Content: "text"}, {Tool: "refund", Path: "file"},
		}}}}, []string{
			`$.constraints.files.writers[0].content: "amuont"; did you mean "amount"?`,
			`$.constraints.files.writers[2].path: "file"; there is amount, to`,
		}},
		"guards": {&sdk.AgentSpec{Guards: &sdk.Guards{ReadOnly: []string{"refund", "refnud"}, Changing: []string{"refnud"}}}, []string{
			`$.guards.read_only[1]: "refnud"; did you mean "refund"?`, `$.guards.changing[0]: "refnud"; did you mean "refund"?`,
		}},
		"selection": {&sdk.AgentSpec{Selection: &sdk.Selection{
			Always: []string{"refnud"}, Categories: []sdk.ToolCategory{{Tools: []string{"refund", "refunds"}}},
		}}, []string{
			`$.selection.always[0]: "refnud"; did you mean "refund"?`, `$.selection.categories[0].tools[1]: "refunds"; did you mean "refund"?`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, faults(test.spec)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A condition on a tool, or on the type of a contract, that there is not would never hold.
func TestFaults_OfConditionsOnNamesThatThereAreNot(t *testing.T) {
	t.Parallel()
	faults := shop(t, []string{"bank_"})
	refused := func(when, hint string) []string {
		return []string{fmt.Sprintf("$.permissions.rules[0].when: %q: %s", when, hint)}
	}
	for when, hint := range map[string]string{
		`tool == "refund" && type == "shop.refund"`:     "",
		`tool == "bank_pay" || "" == type`:              "",
		`agent == "refnud" || initiator in ["refnud"]`:  "",
		`tool in ["refund", "book_hotel"]`:              "",
		`tool.startsWith("refnud")`:                     "",
		`tool == "refnud"`:                              `not a tool of the agent: "refnud"; did you mean "refund"?`,
		`"refnud" != tool`:                              `not a tool of the agent: "refnud"; did you mean "refund"?`,
		`args.amount > 3 && tool in ["refund", "wipe"]`: `not a tool of the agent: "wipe"; there is refund, book_hotel`,
		`tool == "shop.refund"`:                         `not a tool of the agent: "shop.refund", which is the type of a contract; did you mean "refund"?`,
		`type == "shop.refnud"`:                         `not the type of a contract that the agent calls: "shop.refnud"; did you mean "shop.refund"?`,
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			var want []string
			if hint != "" {
				want = refused(when, hint)
			}
			if diff := cmp.Diff(want, faults(ruleFor(when))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestFaults_OfConditionsOnWhatNoToolTakes(t *testing.T) {
	t.Parallel()
	faults := shop(t, nil)
	refused := func(when, hint string) []string {
		return []string{`$.permissions.rules[0].when: "` + when + `", ` + hint}
	}
	for name, test := range map[string]struct {
		when, tool string
		want       []string
	}{
		"declared":          {"args.amount > 1000", "refund", nil},
		"declared deeper":   {`args.to.iban.startsWith("DE")`, "refund", nil},
		"by index":          {`args["amuont"] > 1000 || "amuont" in args`, "refund", nil},
		"no args":           {`tool == "refund"`, "refund", nil},
		"open":              {"args.nihgts > 3", "book_hotel", nil},
		"one of the tools":  {"args.nights > 3", "*", nil},
		"misspelt":          {"args.amuont > 1000", "refund", refused("args.amuont > 1000", `column 5: refund has no argument "amuont"; did you mean "amount"?`)},
		"misspelt deeper":   {`args.to.ibn == ""`, "refund", []string{`$.permissions.rules[0].when: "args.to.ibn == \"\"", column 8: refund has no argument "ibn"; did you mean "iban"?`}},
		"asked whether has": {"has(args.sum)", "refund", refused("has(args.sum)", `column 4: refund has no argument "sum"; there is amount, iban, to`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, faults(ruleFor(test.when, test.tool))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A service that is looked up in the registry has a name that is known before, unless it is named by a URI; its arguments are not.
func TestFaults_OfToolsThatAreLookedUp(t *testing.T) {
	t.Parallel()
	byType := shop(t, nil, sdk.ServiceTool{Contract: sdk.Contract{Type: "mail.send"}})
	if got := byType(ruleFor("args.recipient == ''", "mail_send")); got != nil {
		t.Errorf("of a tool by its type: %q", got)
	}
	want := []string{`$.permissions.rules[0].tools[0]: "mail_sned"; did you mean "mail_send"?`}
	if diff := cmp.Diff(want, byType(ruleFor("", "mail_sned"))); diff != "" {
		t.Errorf("of a tool by its type: -want +got\n%s", diff)
	}
	want = []string{`$.permissions.rules[0].tools[0]: "mail.send", which is the type of a contract; did you mean "post"?`}
	named := shop(t, nil, sdk.ServiceTool{As: "post", Contract: sdk.Contract{Type: "mail.send"}})
	if diff := cmp.Diff(want, named(ruleFor("", "mail.send"))); diff != "" {
		t.Errorf("by the type of a contract that is looked up: -want +got\n%s", diff)
	}
	byURI := shop(t, nil, sdk.ServiceTool{Contract: sdk.Contract{URI: "https://example.com/mail"}})
	if got := byURI(ruleFor("", "whatever")); got != nil {
		t.Errorf("of a tool by a URI: %q", got)
	}
}
