package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// decided absorbs the answer to a permission request. One that does not count is recorded, and changes nothing else.
func (t *transition) decided(c *Call, ev Answered) error {
	heard := t.heard(ev)
	if slices.Contains(c.Permission.Heard, heard) {
		return ErrStale
	}
	asked := t.Head.askedIn(c, ev.Ref.Attempt)
	for _, o := range asked {
		o.Permission.Heard = append(slices.Clip(o.Permission.Heard), heard)
	}
	record := Decision{Request: c.ID, Batch: c.Permission.Batch, Call: c.Permission.Call, Event: ev.EventID, Source: ev.Source, Who: ev.Who}
	if ev.Decision == nil {
		if refusal := c.refuseError(ev.Who, t.Head.Init.Who); refusal != nil {
			return t.rejected(c, record, refusal)
		}
		t.close(c, Result{Call: c.ID, Kind: ResultAnswer, Data: ev.Data, Error: true, Event: ev.EventID, Source: ev.Source, Who: ev.Who})
		return t.interrupt(Ending{
			Reason: ReasonError, Code: sdk.CodeUnavailable, Message: "whoever was asked for permission could not decide",
		})
	}
	if ev.Decision.Decision == sdk.DecisionViewed {
		return t.viewed(asked, ev)
	}
	decisions, refusal := t.Head.DecidedRequests(c, ev.Ref.Attempt, ev.Decision)
	if refusal != nil {
		return t.rejected(c, recordOf(c, *ev.Decision, ev), refusal)
	}
	return t.decideAll(decisions, ev)
}

// recordOf is the record of what a decision says of a request.
func recordOf(c *Call, d sdk.PermissionDecision, ev Answered) Decision {
	return Decision{
		Request: c.ID, Batch: c.Permission.Batch, Call: c.Permission.Call, Decision: d.Decision, Scope: cmp.Or(d.Scope, sdk.ScopeCall), ArgsHash: d.ArgsHash,
		Reason: clip.Text(d.Reason, maxMessage), Event: ev.EventID, Source: ev.Source, Who: ev.Who, Key: ev.Key,
	}
}

// decideAll takes what one decision says of several requests, all of it in one entry. The error is that of one which neither counts nor
// can be recorded, where nothing else was.
func (t *transition) decideAll(decisions []RequestDecision, ev Answered) error {
	var unrecorded error
	var allowed []enacted
	counted := false
	for _, r := range decisions {
		c, d := r.Request, r.PermissionDecision
		d.Scope, d.Reason = cmp.Or(d.Scope, sdk.ScopeCall), clip.Text(d.Reason, maxMessage)
		rulings := ev.rulings(c.ID)
		if len(d.Args) > 0 && !c.Closed() && !rulings.Edit.madeFor(c, &d) {
			return violation(&t.Head, "a decision on %s that edits the arguments needs the rulings that were made for it", c.ID)
		}
		if refusal := t.refuse(c, d, ev, rulings); refusal != nil {
			unrecorded = cmp.Or(unrecorded, t.rejected(c, recordOf(c, d, ev), refusal))
			continue
		}
		counted = true
		t.Decisions = append(t.Decisions, recordOf(c, d, ev))
		if d.Decision == sdk.DecisionAllow && c.Permission.Quorum > 1 {
			c.Permission.agree(&d, ev)
			if len(c.Permission.Allowed) < c.Permission.Quorum {
				continue
			}
		}
		allowed = append(allowed, t.enact(c, d, ev, allowed))
	}
	for _, a := range allowed {
		if a.reaches() {
			t.releaseOthers(a.request, a.decision, a.by, ev.Received)
		}
	}
	switch {
	case counted:
		return t.settle()
	case len(t.Decisions) > 0:
		return nil
	}
	return unrecorded
}

// enacted is a decision that has closed its request, by those people. repeats says that it grants for later calls what another of the same
// event has granted already.
type enacted struct {
	request  *Call
	decision sdk.PermissionDecision
	by       []string
	repeats  bool
}

// reaches reports whether the decision lets other held calls be made.
func (c *enacted) reaches() bool {
	return !c.repeats && c.decision.Decision == sdk.DecisionAllow && c.request.Permission.Mode == sdk.PermissionHold &&
		(c.decision.Scope == sdk.ScopeTool || c.decision.Scope == sdk.ScopePrincipal)
}

// grants reports whether the decision grants for later calls what another of the same event does on another request.
func (c *enacted) grants(request *Call, d *sdk.PermissionDecision) bool {
	return d.Scope != sdk.ScopeCall && c.decision.Scope == d.Scope && c.decision.Decision == d.Decision && c.request.Tool == request.Tool
}

