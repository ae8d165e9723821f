package core

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
)

// EditAdmission is the call of a permission request as a decision wants it made: with arguments of the approver. AdmitEdit makes it, whoever
// takes the decision has the policy rule on it, and Step makes the call as admitted. One that nobody ruled on is refused.
type EditAdmission struct {
	Call AdmittedCall
	// written are the arguments that it was made for.
	written json.RawMessage
}

// AdmitEdit is the call of a request as the decision wants it made; nil when it leaves the arguments as they are. held are those that
// the call waits with; only tools of which the agent sets arguments need them (Spec.SetsOf).
func AdmitEdit(spec *Spec, request *Call, d *sdk.PermissionDecision, held json.RawMessage) *EditAdmission {
	if request.Permission == nil || len(d.Args) == 0 {
		return nil
	}
	p := &EditAdmission{Call: AdmittedCall{ID: request.Permission.Call, Tool: request.Tool}, written: d.Args}
	p.Call.Args, p.Call.Refusal = spec.edit(request.Tool, d.Args, held)
	if t := spec.tool(request.Tool); t != nil && t.Reviews != nil {
		p.Rule(Ruling{Verdict: VerdictAllow}) // what calls it makes are ruled on when they are chosen
	}
	return p
}

// Ruling is what Rule gave the call.
func (p *EditAdmission) Ruling() *Ruling { return &p.Call.ruling }

// Rule gives the call its ruling.
func (p *EditAdmission) Rule(r Ruling) { p.Call.ruling = r }

// madeFor reports whether the admission is of that decision on a request.
func (p *EditAdmission) madeFor(request *Call, d *sdk.PermissionDecision) bool {
	return p != nil && p.Call.ID == request.Permission.Call && bytes.Equal(p.written, d.Args)
}

// edit returns an approver's arguments as the tool takes them, or why it does not.
func (s *Spec) edit(tool string, args, held json.RawMessage) (json.RawMessage, *sdk.Error) {
	t := s.tool(tool)
	switch {
	case t == nil:
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "%s is not there to check the edited arguments; try again later, or deny the call", tool)
	case len(args) > MaxArguments:
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the edited arguments have %d bytes, more than %d", len(args), MaxArguments)
	}
	canonical, faults := t.Validate(string(args))
	switch {
	case len(faults) > 0 && t.Reviews != nil:
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the edited plan cannot be carried out: %s", clip.Text(faults[0].Got, maxMessage))
	case len(faults) > 0:
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the edited arguments do not fit the tool: %s", unfit(faults).Error())
	}
	if name, kept := t.keepsSet(canonical, held); !kept {
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the edited arguments change %s, which the agent sets; leave it as it is", name)
	}
	return canonical, nil
}

// SetsOf reports whether the agent sets arguments of a tool.
func (s *Spec) SetsOf(tool string) bool {
	t := s.tool(tool)
	return t != nil && t.Sets != nil
}

// refuseEdit says why the call may not be made as it was admitted, or nil: the policy rules on what is made, not on what was
// asked for.
func (t *transition) refuseEdit(c *Call, p *EditAdmission, who string) *sdk.Error {
	if p.Call.Refusal != nil {
		return p.Call.Refusal
	}
	if err := t.checkReviewed(c, p.Call.Args); err != nil {
		return sdk.Errorf(sdk.CodeDecisionRefused, "the edited plan cannot be carried out: %s", err)
	}
	if reason, denied := t.deniedByGrant(c.Tool, p.Call.Args); denied {
		return editRefused("they were denied before", reason)
	}
	r := &p.Call.ruling
	switch r.Verdict {
	case VerdictAllow:
		return nil
	case VerdictAsk:
		consent := sdk.Consent{Scope: sdk.ScopeCall, By: []string{who}, Signed: c.Permission.Signed, Domains: c.askedDomains()}
		if unmet := r.Terms.Unmet(consent, t.Head.Init.Who); len(unmet) > 0 {
			return editRefused(byRule("the policy asks for more than this decision gives", r.Rule), strings.Join(unmet, "; "))
		}
		return nil
	case VerdictDeny, VerdictBlock, VerdictSet:
		return editRefused(byRule("the policy denies them", r.Rule), r.Reason)
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "the policy could not be asked about the edited arguments; decide again, or on the arguments as they are")
}

// deniedByGrant reports whether somebody has denied calls of the tool with such arguments for the rest of the run, and why.
func (t *transition) deniedByGrant(tool string, args json.RawMessage) (reason string, denied bool) {
	grants := t.spec.grants(&t.Head, t.in.At)
	i := grants.covering(tool, args, &sdk.PermissionTerms{})
	if i < 0 || !grants.left[i].Deny {
		return "", false
	}
	return grants.left[i].Reason, true
}

func editRefused(why, detail string) *sdk.Error {
	if detail != "" {
		why += ": " + clip.Text(detail, maxMessage)
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "the call cannot be made with the edited arguments, because %s", why)
}

func byRule(why, rule string) string {
	if rule == "" {
		return why
	}
	return why + " (" + rule + ")"
}
