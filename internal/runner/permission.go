package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/toolpattern"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// required are the tool patterns that an init event puts under permission. It can only ask for more than the policy does,
// so nobody gains anything by claiming it.
func required(ev wire.Event) ([]string, *sdk.Error) {
	value, given := ev.Extensions[wire.RequirePermission]
	text, ok := value.(string)
	if given && !ok {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the attribute %s must be a text with patterns of tool names, separated by commas", wire.RequirePermission)
	}
	patterns := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if err := checkPatterns(patterns); err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the attribute %s: %s", wire.RequirePermission, sdk.AsError(err).Message)
	}
	return patterns, nil
}

// checkPatterns refuses patterns of tools that a run puts under permission and that nobody can read: they would ask for nothing.
func checkPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if err := toolpattern.Check(pattern); err != nil {
			return err
		}
	}
	return nil
}

// rule has the hooks and the agent's policy rule on the calls of an admission. Whatever goes wrong denies the call: only the end of ctx
// is an error.
func (a *activation) rule(ctx context.Context, s *hookEffects, admission *core.Admission) error {
	for i := range admission.Calls {
		c := &admission.Calls[i]
		if !c.NeedsRuling() {
			continue
		}
		err := a.ruleOn(ctx, s, admission, i)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		a.Logger.ErrorContext(ctx, "permission could not be checked, so the call is denied", "run", a.state.Run, "tool", c.Tool, "error", err)
		admission.Rule(i, core.Ruling{Verdict: core.VerdictDeny, Reason: "its permission could not be checked"})
	}
	return nil
}

// ruleOn rules on the i-th call of an admission. What the run's grants do not decide, a wider grant does, or people are asked.
func (a *activation) ruleOn(ctx context.Context, s *hookEffects, admission *core.Admission, i int) error {
	c := &admission.Calls[i]
	check := a.permissionCheck(&a.state.Head, c)
	ruling, err := a.ruling(ctx, s, check)
	if err != nil || !admission.Rule(i, ruling) {
		return err
	}
	check.Terms = ruling.Terms
	grant, err := guarded(func() (string, error) { return a.agent.Permissions.Reserve(ctx, check) })
	switch {
	case err != nil:
		return fmt.Errorf("look for a grant for %s: %w", c.ID, err)
	case grant != "":
		admission.Grant(i, grant)
		return nil
	}
	request, err := a.permissionRequest(ctx, check, &ruling)
	if err == nil {
		admission.Ask(i, request)
	}
	return err
}

// ruling is what the hooks and the policy make of a call.
func (a *activation) ruling(ctx context.Context, s *hookEffects, check sdk.PermissionCheck) (core.Ruling, error) {
	gate, by, err := a.judge(ctx, s, sdk.ToolAttempt{Call: check.Call, Tool: check.Tool, Args: check.Args})
	if err != nil || gate.Verdict == sdk.GateBlock {
		return core.Ruling{Verdict: core.VerdictBlock, Reason: gate.Reason}, err
	}
	r, err := guarded(func() (sdk.PermissionRuling, error) { return a.agent.Permissions.Check(ctx, check) })
	if err != nil {
		return core.Ruling{}, fmt.Errorf("check permission of %s: %w", check.Call, err)
	}
	if r.Verdict == sdk.PermissionAllow && gate.Verdict == sdk.GateSuspend {
		r = askedByHook(gate, by)
	}
	if len(a.state.Undo) > 0 && r.Terms.Mode == sdk.PermissionRetry {
		r.Terms.Mode = sdk.PermissionHold // no model is there to call again
	}
	ruling := rulingOf(&r)
	if gate.Verdict == sdk.GateResult {
		ruling.Result = gate.Result
		if ruling.Verdict == core.VerdictAllow {
			ruling.Verdict = core.VerdictSet
		}
	}
	return ruling, nil
}

// rulingOf is a ruling of the policy as the core takes it. A verdict that nobody knows denies.
func rulingOf(r *sdk.PermissionRuling) core.Ruling {
	ruling := core.Ruling{Verdict: core.VerdictDeny, Reason: r.Reason, Rule: r.Rule, Terms: r.Terms}
	switch r.Verdict {
	case sdk.PermissionAllow:
		ruling.Verdict = core.VerdictAllow
	case sdk.PermissionAsk:
		ruling.Verdict = core.VerdictAsk
	case sdk.PermissionDeny:
	}
	return ruling
}

