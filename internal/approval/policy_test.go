package approval

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func compiled(t *testing.T, p sdk.PermissionPolicy) *Policy {
	t.Helper()
	c, err := Compile(p, Options{Identity: true, Grants: NoGrants{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verdict(t *testing.T, m sdk.PermissionManager, c sdk.PermissionCheck) string {
	t.Helper()
	if c.Args == nil {
		c.Args = json.RawMessage(`{}`)
	}
	r, err := m.Check(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Verdict) + " " + r.Rule
}

func TestPolicy_FirstRuleThatMatchesDecides(t *testing.T) {
	t.Parallel()
	p := compiled(t, sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Name: "never", Tools: []string{"wipe_*"}, Verdict: sdk.PermissionDeny},
		{Name: "small", Tools: []string{"pay"}, When: "args.sum < 10", Verdict: sdk.PermissionAllow},
		{Name: "dear", When: "has(args.sum) && args.sum >= 1000.0", Verdict: sdk.PermissionAsk},
		{Name: "labels", Labels: []string{"destructive", "open_world"}, Verdict: sdk.PermissionAsk},
		{Name: "broken", Tools: []string{"pay"}, When: "args.missing.field == 1", Verdict: sdk.PermissionAsk},
	}})
	tests := []struct {
		check sdk.PermissionCheck
		want  string
	}{
		{sdk.PermissionCheck{Tool: "wipe_disk"}, "deny never"},
		{sdk.PermissionCheck{Tool: "pay", Args: json.RawMessage(`{"sum":5}`)}, "allow small"},
		{sdk.PermissionCheck{Tool: "pay", Args: json.RawMessage(`{"sum":2000}`)}, "ask dear"},
		{sdk.PermissionCheck{Tool: "buy", Args: json.RawMessage(`{"sum":1000}`)}, "ask dear"},
		{sdk.PermissionCheck{Tool: "buy", Labels: sdk.ToolLabels{Destructive: true}}, "ask labels"},
		{sdk.PermissionCheck{Tool: "buy"}, "allow "},
		// A condition that cannot be decided never allows, and always asks.
		{sdk.PermissionCheck{Tool: "pay"}, "ask broken"},
		{sdk.PermissionCheck{Tool: "pay", Args: json.RawMessage(`{"sum":"5"}`)}, "ask dear"},
	}
	for _, test := range tests {
		if got := verdict(t, p, test.check); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.check.Tool, test.check.Args, got, test.want)
		}
	}
}

func TestStricter_NeverAllowsWhatEitherDoesNot(t *testing.T) {
	t.Parallel()
	rule := func(v sdk.PermissionVerdict) *Policy {
		return compiled(t, sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Name: string(v), Verdict: v}}})
	}
	order := []sdk.PermissionVerdict{sdk.PermissionAllow, sdk.PermissionAsk, sdk.PermissionDeny}
	for i, a := range order {
		for j, b := range order {
			want := order[max(i, j)]
			r, err := Stricter(rule(a), rule(b)).Check(context.Background(), sdk.PermissionCheck{Args: json.RawMessage(`{}`)})
			if err != nil || r.Verdict != want {
				t.Errorf("%s and %s: %s (%v), want %s", a, b, r.Verdict, err, want)
			}
		}
	}
}

func TestStricter_TightensTheTerms(t *testing.T) {
	t.Parallel()
	ask := func(terms sdk.PermissionPolicyTerms) *Policy {
		return compiled(t, sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Name: "ask", Verdict: sdk.PermissionAsk}}, Terms: terms})
	}
	first := ask(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}, Approvers: []string{"anna", "bob"}})
	second := ask(sdk.PermissionPolicyTerms{Quorum: 2, FourEyes: true, Approvers: []string{"bob", "carl"}})
	r, err := Stricter(first, second).Check(context.Background(), sdk.PermissionCheck{Args: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := r.Terms
	want.Quorum, want.FourEyes, want.Approvers, want.Scopes = 2, true, []string{"bob"}, []sdk.GrantScope{sdk.ScopeCall}
	if diff := cmp.Diff(want, r.Terms); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
	alone := Stricter(first, ask(sdk.PermissionPolicyTerms{Approvers: []string{"carl"}}))
	if got := verdict(t, alone, sdk.PermissionCheck{}); got != "deny ask" {
		t.Errorf("without a common approver: %s", got)
	}
}

func TestCompile_ListsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Compile(sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{
			{Tools: []string{"[", ""}, Labels: []string{"scary"}, When: "1 +", Verdict: "maybe"},
			{Verdict: sdk.PermissionAsk, Terms: &sdk.PermissionPolicyTerms{
				Mode: "wait", Domain: "a b", Scopes: []sdk.GrantScope{"all", sdk.ScopePrincipal}, Quorum: 3, Approvers: []string{"anna"},
				Signed: true, RemindMillis: 1,
			}},
		},
	}, Options{})
	var paths []string
	for _, f := range sdk.AsError(err).Faults {
		paths = append(paths, f.Path)
	}
	want := []string{
		"$.permissions.rules[0].tools[0]", "$.permissions.rules[0].tools[1]", "$.permissions.rules[0].labels[0]",
		"$.permissions.rules[0].verdict", "$.permissions.rules[0].when",
		"$.permissions.rules[1].terms.mode", "$.permissions.rules[1].terms.stages[0]", "$.permissions.rules[1].terms.remind", "$.permissions.rules[1].terms.scopes[0]",
		"$.permissions.rules[1].terms.scopes[1]", "$.permissions.rules[1].terms.quorum", "$.permissions.rules[1].terms",
		"$.permissions.rules[1].terms.signed",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s\n%v", diff, err)
	}
}

// A rule that names nobody keeps the approvers of its policy.
func TestMerge_KeepsTheApprovers(t *testing.T) {
	t.Parallel()
	general := sdk.PermissionPolicyTerms{Approvers: []string{"ann"}}
	if got := merge(general, &sdk.PermissionPolicyTerms{Approvers: []string{}}).Approvers; !slices.Equal(got, general.Approvers) {
		t.Errorf("%q may approve", got)
	}
}

func TestRequired_AsksWhereAPatternCannotBeRead(t *testing.T) {
	t.Parallel()
	m := Required{PermissionManager: AllowAll{}}
	for tool, require := range map[string][]string{"pay": {"[pay"}, "book": {"pay*", "[x"}} {
		r, err := m.Check(t.Context(), sdk.PermissionCheck{Tool: tool, Require: require})
		if err != nil || r.Verdict != sdk.PermissionAsk {
			t.Errorf("%s under %q: %s, %v", tool, require, r.Verdict, err)
		}
	}
}

// Who is told to have identities enforced is told what for.
func TestNeeding_NamesTheKeys(t *testing.T) {
	t.Parallel()
	for want, terms := range map[string]sdk.PermissionPolicyTerms{
		"":                           {Quorum: 1, Scopes: []sdk.GrantScope{sdk.ScopeCall}},
		"four_eyes":                  {FourEyes: true},
		"approvers":                  {Approvers: []string{"ann"}},
		"quorum and four_eyes":       {Quorum: 2, FourEyes: true},
		"scope principal+agent+tool": {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopePrincipal}},
	} {
		if got := needing(terms); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
