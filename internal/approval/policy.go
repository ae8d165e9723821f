package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/internal/expression"
	"agentd/internal/signature"
	"agentd/internal/toolpattern"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Options are what a policy needs of its surroundings.
type Options struct {
	// Grants keeps grants wider than a run; nil is nobody, and a policy that offers such a scope does not load.
	Grants GrantStore
	// Identity says that every principal is enforced by the broker. Without it, a policy that depends on who somebody is
	// does not load.
	Identity bool
	// Keys verify signed decisions.
	Keys signature.Keys
	// Domains are those that may be asked, beside sdk.HumanDomain; nil is any.
	Domains []string
}

// Policy is a compiled sdk.PermissionPolicy. It implements sdk.PermissionManager.
type Policy struct {
	rules  []rule
	grants GrantStore
}

type rule struct {
	sdk.PermissionRule
	when  expression.Condition // nil holds always
	terms sdk.PermissionTerms
}

// Compile compiles a policy. The error is CodeConfig and lists everything that is wrong.
func Compile(p sdk.PermissionPolicy, o Options) (*Policy, error) {
	compiled := &Policy{grants: o.Grants}
	var faults []sdk.Fault
	for i, r := range p.Rules {
		at := fmt.Sprintf("$.permissions.rules[%d]", i)
		r.Name = cmp.Or(r.Name, fmt.Sprintf("rule %d", i+1))
		made, more := compileRule(r, p.Terms, at, o)
		compiled.rules = append(compiled.rules, made)
		faults = append(faults, more...)
	}
	if len(p.Rules) == 0 {
		faults = append(faults, sdk.Fault{Path: "$.permissions.rules", Expected: "at least one rule", Got: "none"})
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "the permissions cannot be used", Faults: faults}
	}
	return compiled, nil
}

// set are the labels of a tool by the names that policies use.
func set(l sdk.ToolLabels) map[string]bool {
	return map[string]bool{"read_only": l.ReadOnly, "destructive": l.Destructive, "open_world": l.OpenWorld}
}

func compileRule(r sdk.PermissionRule, general sdk.PermissionPolicyTerms, at string, o Options) (rule, []sdk.Fault) {
	var faults []sdk.Fault
	fault := func(where, expected string, got any) {
		faults = append(faults, sdk.Fault{Path: at + where, Expected: expected, Got: fmt.Sprint(got)})
	}
	for i, pattern := range r.Tools {
		if toolpattern.Check(pattern) != nil {
			fault(fmt.Sprintf(".tools[%d]", i), `a pattern of tool names, such as "book_*"`, fmt.Sprintf("%q", pattern))
		}
	}
	for i, label := range r.Labels {
		if _, known := set(sdk.ToolLabels{})[label]; !known {
			fault(fmt.Sprintf(".labels[%d]", i), "read_only, destructive or open_world", fmt.Sprintf("%q", label))
		}
	}
	switch r.Verdict {
	case sdk.PermissionAllow, sdk.PermissionDeny, sdk.PermissionAsk:
	default:
		fault(".verdict", "allow, deny or ask", fmt.Sprintf("%q", r.Verdict))
	}
	made := rule{PermissionRule: r}
	if r.When != "" {
		var err error
		if made.when, err = expression.CompilePermission(r.When); err != nil {
			fault(".when", "a condition", sdk.AsError(err).Message)
		}
	}
	if r.Verdict == sdk.PermissionAsk {
		terms := merge(general, r.Terms)
		for _, wrong := range checkTerms(terms, o) {
			fault(".terms"+wrong.Path, wrong.Expected, wrong.Got)
		}
		made.terms = compileTerms(terms, r.Risk)
	}
	return made, faults
}

// merge puts the terms of a rule over those of its policy.
func merge(general sdk.PermissionPolicyTerms, own *sdk.PermissionPolicyTerms) sdk.PermissionPolicyTerms {
	if own == nil {
		return general
	}
	m := general
	m.Mode = cmp.Or(own.Mode, m.Mode)
	m.Domain = cmp.Or(own.Domain, m.Domain)
	m.TimeoutMillis = cmp.Or(own.TimeoutMillis, m.TimeoutMillis)
	m.RemindMillis = cmp.Or(own.RemindMillis, m.RemindMillis)
	m.Quorum = cmp.Or(own.Quorum, m.Quorum)
	m.FourEyes = own.FourEyes || m.FourEyes
	m.Signed = own.Signed || m.Signed
	m.Results = own.Results || m.Results
	m.Batch = own.Batch || m.Batch
	if own.Escalate != nil {
		m.Escalate = own.Escalate
	}
	if own.Scopes != nil {
		m.Scopes = own.Scopes
	}
	if len(own.Approvers) > 0 { // a list of nobody would let anybody decide
		m.Approvers = own.Approvers
	}
	return m
}

