package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// request is a permission request of a run.
type request struct {
	tool string
	// call is the one that needs permission; gate is as it was when the request was made.
	call string
	gate core.PermissionState
	// due is when the stage that is asked ends.
	due int64
	// allowed are those who allowed it, in the order of their decisions, and on what terms.
	allowed []decided
}

// decided is one decision that counted, and the domain that was asked then.
type decided struct {
	who, domain string
	sdk.PermissionDecision
}

// grant is what a decision allows beyond its own call.
type grant struct {
	tool, domain string
	sdk.PermissionDecision
	used int
}

// clockSlack is how much later than its decision, in milliseconds, an entry may be dated that uses a grant.
const clockSlack = 1000

// Policy rules on the call of a tool with those arguments, for an agent spec by its digest.
type Policy func(spec, tool string, args json.RawMessage) sdk.PermissionRuling

// Policy has calls judged as they are made. Without it, only those that journals say were held are known to need permission.
func (c *Checker) Policy(p Policy) { c.policy = p }

// permissions checks the decisions of an entry, and that no call is made without the permission that it needs.
func (c *Checker) permissions(r *run, last, e *core.Entry) {
	for i := range e.Decisions {
		if d := &e.Decisions[i]; d.Refused == "" {
			c.decision(r, last, e, d)
		}
	}
	for i := range e.Head.Calls {
		open := &e.Head.Calls[i]
		if k := r.calls[open.ID]; k != nil && open.Held != "" {
			k.held = true
		}
		if open.Permission == nil {
			continue
		}
		q := r.requests[open.ID]
		if q == nil {
			q = &request{tool: open.Tool, call: open.Permission.Call, gate: *open.Permission}
			r.requests[open.ID] = q
			c.requested(r, e, q)
		}
		q.due = open.Due
	}
	for _, edit := range e.Edits {
		if k := r.calls[edit.Call]; k != nil {
			k.args, k.edited = edit.Args, true
		}
	}
	c.made(r, e)
}

// requested checks that a request asks for its call.
func (c *Checker) requested(r *run, e *core.Entry, q *request) {
	k := r.calls[q.call]
	if k == nil || k.tool != q.tool || sdk.ArgsHash(k.args) != q.gate.ArgsHash {
		c.violate("I13", r.key, "entry %d asks for permission of call %s with other arguments than it has", e.Rev, q.call)
	}
}

// made checks every call that an entry makes, or says to have been made.
func (c *Checker) made(r *run, e *core.Entry) {
	for _, f := range e.Effects {
		if f.Kind == core.EffectCall {
			c.permitted(r, e, f.Call)
		}
	}
	for i := range e.Head.Calls {
		if s := e.Head.Calls[i].Status; s == core.CallRunning || s == core.CallResuming {
			c.permitted(r, e, e.Head.Calls[i].ID)
		}
	}
	for i := range e.Results {
		if e.Results[i].Kind == core.ResultInline {
			c.permitted(r, e, e.Results[i].Call)
		}
	}
}

// permitted checks that a call which is made needs no permission, or has it.
func (c *Checker) permitted(r *run, e *core.Entry, call string) {
	k := r.calls[call]
	if k == nil || k.person || k.permitted {
		return
	}
	needed := k.held || c.policy != nil && c.policy(e.Head.Spec, k.tool, k.args).Verdict != sdk.PermissionAllow
	if needed && !k.approved {
		c.violate("I13", r.key, "call %s of %s is made without permission", k.id, k.tool)
	}
	k.permitted = true
}

// decision checks one decision that counted, and notes what it allows.
func (c *Checker) decision(r *run, last, e *core.Entry, d *core.Decision) {
	switch {
	case d.Decision == sdk.DecisionViewed:
		if q := r.requests[d.Request]; q == nil || q.call != d.Call || q.gate.ArgsHash != d.ArgsHash {
			c.violate("I13", r.key, "entry %d has it that somebody saw request %s with other arguments", e.Rev, d.Request)
		}
	case d.Request == "":
		c.usesGrant(r, e, d)
	case d.Grant != "":
		c.releases(r, last, e, d)
	case d.Event != "":
		c.decides(r, last, e, d)
	case d.Decision != sdk.DecisionDeny:
		c.violate("I13", r.key, "entry %d decides request %s for nobody", e.Rev, d.Request)
	}
}

