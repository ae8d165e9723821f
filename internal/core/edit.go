package core

import (
	"encoding/json"
	"strings"

	"agentd/sdk"
)

// EditedCall returns the call of a request as a decision wants it made, for the policy to rule on. It is nil when the decision
// leaves the arguments as they are, or when Step refuses the new ones whatever the policy says.
func EditedCall(spec *Spec, request *Call, d *sdk.PermissionDecision) *PlannedCall {
	if request.Gate == nil || d.Decision != sdk.DecisionAllow || len(d.Args) == 0 || len(d.Args) > MaxArguments {
		return nil
	}
	args, problem := spec.edit(request.Tool, d.Args)
	if problem != nil {
		return nil
	}
	return &PlannedCall{ID: request.Gate.Call, Tool: request.Tool, Args: args}
}

// edit returns an approver's arguments as the tool takes them, or why it does not.
func (s *Spec) edit(tool string, args json.RawMessage) (json.RawMessage, *sdk.Error) {
	t := s.tool(tool)
	if t == nil {
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "%s is not there to check the edited arguments; try again later, or deny the call", tool)
	}
	canonical, faults := t.Validate(string(args))
	if len(faults) > 0 {
		return nil, sdk.Errorf(sdk.CodeDecisionRefused, "the edited arguments do not fit the tool: %s", unfit(faults).Error())
	}
	return canonical, nil
}

// refuseEdit says why the call may not be made with the decision's own arguments, or nil: the policy rules on what is made,
// not on what was asked for.
func (t *transition) refuseEdit(c *Call, d sdk.PermissionDecision, ev Answered) *sdk.Error {
	if len(d.Args) == 0 {
		return nil
	}
	args, problem := t.spec.edit(c.Tool, d.Args)
	if problem != nil {
		return problem
	}
	if reason, denied := t.deniedByGrant(c.Tool, args); denied {
		return editRefused("they were denied before", reason)
	}
	if ev.Edited == nil {
		return sdk.Errorf(sdk.CodeDecisionRefused, "the policy could not be asked about the edited arguments; decide again, or on the arguments as they are")
	}
	switch r := ev.Edited; r.Verdict {
	case VerdictAllow:
		return nil
	case VerdictAsk:
		consent := sdk.Consent{Scope: sdk.ScopeCall, By: []string{ev.Who}, Signed: c.Gate.Signed, Domains: c.asked()}
		if unmet := r.Terms.Unmet(consent, t.Head.Init.Who); len(unmet) > 0 {
			return editRefused(byRule("the policy asks for more than this decision gives", r.Rule), strings.Join(unmet, "; "))
		}
		return nil
	case VerdictDeny, VerdictBlock, VerdictSet:
	}
	return editRefused(byRule("the policy denies them", ev.Edited.Rule), ev.Edited.Reason)
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
		why += ": " + clip(detail, maxMessage)
	}
	return sdk.Errorf(sdk.CodeDecisionRefused, "the call cannot be made with the edited arguments, because %s", why)
}

func byRule(why, rule string) string {
	if rule == "" {
		return why
	}
	return why + " (" + rule + ")"
}