// leastReminder is the least time between two reminders, in milliseconds.
const leastReminder = 1000

var scopes = []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeToolPattern, sdk.ScopeTool, sdk.ScopePrincipal}

func checkTerms(t sdk.PermissionPolicyTerms, o Options) []sdk.Fault {
	var faults []sdk.Fault
	fault := func(where, expected string, got any) {
		faults = append(faults, sdk.Fault{Path: where, Expected: expected, Got: fmt.Sprint(got)})
	}
	if t.Mode != "" && t.Mode != sdk.PermissionHold && t.Mode != sdk.PermissionRetry {
		fault(".mode", "hold or retry", fmt.Sprintf("%q", t.Mode))
	}
	for i, stage := range stages(t) {
		if err := wire.CheckDomain(stage.Domain); err != nil || stage.TimeoutMillis <= 0 {
			fault(fmt.Sprintf(".stages[%d]", i), "a domain and how long it has to decide", fmt.Sprintf("%q for %d ms", stage.Domain, stage.TimeoutMillis))
		}
		if o.Domains != nil && stage.Domain != sdk.HumanDomain && !slices.Contains(o.Domains, stage.Domain) {
			fault(fmt.Sprintf(".stages[%d]", i), "a domain that is configured", fmt.Sprintf("%q", stage.Domain))
		}
	}
	if t.RemindMillis != 0 && t.RemindMillis < leastReminder {
		fault(".remind", fmt.Sprintf("at least %d ms between two reminders", leastReminder), t.RemindMillis)
	}
	for i, s := range t.Scopes {
		if !slices.Contains(scopes, s) {
			fault(fmt.Sprintf(".scopes[%d]", i), fmt.Sprintf("one of %v", scopes), fmt.Sprintf("%q", s))
		}
		if s == sdk.ScopePrincipal && o.Grants == nil {
			fault(fmt.Sprintf(".scopes[%d]", i), "a store of grants", "none")
		}
	}
	switch {
	case t.Quorum < 0:
		fault(".quorum", "how many must allow it", t.Quorum)
	case len(t.Approvers) > 0 && t.Quorum > len(t.Approvers):
		fault(".quorum", fmt.Sprintf("no more than the %d approvers", len(t.Approvers)), t.Quorum)
	}
	if t.NeedsIdentity() && !o.Identity {
		fault("", "identity: required at the top of the configuration, because "+needing(t)+" needs to know who somebody is", "anybody may be anonymous")
	}
	if t.Signed {
		for _, stage := range stages(t) {
			if len(o.Keys[stage.Domain]) == 0 {
				fault(".signed", fmt.Sprintf("keys of the domain %q", stage.Domain), "none")
			}
		}
	}
	return faults
}

// needing names what of terms needs an identity, as a configuration has it.
func needing(t sdk.PermissionPolicyTerms) string {
	var keys []string
	for _, of := range []struct {
		key   string
		terms sdk.PermissionPolicyTerms
	}{
		{"quorum", sdk.PermissionPolicyTerms{Quorum: t.Quorum}},
		{"four_eyes", sdk.PermissionPolicyTerms{FourEyes: t.FourEyes}},
		{"approvers", sdk.PermissionPolicyTerms{Approvers: t.Approvers}},
		{"scope " + string(sdk.ScopePrincipal), sdk.PermissionPolicyTerms{Scopes: t.Scopes}},
	} {
		if of.terms.NeedsIdentity() {
			keys = append(keys, of.key)
		}
	}
	return strings.Join(keys, " and ")
}

func stages(t sdk.PermissionPolicyTerms) []sdk.PermissionStage {
	first := sdk.PermissionStage{
		Domain:        cmp.Or(t.Domain, sdk.HumanDomain),
		TimeoutMillis: cmp.Or(t.TimeoutMillis, sdk.DefaultPermissionTimeout.Milliseconds()),
	}
	return append([]sdk.PermissionStage{first}, t.Escalate...)
}

// Domains are those that a policy asks; none for no policy.
func Domains(p *sdk.PermissionPolicy) []string {
	if p == nil {
		return nil
	}
	var domains []string
	for i := range p.Rules {
		for _, stage := range stages(merge(p.Terms, p.Rules[i].Terms)) {
			if !slices.Contains(domains, stage.Domain) {
				domains = append(domains, stage.Domain)
			}
		}
	}
	return domains
}