// heard is the digest of a message about a permission request.
func (t *transition) heard(ev Answered) string {
	return eventDigest(fmt.Sprintf("%s/%d/%s", t.in.Cause.Stream, t.in.Cause.Sequence, ev.EventID))
}

// rejected records a decision that does not count.
func (t *transition) rejected(c *Call, record Decision, why *sdk.Error) error {
	if c.Permission.Refusals >= MaxRefusals {
		return why
	}
	c.Permission.Refusals++
	record.Refused = why.Message
	t.Decisions = append(t.Decisions, record)
	return nil
}

// refuseError says why an error of somebody who was asked does not count, or nil. It ends the run, so nobody may report one
// who may not decide either.
func (c *Call) refuseError(who, initiator string) *sdk.Error {
	one := c.terms()
	one.Quorum = 1
	switch {
	case c.Permission.Signed:
		return sdk.Errorf(sdk.CodeDecisionRefused, "an error is not signed, so it cannot take the place of a decision")
	case len(one.Unmet(sdk.Consent{Scope: sdk.ScopeCall, By: []string{who}, Domains: c.askedDomains()}, initiator)) > 0:
		return sdk.Errorf(sdk.CodeDecisionRefused, "%q may not decide, nor say that nobody can", who)
	}
	return nil
}

// viewed records that somebody was shown a request, which asks for all of asked: the first time that they were.
func (t *transition) viewed(asked []*Call, ev Answered) error {
	hash := asked[0].Permission.ArgsHash
	if asked[0].Permission.Batch != "" {
		hash = callsHash(asked)
	}
	if ev.Decision.ArgsHash != hash {
		return sdk.Errorf(sdk.CodeDecisionRefused, "other arguments were seen than the request's")
	}
	seen := sdk.Errorf(sdk.CodeDecisionRefused, "that they have seen the request is recorded already")
	for _, c := range asked {
		switch {
		case c.Closed(), slices.Contains(c.Permission.Viewed, ev.Who):
			continue
		case len(c.Permission.Viewed) >= MaxViews:
			seen = sdk.Errorf(sdk.CodeDecisionRefused, "the request has been seen by %d others", MaxViews)
			continue
		}
		c.Permission.Viewed = append(slices.Clip(c.Permission.Viewed), ev.Who)
		d := recordOf(c, *ev.Decision, ev)
		d.ArgsHash, d.Scope = c.Permission.ArgsHash, ""
		t.Decisions = append(t.Decisions, d)
	}
	if len(t.Decisions) > 0 {
		return nil
	}
	return seen
}

// refuse says why a decision does not count, or nil.
func (t *transition) refuse(c *Call, d sdk.PermissionDecision, ev Answered, rulings DecisionRulings) *sdk.Error {
	g, who := c.Permission, ev.Who
	refused := func(format string, args ...any) *sdk.Error {
		return sdk.Errorf(sdk.CodeDecisionRefused, format, args...)
	}
	switch {
	case ev.Refused != "":
		return refused("%s", clip.Text(ev.Refused, maxMessage))
	case c.Closed():
		return refused("the call is decided already")
	case ev.Received >= c.Due:
		return refused("the request has expired")
	case d.ArgsHash != g.ArgsHash:
		return refused("it was decided on other arguments")
	case !slices.Contains(g.scopes(), d.Scope):
		return refused("the scope %q was not offered", d.Scope)
	case d.Scope == sdk.ScopeToolPattern && d.Pattern == "":
		return refused("a grant by pattern needs a pattern")
	case len(d.Pattern) > maxPattern:
		return refused("the pattern has %d bytes, more than %d", len(d.Pattern), maxPattern)
	case d.Scope == sdk.ScopePrincipal && t.Head.Init.Who == "":
		return refused("nobody knows which principal started the run, so the grant cannot be theirs")
	case len(g.Approvers) > 0 && !slices.Contains(g.Approvers, who):
		return refused("%q may not decide", who)
	case g.FourEyes && (who == "" || who == t.Head.Init.Who):
		return refused("whoever started the run may not decide")
	case g.Quorum > 1 && (who == "" || slices.Contains(g.Allowed, who)):
		return refused("every one of %d approvers must be somebody else", g.Quorum)
	case g.Signed && g.Quorum > 1 && ev.Key == "":
		return refused("nobody knows the key that signed it, so it cannot be told from the decisions of others")
	case ev.Key != "" && slices.Contains(g.Keys, ev.Key):
		return refused("the key %s has signed a decision that counts already", ev.Key)
	case slices.Contains(g.Events, eventDigest(ev.EventID)):
		return refused("it repeats a decision that counts already")
	case len(d.Args) > 0 && (d.Decision != sdk.DecisionAllow || g.Mode != sdk.PermissionHold || g.Quorum > 1 || d.Scope != sdk.ScopeCall):
		return refused("arguments can be edited only when one person allows this one call")
	}
	switch d.Decision {
	case sdk.DecisionAllow, sdk.DecisionDeny, sdk.DecisionAsk:
		if len(d.Args) > 0 {
			return t.refuseEdit(c, rulings.Edit, ev.Who)
		}
		return nil
	case sdk.DecisionResult:
		return g.refuseResult(d)
	case sdk.DecisionViewed:
	}
	return refused("%q is not a decision", d.Decision)
}