// rulingsOf has the policy rule on what a decision says of each request that it is about.
func (a *activation) rulingsOf(ctx context.Context, c *core.Call, attempt int, d *sdk.PermissionDecision) ([]core.DecisionRulings, error) {
	decisions, _ := a.head.DecidedRequests(c, attempt, d) // the core records a refusal
	all := make([]core.DecisionRulings, 0, len(decisions))
	for _, r := range decisions {
		if r.Request.Closed() {
			continue
		}
		rulings := core.DecisionRulings{Request: r.Request.ID}
		var err error
		if rulings.Edit, err = a.admitEdit(ctx, r.Request, &r.PermissionDecision); err != nil {
			return nil, err
		}
		if rulings.Now, err = a.ruleNow(ctx, r, rulings.Edit); err != nil {
			return nil, err
		}
		all = append(all, rulings)
	}
	return all, nil
}

// admitEdit admits the call of a request as a decision wants it made, and asks the agent's policy about it. It is nil when the decision
// edits nothing. When the policy cannot be asked, nothing rules on it.
func (a *activation) admitEdit(ctx context.Context, request *core.Call, d *sdk.PermissionDecision) (*core.EditAdmission, error) {
	var held json.RawMessage
	if len(d.Args) > 0 && request.Permission != nil && a.agent.Core.SetsOf(request.Tool) {
		var err error
		if held, err = a.argsOf(ctx, request); err != nil {
			return nil, err
		}
	}
	admission := core.AdmitEdit(a.agent.Core, request, d, held)
	if admission == nil || !admission.Call.NeedsRuling() {
		return admission, nil
	}
	check := a.permissionCheck(&a.head, &admission.Call)
	r, err := guarded(func() (sdk.PermissionRuling, error) { return a.agent.Permissions.Check(ctx, check) })
	switch {
	case err == nil:
		admission.Rule(rulingOf(&r))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("check the edited arguments of %s: %w", check.Call, err)
	default:
		a.Logger.ErrorContext(ctx, "edited arguments could not be checked, so the decision is refused",
			"run", a.head.Run, "tool", check.Tool, "error", err)
	}
	return admission, nil
}

// ruleAgainOn rules once more on a call that was held and is allowed, whose question is answered or whose turn has come, when it is about
// to be made: that may be long after people decided, or its round was planned. The result is set when it is not to be made.
func (a *activation) ruleAgainOn(ctx context.Context, s *hookEffects, c core.Call) (*core.Result, error) {
	if c.Status != core.CallResuming || a.isReview(c.Tool) {
		return nil, nil
	}
	args, _ := a.state.Arguments(c.ID)
	consent, held := a.state.Consent(c.ID)
	if held || c.Asked != "" {
		if closed, err := a.gated(ctx, s, c, args); closed != nil || err != nil {
			return closed, err
		}
	}
	if !a.agent.Core.RulesOn(&a.state.Head) {
		return nil, nil
	}
	why, err := a.forbidden(ctx, &core.AdmittedCall{ID: c.ID, Tool: c.Tool, Args: args}, consent, held)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		a.Logger.ErrorContext(ctx, "permission could not be checked, so the call is denied", "run", a.state.Run, "tool", c.Tool, "error", err)
		why = "its permission could not be checked"
	}
	if why == "" {
		return nil, nil
	}
	denied := core.Denied(c, why)
	return &denied, nil
}

// gated asks the hooks about a call that is resumed. The result is set when they keep it from being made.
func (a *activation) gated(ctx context.Context, s *hookEffects, c core.Call, args json.RawMessage) (*core.Result, error) {
	g, _, err := a.judge(ctx, s, sdk.ToolAttempt{Call: c.ID, Tool: c.Tool, Args: args, Resumed: true})
	switch {
	case err != nil:
		return nil, err
	case g.Verdict == sdk.GateResult:
		return &core.Result{Call: c.ID, Kind: core.ResultSet, Data: g.Result}, nil
	case g.Verdict == sdk.GateBlock || g.Verdict == sdk.GateSuspend:
		e := sdk.Errorf(sdk.CodeBlocked, "%s", cmp.Or(g.Reason, c.Tool+" is blocked"))
		return &core.Result{Call: c.ID, Kind: core.ResultBlocked, Data: core.FailureData(e), Error: true}, nil
	}
	return nil, nil
}