// ReviewDomains are the domains whose people approve plans.
func ReviewDomains(p *sdk.PlanSpec) []string {
	if p == nil || p.Review == nil {
		return nil
	}
	var domains []string
	for _, stage := range stages(*p.Review) {
		if !slices.Contains(domains, stage.Domain) {
			domains = append(domains, stage.Domain)
		}
	}
	return domains
}

// CheckTerms says what is wrong with terms, where they stand in a configuration; nil is nothing.
func CheckTerms(t sdk.PermissionPolicyTerms, at string, o Options) []sdk.Fault {
	faults := checkTerms(t, o)
	for i := range faults {
		faults[i].Path = at + faults[i].Path
	}
	return faults
}

// Terms are the terms of a request under a policy without rules of its own for a call.
func Terms(t sdk.PermissionPolicyTerms) sdk.PermissionTerms { return compileTerms(t, "") }

func compileTerms(t sdk.PermissionPolicyTerms, risk string) sdk.PermissionTerms {
	return sdk.PermissionTerms{
		Mode: cmp.Or(t.Mode, sdk.PermissionHold), Risk: risk, Scopes: withCall(t.Scopes), Quorum: t.Quorum, FourEyes: t.FourEyes,
		Approvers: t.Approvers, Signed: t.Signed, RemindMillis: t.RemindMillis,
		Results: t.Results, Batch: t.Batch, Stages: stages(t),
	}
}

// withCall are the scopes with that of the one call, which is always offered: nobody could deny a call without denying others.
func withCall(scopes []sdk.GrantScope) []sdk.GrantScope {
	if len(scopes) == 0 || slices.Contains(scopes, sdk.ScopeCall) {
		return scopes
	}
	return slices.Concat([]sdk.GrantScope{sdk.ScopeCall}, scopes)
}

// Check implements sdk.PermissionManager: the first rule that matches decides, and what none matches is allowed.
func (p *Policy) Check(_ context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	var args any
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return sdk.PermissionRuling{}, fmt.Errorf("decode arguments: %w", err)
	}
	variables := map[string]any{
		"args": args, "tool": c.Tool, "type": c.Type, "agent": c.Agent, "run": c.Run, "initiator": c.Initiator,
		"labels": set(c.Labels),
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(c, variables) {
			return sdk.PermissionRuling{Verdict: r.Verdict, Reason: r.Reason, Rule: r.Name, Terms: r.terms}, nil
		}
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}, nil
}

func (r *rule) matches(c sdk.PermissionCheck, variables map[string]any) bool {
	if len(r.Tools) > 0 && !toolpattern.Match(r.Tools, c.Tool) {
		return false
	}
	labels := set(c.Labels)
	if len(r.Labels) > 0 && !slices.ContainsFunc(r.Labels, func(label string) bool { return labels[label] }) {
		return false
	}
	if r.when == nil {
		return true
	}
	result, ok := r.when(variables)
	if !ok { // such as a field that is not there: the doubt goes against the call
		return r.Verdict != sdk.PermissionAllow
	}
	return result
}

// Reserve implements sdk.PermissionManager.
func (p *Policy) Reserve(ctx context.Context, c sdk.PermissionCheck) (string, error) {
	if p.grants == nil || c.Initiator == "" {
		return "", nil
	}
	return p.grants.Reserve(ctx, c)
}

// Request implements sdk.PermissionManager: the request is complete as it is.
func (p *Policy) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	return r, nil
}

// Record implements sdk.PermissionManager.
func (p *Policy) Record(ctx context.Context, g sdk.GrantRecord) error {
	if p.grants == nil {
		return sdk.Errorf(sdk.CodeConfig, "no store for the grant of request %s", g.ID)
	}
	return p.grants.Record(ctx, g)
}

// Cleanup implements sdk.PermissionManager: a run's own grants end with it.
func (p *Policy) Cleanup(context.Context, string) error { return nil }

var _ sdk.PermissionManager = (*Policy)(nil)

// LongestStage is the longest time that somebody has to decide what an agent's policy asks, or on its plans; 0 where nobody is asked.
func LongestStage(p *sdk.PermissionPolicy, plan *sdk.PlanSpec) time.Duration {
	var asked []sdk.PermissionStage
	if p != nil {
		for i := range p.Rules {
			asked = append(asked, stages(merge(p.Terms, p.Rules[i].Terms))...)
		}
	}
	if plan != nil && plan.Review != nil {
		asked = append(asked, stages(*plan.Review)...)
	}
	var longest time.Duration
	for _, stage := range asked {
		longest = max(longest, time.Duration(stage.TimeoutMillis)*time.Millisecond)
	}
	return longest
}