// refuseResult says why the call cannot have the result that a decision gives it, or nil.
func (g *PermissionState) refuseResult(d sdk.PermissionDecision) *sdk.Error {
	switch {
	case !g.Results:
		return sdk.Errorf(sdk.CodeDecisionRefused, "the request does not offer to give the call's result; allow the call, or deny it")
	case d.Scope != sdk.ScopeCall:
		return sdk.Errorf(sdk.CodeDecisionRefused, "a result is that of this one call; the scope %q is wider", d.Scope)
	case len(d.Result) > MaxResult:
		return sdk.Errorf(sdk.CodeDecisionRefused, "the result has %d bytes, more than %d", len(d.Result), MaxResult)
	case len(d.Result) == 0 || d.Result[0] != '{':
		return sdk.Errorf(sdk.CodeDecisionRefused, "the result of a call is an object, as JSON")
	}
	return nil
}

// agree adds somebody to those who allow the request, and narrows their decision to what all of them want: one must not
// grant alone what takes several.
func (g *PermissionState) agree(d *sdk.PermissionDecision, ev Answered) {
	wants := Agreement{Stage: len(g.Passed), Scope: d.Scope, Pattern: d.Pattern, Uses: d.Uses, Expires: d.ExpiresMillis}
	switch {
	case len(g.Allowed) == 0 && d.Scope != sdk.ScopeCall:
		g.Agreed = &wants
	case g.Agreed != nil && *g.Agreed != wants:
		g.Agreed = nil
	}
	if g.Agreed == nil {
		d.Scope, d.Pattern, d.Uses, d.ExpiresMillis = sdk.ScopeCall, "", 0, 0
	}
	g.Allowed = append(slices.Clip(g.Allowed), ev.Who)
	g.Events = append(slices.Clip(g.Events), eventDigest(ev.EventID))
	if ev.Key != "" {
		g.Keys = append(slices.Clip(g.Keys), ev.Key)
	}
}

// eventDigest stands for an event id, or a message, in the head, where an id of any length would not fit.
func eventDigest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// terms are those that say what a decision for several calls means for this one.
func (c *Call) terms() sdk.PermissionTerms {
	g := c.Permission
	t := sdk.PermissionTerms{
		Scopes: g.Scopes, Quorum: g.Quorum, FourEyes: g.FourEyes, Approvers: g.Approvers, Signed: g.Signed,
	}
	for _, domain := range c.askedDomains() {
		t.Stages = append(t.Stages, sdk.PermissionStage{Domain: domain})
	}
	return t
}

// coveredBy reports whether the consent to another request stands for this one as well, which the same domain is asked now.
func (c *Call) coveredBy(consent sdk.Consent, initiator string) bool {
	return slices.Equal(c.askedDomains(), consent.Domains) && len(c.terms().Unmet(consent, initiator)) == 0
}

// scopes are those that a decision may have: always that of the one call, because nobody could deny it else without denying others.
func (g *PermissionState) scopes() []sdk.GrantScope {
	return append([]sdk.GrantScope{sdk.ScopeCall}, g.Scopes...)
}