// decides checks what a person decided against what they were asked and what they sent.
func (c *Checker) decides(r *run, last, e *core.Entry, d *core.Decision) {
	q := r.requests[d.Request]
	open := slices.IndexFunc(last.Head.Calls, func(o core.Call) bool { return o.ID == d.Request && !o.Closed() })
	if q == nil || open < 0 || q.call != d.Call {
		c.violate("I13", r.key, "entry %d decides request %s for call %s, which is not open", e.Rev, d.Request, d.Call)
		return
	}
	made := decided{who: d.Who, domain: last.Head.Calls[open].Domains[0], PermissionDecision: sdk.PermissionDecision{
		Decision: d.Decision, Scope: d.Scope, ArgsHash: d.ArgsHash, Reason: d.Reason,
	}}
	if in := c.inputs[positionOf(e.Cause)]; in != nil && !in.forgotten {
		if !c.answers(r, r.calls[d.Request], in) || in.Event.ID != d.Event || in.address.Who != d.Who {
			c.violate("I13", r.key, "request %s was decided by %s %d on %s", d.Request, in.Stream, in.Sequence, in.Subject)
			return
		}
		if err := json.Unmarshal(in.Event.Data, &made.PermissionDecision); err != nil {
			c.violate("I13", r.key, "request %s was decided by something that is not a decision: %v", d.Request, err)
		}
		if q.gate.Batch != "" {
			made.PermissionDecision = c.named(r, last, q, in, made.PermissionDecision)
		}
		made.Scope = cmp.Or(made.Scope, sdk.ScopeCall)
		if in.Received >= q.due {
			c.violate("I13", r.key, "request %s, due at %d, was decided at %d", d.Request, q.due, in.Received)
		}
	}
	if made.Decision != d.Decision || made.Scope != d.Scope || made.ArgsHash != d.ArgsHash {
		c.violate("I13", r.key, "entry %d takes a decision on request %s for another", e.Rev, d.Request)
	}
	c.mayDecide(r, e, q, d)
	if c.edited(r, e, q, &made); d.Decision == sdk.DecisionAllow {
		c.allow(r, e, q, d.Request, made)
	}
}

// named is what a decision on several calls says of the one that q asks for. It must name it, or repeat the hash of all.
func (c *Checker) named(r *run, last *core.Entry, q *request, in *input, d sdk.PermissionDecision) sdk.PermissionDecision {
	ref, _ := wire.ParseCallRef(in.address.Call.Call) // answers has seen it
	var hashes []string
	for _, open := range last.Head.Calls {
		if eventOf(&open) == q.gate.Batch && max(open.Attempt, 1) >= ref.Attempt {
			hashes = append(hashes, open.Permission.ArgsHash)
		}
	}
	list, _ := json.Marshal(hashes) // texts
	if d.All && len(d.Calls) == 0 && d.ArgsHash == sdk.ArgsHash(list) {
		d.ArgsHash = q.gate.ArgsHash
		return d
	}
	for _, one := range d.Calls {
		if one.Call == q.call && !d.All {
			d.Decision, d.Reason = cmp.Or(one.Decision, d.Decision), cmp.Or(one.Reason, d.Reason)
			d.ArgsHash, d.Args, d.Result = one.ArgsHash, one.Args, one.Result
			return d
		}
	}
	c.violate("I13", r.key, "a decision that does not name call %s decided it", q.call)
	return d
}

// given checks a result that a person gave a call: it is what the decision says on the request that holds the call, which offers it.
func (c *Checker) given(r *run, e *core.Entry, k *call, in *input) {
	var d sdk.PermissionDecision
	if in.Event == nil || json.Unmarshal(in.Event.Data, &d) != nil {
		c.violate("I13", r.key, "entry %d has a result of call %s that nobody gave", e.Rev, k.id)
		return
	}
	i := slices.IndexFunc(e.Decisions, func(o core.Decision) bool { return o.Call == k.id && o.Event == in.Event.ID && o.Refused == "" })
	if i < 0 || r.requests[e.Decisions[i].Request] == nil || !r.requests[e.Decisions[i].Request].gate.Results {
		c.violate("I13", r.key, "entry %d has a result of call %s that nobody was asked for", e.Rev, k.id)
		return
	}
	for _, named := range d.Calls {
		if named.Call == k.id {
			d.Result = named.Result
		}
	}
	want, err := wire.Canonicalize(d.Result)
	if err != nil || e.Decisions[i].Decision != sdk.DecisionResult || !bytes.Equal(want, k.result.Data) || k.approved || r.requests[e.Decisions[i].Request].gate.Quorum > 1 {
		c.violate("I13", r.key, "entry %d has another result of call %s than was given", e.Rev, k.id)
	}
}