// forbidden says why the policy, as it is now, does not let a call be made; empty when it does. held says that the call was held, and
// consent what was allowed of it; any other is asked for only where a grant allowed it when its round was planned.
func (a *activation) forbidden(ctx context.Context, p *core.AdmittedCall, consent sdk.Consent, held bool) (string, error) {
	check := a.permissionCheck(&a.state.Head, p)
	r, err := guarded(func() (sdk.PermissionRuling, error) { return a.agent.Permissions.Check(ctx, check) })
	if err != nil {
		return "", fmt.Errorf("check permission of %s: %w", p.ID, err)
	}
	denial := a.agent.Core.Denial(&a.state.Head, p.Tool, p.Args, a.Env.Now())
	switch {
	case r.Verdict != sdk.PermissionAllow && r.Verdict != sdk.PermissionAsk:
		return cmp.Or(r.Reason, "the policy denies it"), nil
	case denial != nil && !held:
		return cmp.Or(denial.Reason, "such calls were denied before it could be made"), nil
	case r.Verdict == sdk.PermissionAllow:
		return "", nil
	}
	if !held {
		grant := a.state.GrantOf(p.ID)
		switch {
		case grant == nil:
			check.Terms = r.Terms
			wider, err := guarded(func() (string, error) { return a.agent.Permissions.Reserve(ctx, check) })
			if wider == "" && err == nil {
				return "it needs permission by now; call it again to ask for it", nil
			}
			return "", err
		case grant.Expires > 0 && grant.Expires <= a.Env.Now():
			return "its permission expired before it could be made; call it again to ask for it", nil
		}
		consent = grant.Consent()
	}
	if unmet := r.Terms.Unmet(consent, a.state.Init.Who); len(unmet) > 0 {
		return "what was allowed is not enough by now: " + strings.Join(unmet, "; "), nil
	}
	return "", nil
}

// ruleNow is what the policy says of the call that a decision allows while the run's driver is at work, which may take long; nil leaves it
// to the driver. Only the end of ctx is an error.
func (a *activation) ruleNow(ctx context.Context, r core.RequestDecision, edit *core.EditAdmission) (*core.Ruling, error) {
	gates := slices.ContainsFunc(a.agent.Phases, func(h sdk.Hook) bool { return h.BeforeToolExecute != nil })
	if r.Decision != sdk.DecisionAllow || a.head.Status != core.StatusRunning || gates || r.Request.Type == sdk.TypePlanReview {
		return nil, nil
	}
	if edit != nil {
		return edit.Ruling(), nil
	}
	ruling, err := a.rulingNow(ctx, r.Request)
	if err != nil && ctx.Err() == nil {
		a.Logger.WarnContext(ctx, "permission could not be checked, so the call waits for the run's driver", "run", a.head.Run, "error", err)
		return nil, nil
	}
	return ruling, err
}

func (a *activation) rulingNow(ctx context.Context, request *core.Call) (*core.Ruling, error) {
	args, err := a.argsOf(ctx, request)
	if err != nil {
		return nil, err
	}
	check := a.permissionCheck(&a.head, &core.AdmittedCall{ID: request.Permission.Call, Tool: request.Tool, Args: args})
	r, err := guarded(func() (sdk.PermissionRuling, error) { return a.agent.Permissions.Check(ctx, check) })
	if err != nil {
		return nil, fmt.Errorf("check permission of %s: %w", check.Call, err)
	}
	ruling := rulingOf(&r)
	return &ruling, nil
}

// argsOf are the arguments of the call that a request is about, as its model wrote them. The head has their hash, so the one entry that has them
// is read, whatever the store shows of the others.
func (a *activation) argsOf(ctx context.Context, request *core.Call) (json.RawMessage, error) {
	call := request.Permission.Call
	for range mostStaleReads {
		entries, err := a.part(ctx, a.head.OpenedBy(call), 1)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			args, known := entries[0].CallData(core.Effect{Call: call}, &a.head)
			if known && sdk.ArgsHash(args) == request.Permission.ArgsHash {
				return args, nil
			}
		}
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("run %s: the entry that opened call %s is not to be read, only another one, or none, in its place", a.key, call)
}