// enact closes the request, and lets its call be made or not. What before has granted already is not granted again.
func (t *transition) enact(c *Call, d sdk.PermissionDecision, ev Answered, before []enacted) enacted {
	rulings := ev.rulings(c.ID)
	if len(d.Args) > 0 {
		d.Args = rulings.Edit.Call.Args
		c.Permission.Told = true
	}
	allowed, given := d.Decision == sdk.DecisionAllow, d.Decision == sdk.DecisionResult
	t.voidOthers(c, 0) // whoever else was asked learns that it is decided
	t.close(c, Result{
		Call: c.ID, Kind: ResultAnswer, Data: told(c.Tool, d, note(c.Permission.Mode, d)), Error: !allowed && !given,
		Event: ev.EventID, Source: ev.Source, Who: ev.Who,
	})
	by := c.Permission.Allowed
	if len(by) == 0 {
		by = []string{ev.Who}
	}
	done := enacted{c, d, by, slices.ContainsFunc(before, func(o enacted) bool { return o.grants(c, &d) })}
	if !done.repeats {
		t.grant(c, d, by)
	}
	if c.Permission.Mode == sdk.PermissionRetry {
		return done
	}
	call := &t.Head.Calls[t.Head.call(c.Permission.Call)]
	switch {
	case allowed:
		t.release(call, d, t.enough(c, d, rulings.Now, by))
	case d.Decision == sdk.DecisionResult:
		t.close(call, Result{
			Call: call.ID, Kind: ResultGiven, Data: d.Result, Event: ev.EventID, Source: ev.Source, Who: ev.Who,
		})
		call.Held = ""
	case d.Decision == sdk.DecisionAsk:
		t.deny(call, sdk.Errorf(sdk.CodePermissionNeeded, "%s was not made; whoever was asked for permission asks: %s", c.Tool, d.Reason))
	default:
		t.deny(call, denial(c.Tool, d.Reason))
	}
	return done
}

// note tells the model in the mode retry what to do about a decision.
func note(mode sdk.PermissionMode, d sdk.PermissionDecision) string {
	switch {
	case mode != sdk.PermissionRetry && len(d.Args) > 0:
		return "The call was made with these arguments instead."
	case mode != sdk.PermissionRetry:
		return ""
	case d.Decision == sdk.DecisionAllow:
		return "You may call the tool now, with the same arguments."
	case d.Decision == sdk.DecisionAsk:
		return "The call was not made. Answer the question by calling again, with what was asked for."
	}
	return "The call was not made. Do not call the tool like this again."
}

// grant keeps what the decision of those means for later calls. In the mode retry it allows or denies the same call once more.
func (t *transition) grant(c *Call, d sdk.PermissionDecision, by []string) {
	h := &t.Head
	retry := c.Permission.Mode == sdk.PermissionRetry
	if d.Decision == sdk.DecisionAsk || d.Scope == sdk.ScopeCall && !retry || len(h.Grants) >= MaxGrants {
		return
	}
	g := Grant{
		Request: c.ID, Tool: c.Tool, Scope: d.Scope, Pattern: d.Pattern, Deny: d.Decision == sdk.DecisionDeny,
		Reason: clip.Text(d.Reason, maxGrantReason),
		Uses:   d.Uses, Expires: d.ExpiresMillis,
	}
	if !g.Deny {
		g.By, g.Signed = slices.DeleteFunc(slices.Clone(by), func(who string) bool { return who == "" }), c.Permission.Signed
		g.Domains = c.askedDomains()
	}
	if d.Scope == sdk.ScopeCall {
		g.ArgsHash, g.Uses = c.Permission.ArgsHash, 0
		if !g.Deny {
			g.Uses = 1
		}
	}
	if d.Scope == sdk.ScopePrincipal && !g.Deny {
		t.Records = append(t.Records, sdk.GrantRecord{
			ID: c.ID, Agent: h.Agent, Principal: h.Init.Who, Tool: c.Tool, Scope: d.Scope, By: by, Signed: c.Permission.Signed, Domains: c.askedDomains(),
			At: t.in.At, Run: h.Run, Uses: d.Uses, Expires: d.ExpiresMillis,
		})
		t.Effects = append(t.Effects, Effect{Kind: EffectGrant, Call: c.ID})
		return // the manager has it
	}
	h.Grants = append(h.Grants, g)
}

// release lets a held call be made: the driver has it ruled on once more. While the driver is at work, a service's is sent at once if
// whoever took the decision has done that.
func (t *transition) release(call *Call, d sdk.PermissionDecision, now *Ruling) {
	if call.Status != CallSuspended && t.illegal == nil {
		t.illegal = violation(&t.Head, "call %s is allowed, and is %q", call.ID, call.Status)
	}
	call.Held, call.Status = "", CallResuming
	if len(d.Args) > 0 {
		call.Edited = t.in.Rev
		t.Edits = append(t.Edits, Edit{Call: call.ID, Args: d.Args})
		t.Head.Plan.edited(call, d.Args)
	}
	tool := t.spec.tool(call.Tool)
	if now != nil && tool != nil && tool.Kind == CallService && call.Kind == CallService && t.was == StatusRunning &&
		!call.Queued && t.Head.Paused == nil {
		t.send(call, tool)
	}
}

