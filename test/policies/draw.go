package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"agentd/sdk"
)

// draw makes the random parts of a case.
type draw struct{ *rand.Rand }

func (d draw) one(in int) bool { return d.IntN(in) == 0 }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }

// some is a part of all, which may be none of them.
func some[T any](d draw, all ...T) []T {
	var part []T
	for _, v := range all {
		if d.one(2) {
			part = append(part, v)
		}
	}
	return part
}

// The domains that are asked, and the principals who may be.
const (
	people  = sdk.HumanDomain
	finance = "finance"
)

var principals = []string{"ann", "bob", "cleo", "dan"}

const second = 1000

// policy draws the policy of an agent with these tools.
func (d draw) policy(tools []string) policy {
	p := policy{general: d.terms()}
	for range 1 + d.IntN(3) {
		r := rule{verdict: pick(d, "ask", "ask", "ask", "allow", "deny"), when: d.condition()}
		switch d.IntN(4) {
		case 0:
			r.tools = []string{pick(d, tools...)}
		case 1:
			name := pick(d, tools...)
			r.tools = []string{name[:1+d.IntN(2)] + "*", pick(d, tools...)}
		case 2:
			r.label = pick(d, "destructive", "open_world")
		}
		if d.one(2) {
			own := d.terms()
			r.own = &own
		}
		p.rules = append(p.rules, r)
	}
	return p
}

func (d draw) condition() condition {
	switch d.IntN(4) {
	case 0:
		return condition{field: "sum", n: float64(10 * d.IntN(10))}
	case 1:
		return condition{field: "to", text: pick(d, "a", "b", "c")}
	}
	return condition{}
}

func (d draw) terms() terms {
	t := terms{stages: []stage{d.stage()}, scopes: []string{"call"}, quorum: pick(d, 1, 1, 1, 2, 3), fourEyes: d.one(4), retry: d.one(4), batch: d.one(2)}
	if d.one(3) {
		t.stages = append(t.stages, d.stage())
	}
	if d.one(2) {
		t.scopes = append(t.scopes, some(d, string(sdk.ScopeToolPattern), string(sdk.ScopeTool), string(sdk.ScopePrincipal))...)
	}
	if i := d.IntN(len(principals)); d.one(4) {
		t.approvers = slices.Delete(slices.Clone(principals), i, i+1)
	}
	return t
}

func (d draw) stage() stage {
	return stage{pick(d, people, people, finance), int64(30+30*d.IntN(3)) * second}
}

// cel is a condition as policies and patterns write it.
func (c condition) cel() string {
	switch c.field {
	case "":
		return ""
	case "sum":
		return fmt.Sprintf("args.sum >= %.1f", c.n)
	}
	return fmt.Sprintf("args.%s == %q", c.field, c.text)
}

func (p policy) spec() *sdk.PermissionPolicy {
	s := &sdk.PermissionPolicy{Terms: p.general.spec()}
	for _, r := range p.rules {
		rule := sdk.PermissionRule{Tools: r.tools, When: r.when.cel(), Verdict: sdk.PermissionVerdict(r.verdict)}
		if r.label != "" {
			rule.Labels = []string{r.label}
		}
		if r.own != nil {
			own := r.own.spec()
			rule.Terms = &own
		}
		s.Rules = append(s.Rules, rule)
	}
	return s
}

func (t terms) spec() sdk.PermissionPolicyTerms {
	s := sdk.PermissionPolicyTerms{
		Mode: sdk.PermissionHold, Domain: t.stages[0].domain, TimeoutMillis: t.stages[0].timeout, Quorum: t.quorum, FourEyes: t.fourEyes,
		Approvers: t.approvers, Escalate: []sdk.PermissionStage{}, Batch: t.batch,
	}
	if t.retry {
		s.Mode = sdk.PermissionRetry
	}
	for _, more := range t.stages[1:] {
		s.Escalate = append(s.Escalate, sdk.PermissionStage{Domain: more.domain, TimeoutMillis: more.timeout})
	}
	for _, scope := range t.scopes {
		s.Scopes = append(s.Scopes, sdk.GrantScope(scope))
	}
	return s
}