// askedByHook is the ruling of a hook that suspends a call.
func askedByHook(gate sdk.Gate, hook string) sdk.PermissionRuling {
	terms := gate.Terms
	terms.Mode = sdk.PermissionHold
	if len(terms.Stages) == 0 {
		terms.Stages = []sdk.PermissionStage{{
			Domain: sdk.HumanDomain, TimeoutMillis: sdk.DefaultPermissionTimeout.Milliseconds(),
		}}
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Reason: gate.Reason, Rule: "hook " + hook, Terms: terms}
}

func (a *activation) permissionCheck(h *core.Head, p *core.AdmittedCall) sdk.PermissionCheck {
	check := a.agent.Describe(p.Tool)
	check.Agent, check.Run, check.Call = h.Agent, h.Run, p.ID
	check.AccessControl, check.Initiator, check.DelegatedBy = h.Init.AccessControl, h.Init.Who, h.Init.DelegatedBy
	check.Tool, check.Args, check.Require = p.Tool, p.Args, h.Require
	return check
}

// permissionRequest is the data of the event that asks for permission.
func (a *activation) permissionRequest(ctx context.Context, c sdk.PermissionCheck, r *core.Ruling) (json.RawMessage, error) {
	request := sdk.PermissionRequest{
		Agent: c.Agent, Run: c.Run, Call: c.Call, Tool: c.Tool, Type: c.Type, Schema: c.Schema, Args: c.Args,
		ArgsHash: sdk.ArgsHash(c.Args), Parameters: c.Parameters, Labels: c.Labels, Mode: r.Terms.Mode, Reason: r.Reason,
		Risk: r.Terms.Risk, Rule: r.Rule, Policy: a.state.Spec, Initiator: c.Initiator, DelegatedBy: c.DelegatedBy,
		Scopes: r.Terms.Scopes, Quorum: max(r.Terms.Quorum, 1), FourEyes: r.Terms.FourEyes, Approvers: r.Terms.Approvers,
		Signed: r.Terms.Signed, RemindMillis: r.Terms.RemindMillis,
		Results: r.Terms.OffersResult(),
	}
	if !slices.Contains(request.Scopes, sdk.ScopeCall) {
		request.Scopes = append([]sdk.GrantScope{sdk.ScopeCall}, request.Scopes...)
	}
	built, err := guarded(func() (sdk.PermissionRequest, error) { return a.agent.Permissions.Request(ctx, c, request) })
	if err != nil {
		return nil, fmt.Errorf("build the permission request of %s: %w", c.Call, err)
	}
	// What a decision binds to is not the builder's to change.
	built.Call, built.Tool, built.Args, built.ArgsHash, built.Mode = c.Call, c.Tool, c.Args, request.ArgsHash, request.Mode
	built.Results = request.Results
	if built.Answer, err = answerSchema(&built, r.Terms.Batch); err != nil {
		return nil, err
	}
	data, err := core.EncodeJSON(built)
	if err != nil {
		return nil, fmt.Errorf("encode the permission request of %s: %w", c.Call, err)
	}
	return wire.Canonicalize(data)
}

// recordGrant hands a grant wider than the run to the manager.
func (a *activation) recordGrant(ctx context.Context, e *core.Entry, f core.Effect) error {
	i := slices.IndexFunc(e.Records, func(g sdk.GrantRecord) bool { return g.ID == f.Call })
	if i < 0 {
		return fmt.Errorf("%w: entry %d has no grant of request %s", ErrCorrupt, e.Rev, f.Call)
	}
	_, err := guarded(func() (struct{}, error) { return struct{}{}, a.agent.Permissions.Record(ctx, e.Records[i]) })
	return err
}

// cleanUp tells the manager that the run has ended, unless it was retried since. That it cannot clean up is its operator's business, not
// the run's.
func (a *activation) cleanUp(ctx context.Context, e *core.Entry) error {
	if a.head.Generation().Token != e.Head.Generation().Token {
		return nil
	}
	_, err := guarded(func() (struct{}, error) { return struct{}{}, a.agent.Permissions.Cleanup(ctx, e.Head.Run) })
	if err != nil && ctx.Err() == nil {
		a.Logger.ErrorContext(ctx, "permissions could not be cleaned up", "run", e.Head.Run, "error", err)
		return nil
	}
	return err
}