// enough is the ruling on a call by whoever took the decision on it, if it lets the call be made by that decision; else nil.
func (t *transition) enough(c *Call, d sdk.PermissionDecision, now *Ruling, by []string) *Ruling {
	if now == nil || now.Verdict != VerdictAllow && now.Verdict != VerdictAsk {
		return nil
	}
	consent := sdk.Consent{Scope: d.Scope, By: by, Signed: c.Permission.Signed, Domains: c.askedDomains()}
	if now.Verdict == VerdictAsk && len(now.Terms.Unmet(consent, t.Head.Init.Who)) > 0 {
		return nil
	}
	return now
}

// releaseOthers lets the other held calls of the tool be made that a decision for the whole tool covers, and withdraws their
// requests: those that whoever decided might have decided too, because the same domain is asked now. Each is a use of the grant;
// those of a grant wider than the run are counted where it is kept, so with a bound there its calls are asked for one by one.
func (t *transition) releaseOthers(decided *Call, d sdk.PermissionDecision, by []string, received int64) {
	h := &t.Head
	if d.ExpiresMillis > 0 && d.ExpiresMillis <= t.in.At || d.Scope == sdk.ScopePrincipal && d.Uses > 0 {
		return
	}
	if slices.ContainsFunc(h.Grants, func(g Grant) bool {
		return g.Deny && g.Tool == decided.Tool && g.Scope != sdk.ScopeCall && (g.Expires == 0 || g.Expires > t.in.At)
	}) {
		return // somebody has denied such calls for the rest of the run: each is decided by itself
	}
	consent := sdk.Consent{Scope: d.Scope, By: by, Signed: decided.Permission.Signed, Domains: decided.askedDomains()}
	released := 0
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Kind != CallPermission || c.Closed() || c.Tool != decided.Tool || c.Permission.Mode != sdk.PermissionHold || received >= c.Due ||
			!c.coveredBy(consent, h.Init.Who) {
			continue
		}
		if d.Uses > 0 && released == d.Uses {
			return
		}
		released++
		if g := slices.IndexFunc(h.Grants, func(g Grant) bool { return g.Request == decided.ID }); g >= 0 {
			h.Grants = use(h.Grants, g)
		}
		t.void(c)
		t.close(c, Result{Call: c.ID, Kind: ResultGranted, Event: decided.ID})
		t.Decisions = append(t.Decisions, Decision{
			Request: c.ID, Batch: c.Permission.Batch, Call: c.Permission.Call, Decision: sdk.DecisionAllow, Scope: d.Scope, ArgsHash: c.Permission.ArgsHash, Grant: decided.ID,
		})
		t.release(&h.Calls[h.call(c.Permission.Call)], sdk.PermissionDecision{}, nil)
	}
}

// Denied is the result of a call that was held, and that is not allowed after all.
func Denied(c Call, why string) Result { return failure(c.ID, ResultDenied, denial(c.Tool, why)) }

// deny closes a held call without making it.
func (t *transition) deny(call *Call, e *sdk.Error) {
	t.close(call, failure(call.ID, ResultDenied, e))
	call.Held = ""
}

// undecided turns to the next stage of a request that nobody decided in time, or denies its call.
func (t *transition) undecided(c *Call) {
	h, g := &t.Head, c.Permission
	if len(g.Stages) == 0 {
		d := sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "nobody decided in time", Scope: sdk.ScopeCall}
		t.Decisions = append(t.Decisions, Decision{Request: c.ID, Batch: g.Batch, Call: g.Call, Decision: d.Decision, Reason: d.Reason})
		t.voidOthers(c, 0)
		t.close(c, Result{Call: c.ID, Kind: ResultTimeout, Data: told(c.Tool, d, note(g.Mode, d)), Error: true})
		if g.Mode != sdk.PermissionRetry {
			t.deny(&h.Calls[h.call(g.Call)], denial(c.Tool, d.Reason))
		}
		return
	}
	t.voidOthers(c, 0)
	c.Refused = append(slices.Clip(c.Refused), c.attempt())
	next := g.Stages[0]
	g.Stages, g.Passed = g.Stages[1:], append(slices.Clip(g.Passed), c.Domains...)
	c.Domains, g.Timeout = []string{next.Domain}, next.TimeoutMillis
	t.resend(c)
}
