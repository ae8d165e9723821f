package core_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// policy rules on calls by the name of their tool. What it does not name is allowed.
type policy map[string]core.Ruling

// parsePolicy reads the lines "permission TOOL hold|retry|deny [stages=DOMAIN:D,…] [scopes=S,…] [quorum=N] [four-eyes]
// [signed] [approvers=A,…]" of an agent.
func parsePolicy(t *testing.T, agent string) policy {
	t.Helper()
	p := policy{}
	for _, line := range lines(agent) {
		words := strings.Fields(line)
		if words[0] != "permission" {
			continue
		}
		r := core.Ruling{Verdict: core.VerdictAsk, Rule: "rule " + words[1]}
		r.Terms.Mode = sdk.PermissionMode(words[2])
		if words[2] == "deny" {
			r = core.Ruling{Verdict: core.VerdictDeny, Reason: "never"}
		}
		r.Terms.Stages = []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}}
		for _, option := range words[3:] {
			key, value, _ := strings.Cut(option, "=")
			parseTerm(t, &r.Terms, key, strings.Split(value, ","))
		}
		p[words[1]] = r
	}
	return p
}

func parseTerm(t *testing.T, terms *sdk.PermissionTerms, key string, values []string) {
	t.Helper()
	switch key {
	case "stages":
		terms.Stages = nil
		for _, stage := range values {
			domain, timeout, _ := strings.Cut(stage, ":")
			terms.Stages = append(terms.Stages, sdk.PermissionStage{Domain: domain, TimeoutMillis: millis(t, timeout)})
		}
	case "scopes":
		for _, scope := range values {
			terms.Scopes = append(terms.Scopes, sdk.GrantScope(scope))
		}
	case "quorum":
		terms.Quorum = number(t, values[0])
	case "four-eyes":
		terms.FourEyes = true
	case "signed":
		terms.Signed = true
	case "approvers":
		terms.Approvers = values
	default:
		t.Fatalf("permission: unknown term %q", key)
	}
}

// rule rules on the calls of a plan.
func (p policy) rule(plan *core.Admission) {
	for i := range plan.Calls {
		c := &plan.Calls[i]
		if !c.NeedsRuling() {
			continue
		}
		if plan.Rule(i, p.ruling(c.Tool)) {
			plan.Ask(i, json.RawMessage(fmt.Sprintf(`{"tool":%q,"args":%s}`, c.Tool, c.Args)))
		}
	}
}

// plans are those of the calls that a decision on an open request edits, with the policy's rulings.
func (p policy) plans(spec *core.Spec, state *core.State, f core.Effect, d *sdk.PermissionDecision) []core.DecisionRulings {
	request := state.Answering(f.Call)
	if request == nil || request.Permission == nil {
		return nil
	}
	decisions, _ := state.DecidedRequests(request, max(f.Attempt, 1), d)
	var plans []core.DecisionRulings
	for _, r := range decisions {
		if plan := core.AdmitEdit(spec, r.Request, &r.PermissionDecision, nil); plan != nil {
			plan.Rule(p.ruling(plan.Call.Tool))
			plans = append(plans, core.DecisionRulings{Request: r.Request.ID, Edit: plan})
		}
	}
	return plans
}

func (p policy) ruling(tool string) core.Ruling {
	if r, named := p[tool]; named {
		return r
	}
	return core.Ruling{Verdict: core.VerdictAllow}
}