// mayDecide checks a decision against the terms of its request.
func (c *Checker) mayDecide(r *run, e *core.Entry, q *request, d *core.Decision) {
	g := &q.gate
	twice := slices.ContainsFunc(q.allowed, func(o decided) bool { return o.who == d.Who })
	switch {
	case d.ArgsHash != g.ArgsHash:
		c.violate("I13", r.key, "request %s was decided on other arguments", d.Request)
	case d.Scope != sdk.ScopeCall && !slices.Contains(g.Scopes, d.Scope):
		c.violate("I13", r.key, "request %s was decided with the scope %s, which it does not offer", d.Request, d.Scope)
	case len(g.Approvers) > 0 && !slices.Contains(g.Approvers, d.Who):
		c.violate("I13", r.key, "request %s was decided by %q, who may not", d.Request, d.Who)
	case g.FourEyes && (d.Who == "" || d.Who == e.Head.Init.Who):
		c.violate("I13", r.key, "request %s was decided by %q, who started the run", d.Request, d.Who)
	case g.Quorum > 1 && (d.Who == "" || twice):
		c.violate("I13", r.key, "request %s was decided by %q twice", d.Request, d.Who)
	}
}

// edited checks that arguments are changed by whom, and to what, they may be.
func (c *Checker) edited(r *run, e *core.Entry, q *request, d *decided) {
	i := slices.IndexFunc(e.Edits, func(edit core.Edit) bool { return edit.Call == q.call })
	alone := d.Decision == sdk.DecisionAllow && q.gate.Mode == sdk.PermissionHold && q.gate.Quorum <= 1 && d.Scope == sdk.ScopeCall
	switch {
	case i < 0 && len(d.Args) > 0 && d.Decision == sdk.DecisionAllow:
		c.violate("I13", r.key, "entry %d passes over the arguments that were allowed for call %s", e.Rev, q.call)
	case i < 0:
	case !alone || len(d.Args) == 0:
		c.violate("I13", r.key, "entry %d changes the arguments of call %s, which nobody may have done", e.Rev, q.call)
	default:
		if want, err := wire.Canonicalize(d.Args); err != nil || !bytes.Equal(want, e.Edits[i].Args) {
			c.violate("I13", r.key, "entry %d changes the arguments of call %s to others than were allowed", e.Rev, q.call)
		}
		c.editedByPolicy(r, e, q, d)
	}
}

// editedByPolicy checks that one person may allow the call as they edited it.
func (c *Checker) editedByPolicy(r *run, e *core.Entry, q *request, d *decided) {
	if c.policy == nil {
		return
	}
	ruling := c.policy(e.Head.Spec, q.tool, d.Args)
	t := &ruling.Terms
	switch {
	case ruling.Verdict == sdk.PermissionAllow:
	case ruling.Verdict != sdk.PermissionAsk:
		c.violate("I13", r.key, "entry %d has call %s made with arguments that the policy denies", e.Rev, q.call)
	case !asks(t, d.domain), t.Quorum > 1, t.Signed && !q.gate.Signed, t.FourEyes && (d.who == "" || d.who == e.Head.Init.Who),
		len(t.Approvers) > 0 && !slices.Contains(t.Approvers, d.who):
		c.violate("I13", r.key, "entry %d has call %s made with arguments that %q in %s alone may not allow", e.Rev, q.call, d.who, d.domain)
	}
}

func asks(t *sdk.PermissionTerms, domain string) bool {
	return slices.ContainsFunc(t.Stages, func(s sdk.PermissionStage) bool { return s.Domain == domain })
}

// allow notes that somebody allowed a request: its call may be made when all have whom it needs, and more if all said so.
func (c *Checker) allow(r *run, e *core.Entry, q *request, id string, d decided) {
	q.allowed = append(q.allowed, d)
	if len(q.allowed) < q.gate.Quorum {
		return
	}
	k := r.calls[q.call]
	if k != nil && q.gate.Mode == sdk.PermissionHold {
		k.approved = true
	}
	for _, other := range q.allowed {
		if other.Scope != d.Scope || other.Pattern != d.Pattern || other.Uses != d.Uses || other.ExpiresMillis != d.ExpiresMillis {
			d.Scope, d.Uses, d.ExpiresMillis = sdk.ScopeCall, 0, 0 // they agree on this call and nothing more
		}
	}
	if d.Scope == sdk.ScopeCall && q.gate.Mode == sdk.PermissionRetry {
		d.Uses = 1
	}
	if d.Scope != sdk.ScopeCall || q.gate.Mode == sdk.PermissionRetry {
		r.grants[id] = &grant{tool: q.tool, domain: d.domain, PermissionDecision: d.PermissionDecision}
	}
	if d.Scope == sdk.ScopePrincipal {
		c.recorded[id] = record{e.Head.Agent, e.Head.Init.Who, q.tool, d.domain}
	}
}

