package core

import (
	"encoding/json"
	"slices"

	"agentd/sdk"
)

// Verdict is what becomes of an admitted call. The zero Verdict is that of nobody: the call is denied.
type Verdict string

// The verdicts.
const (
	VerdictAllow Verdict = "allow" // the call is made
	VerdictAsk   Verdict = "ask"   // people are asked, unless a grant decides
	VerdictDeny  Verdict = "deny"  // it is not allowed
	VerdictBlock Verdict = "block" // a hook keeps it from being made
	VerdictSet   Verdict = "set"   // a hook gives its result instead
)

// Ruling is what hooks and the permission policy make of one admitted call.
type Ruling struct {
	Verdict Verdict
	Reason  string
	// Rule of the policy, for the record.
	Rule string
	// Terms are those under which people are asked.
	Terms sdk.PermissionTerms
	// Result is canonical, and the result of a call whose Verdict is VerdictSet. With VerdictAsk it is the result that a hook gives
	// the call in place of making it, once it is allowed.
	Result json.RawMessage
}

// granted is the ruling on a call that is to be asked for, when a grant allows it.
func (r *Ruling) granted() Ruling {
	if r.Result != nil {
		return Ruling{Verdict: VerdictSet, Result: r.Result}
	}
	return Ruling{Verdict: VerdictAllow}
}

// Rule gives the i-th call its ruling. A call that is to be asked for is decided by a grant of the run where one covers it, of which
// it takes a use; one that need not be is denied where people have denied such calls. Rule reports whether people have to be asked: then
// Grant or Ask must follow, without which the call is denied.
func (p *Admission) Rule(i int, r Ruling) (ask bool) {
	c := &p.Calls[i]
	c.ruling = r
	defer p.restrict()
	var g *Grant
	switch r.Verdict {
	case VerdictAsk:
		g = p.grants.take(c.Tool, c.Args, &r.Terms)
	case VerdictAllow, VerdictSet:
		g = p.grants.denial(c.Tool, c.Args)
	case VerdictDeny, VerdictBlock:
	}
	c.granted = g != nil
	switch {
	case g != nil:
	case r.Verdict == VerdictAsk:
		c.ruling.Verdict, c.ruling.Reason = VerdictDeny, "there is nobody to ask"
		return true
	default:
		return false
	}
	c.decision = &Decision{Call: c.ID, Decision: sdk.DecisionAllow, Scope: g.Scope, Grant: g.Request, Rule: r.Rule}
	c.ruling, c.until = r.granted(), g.Expires
	if g.Deny {
		c.decision.Decision, c.decision.Reason = sdk.DecisionDeny, g.Reason
		c.ruling = Ruling{Verdict: VerdictDeny, Reason: g.Reason}
	}
	return false
}

// withoutGrant is the call when the grants of the run have changed since it was ruled on.
func (c *AdmittedCall) withoutGrant() *AdmittedCall {
	denied := *c
	denied.decision = nil
	denied.ruling = Ruling{Verdict: VerdictDeny, Reason: "somebody has decided on other calls meanwhile; call it again to ask for it"}
	return &denied
}

// Grant allows the i-th call because a grant wider than the run covers it.
func (p *Admission) Grant(i int, id string) {
	c := &p.Calls[i]
	c.decision = &Decision{Call: c.ID, Decision: sdk.DecisionAllow, Grant: id, Rule: c.ruling.Rule}
	c.ruling = c.ruling.granted()
	p.restrict()
}

// Ask has people asked for the i-th call, with the canonical data of the request.
func (p *Admission) Ask(i int, request json.RawMessage) {
	if c := &p.Calls[i]; len(request) > 0 && len(c.ruling.Terms.Stages) > 0 {
		c.ruling.Verdict, c.request = VerdictAsk, request
		p.restrict()
	}
}

// grants are those of a run, as far as they decide the calls of a round.
type grants struct {
	// had are those that there were, and left those that are left.
	had, left []Grant
	matches   func(pattern string, args json.RawMessage) (matches, known bool)
	// initiator is the principal that started the run; now is in Unix milliseconds.
	initiator string
	now       int64
}

func (s *Spec) grants(h *Head, now int64) grants {
	return grants{had: h.Grants, left: h.Grants, matches: s.Matches, initiator: h.Init.Who, now: now}
}

// standIn reports whether they are still those of the run: a decision on a call that is carried may have changed them.
func (g *grants) standIn(h *Head) bool {
	return slices.EqualFunc(g.had, h.Grants, func(a, b Grant) bool { return a.Request == b.Request && a.Uses == b.Uses })
}

// take returns the grant that decides a call which is to be asked for under the terms, and uses it; nil is none.
func (g *grants) take(tool string, args json.RawMessage, terms *sdk.PermissionTerms) *Grant {
	i := g.covering(tool, args, terms)
	if i < 0 {
		return nil
	}
	taken := g.left[i]
	if !taken.Deny {
		g.left = use(g.left, i)
	}
	return &taken
}

// covering returns the index of that grant, or -1. A denial comes before what allows.
func (g *grants) covering(tool string, args json.RawMessage, terms *sdk.PermissionTerms) int {
	found := -1
	for i := range g.left {
		k := &g.left[i]
		if !g.covers(k, tool, args) {
			continue
		}
		if k.Deny {
			return i
		}
		if found < 0 && len(terms.Unmet(k.Consent(), g.initiator)) == 0 {
			found = i
		}
	}
	return found
}

// Denial is the denial of the run, now in force, that covers a call; nil is none.
func (s *Spec) Denial(h *Head, tool string, args json.RawMessage, now int64) *Grant {
	g := s.grants(h, now)
	return g.denial(tool, args)
}

func (g *grants) denial(tool string, args json.RawMessage) *Grant {
	for i := range g.left {
		if k := &g.left[i]; k.Deny && g.covers(k, tool, args) {
			return k
		}
	}
	return nil
}

func (g *grants) covers(k *Grant, tool string, args json.RawMessage) bool {
	if k.Tool != tool || k.Expires > 0 && k.Expires <= g.now {
		return false
	}
	switch k.Scope {
	case sdk.ScopeCall:
		return k.ArgsHash == sdk.ArgsHash(args)
	case sdk.ScopeToolPattern:
		matches, known := g.matches(k.Pattern, args)
		return matches || !known && k.Deny // the doubt goes against the call
	case sdk.ScopeTool, sdk.ScopePrincipal:
		return true
	}
	return false
}

// use takes one use of the grant with that index, and returns the grants that are left. It does not modify grants.
func use(grants []Grant, i int) []Grant {
	left := slices.Clone(grants)
	switch left[i].Uses {
	case 0:
	case 1:
		left = slices.Delete(left, i, i+1)
	default:
		left[i].Uses--
	}
	return left
}

// RulesOn reports whether calls of the run need rulings.
func (s *Spec) RulesOn(h *Head) bool { return s.NeedsRulings || len(h.Require) > 0 }