// record is a grant that reaches beyond its run.
type record struct{ agent, principal, tool, domain string }

// usesGrant checks a call that a grant covers.
func (c *Checker) usesGrant(r *run, e *core.Entry, d *core.Decision) {
	k := r.calls[d.Call]
	if k == nil || d.Decision != sdk.DecisionAllow {
		return
	}
	k.approved = true
	c.usesDomain(r, e, k, d.Grant)
	g := r.grants[d.Grant]
	if g == nil || g.Scope == sdk.ScopePrincipal {
		made, known := c.recorded[d.Grant]
		if mine := (record{e.Head.Agent, e.Head.Init.Who, k.tool, made.domain}); known && made != mine || !known && c.policy != nil {
			c.violate("I13", r.key, "call %s of %s uses the grant %s, which is not for it", k.id, k.tool, d.Grant)
		}
		return
	}
	g.used++
	switch {
	case g.tool != k.tool || g.Scope == sdk.ScopeCall && g.ArgsHash != sdk.ArgsHash(k.args):
		c.violate("I13", r.key, "call %s of %s uses the grant of request %s, which is not for it", k.id, k.tool, d.Grant)
	case g.Uses > 0 && g.used > g.Uses:
		c.violate("I13", r.key, "call %s is use %d of the grant of request %s, which is for %d", k.id, g.used, d.Grant, g.Uses)
	case g.ExpiresMillis > 0 && g.ExpiresMillis <= e.At-clockSlack:
		c.violate("I13", r.key, "call %s uses the grant of request %s, which has expired", k.id, d.Grant)
	}
}

// usesDomain checks that the domain which decided on a grant is one that the policy asks about the call.
func (c *Checker) usesDomain(r *run, e *core.Entry, k *call, grant string) {
	domain := c.recorded[grant].domain
	if g := r.grants[grant]; g != nil {
		domain = g.domain
	}
	if c.policy == nil || domain == "" {
		return
	}
	ruling := c.policy(e.Head.Spec, k.tool, k.args)
	if ruling.Verdict == sdk.PermissionAsk && !asks(&ruling.Terms, domain) {
		c.violate("I13", r.key, "call %s of %s uses the grant %s, which %s gave, and is not asked", k.id, k.tool, grant, domain)
	}
}

// releases checks that a request which became needless is covered by the decision on another one of its round.
func (c *Checker) releases(r *run, last, e *core.Entry, d *core.Decision) {
	q, k, g := r.requests[d.Request], r.calls[d.Call], r.grants[d.Grant]
	switch {
	case q == nil || k == nil || g == nil || q.call != d.Call || g.tool != q.tool:
		c.violate("I13", r.key, "entry %d allows call %s by a grant that is not for it", e.Rev, d.Call)
	case g.Scope != sdk.ScopeTool && g.Scope != sdk.ScopePrincipal || !slices.Contains(q.gate.Scopes, g.Scope):
		c.violate("I13", r.key, "entry %d allows call %s by a grant of the scope %s", e.Rev, d.Call, g.Scope)
	case q.gate.Quorum > len(r.requests[d.Grant].allowed):
		c.violate("I13", r.key, "entry %d allows call %s, for which %d are needed, by a decision of fewer", e.Rev, d.Call, q.gate.Quorum)
	case !slices.ContainsFunc(last.Head.Calls, func(o core.Call) bool { return o.ID == d.Request && o.Domains[0] == g.domain }):
		c.violate("I13", r.key, "entry %d allows call %s by a decision of %s, which is not asked about it", e.Rev, d.Call, g.domain)
	default:
		for _, by := range r.requests[d.Grant].allowed {
			if len(q.gate.Approvers) > 0 && !slices.Contains(q.gate.Approvers, by.who) || q.gate.FourEyes && by.who == e.Head.Init.Who {
				c.violate("I13", r.key, "entry %d allows call %s by %q, who may not", e.Rev, d.Call, by.who)
			}
		}
	}
	if g != nil {
		if g.used++; g.Uses > 0 && g.used > g.Uses {
			c.violate("I13", r.key, "call %s is use %d of the grant of request %s, which is for %d", d.Call, g.used, d.Grant, g.Uses)
		}
	}
	if k != nil {
		k.approved = true
	}
}
