package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The principals: one starts runs, all may be asked to decide.
var principals = [...]string{"ann", "bob", "cleo"}

// policy is what a version of an agent makes of its tools; a tool that is not in it is allowed. What is said of a tool after
// strict is said of calls with an argument "m".
type policy map[string]sdk.PermissionRuling

const strict = "strict "

func (p policy) rule(tool string, args json.RawMessage) sdk.PermissionRuling {
	if r, ok := p[strict+tool]; ok && bytes.Contains(args, []byte(`"m"`)) {
		return r
	}
	if r, ok := p[tool]; ok {
		return r
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAllow}
}

// policies draws the policy of an agent: half of all agents have none.
func (s *simulation) policy(tools []string) policy {
	if s.pick(2) == 0 {
		return nil
	}
	p := policy{}
	common := s.terms()
	common.Batch = s.pick(2) == 0
	for _, tool := range tools {
		switch s.pick(6) {
		case 0, 1, 2:
			p[tool] = sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: common}
			if s.pick(2) == 0 {
				p[tool] = sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: s.terms()}
			}
			if s.pick(2) == 0 {
				p[strict+tool] = s.strict()
			}
		case 3:
			p[tool] = sdk.PermissionRuling{Verdict: sdk.PermissionDeny, Reason: "never"}
		}
	}
	return p
}

// strict is the ruling on calls that are more than others.
func (s *simulation) strict() sdk.PermissionRuling {
	terms := s.terms()
	switch s.pick(4) {
	case 0:
		return sdk.PermissionRuling{Verdict: sdk.PermissionDeny, Reason: "not so much"}
	case 1:
		terms.Stages[0].Domain = "the.boss"
	default:
		terms.Approvers = principals[2:]
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: terms}
}

func (s *simulation) terms() sdk.PermissionTerms {
	t := sdk.PermissionTerms{
		Mode: sdk.PermissionHold, Quorum: max(0, s.pick(5)-2), FourEyes: s.pick(6) == 0,
		Results: s.pick(3) == 0, Batch: s.pick(4) == 0,
		Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: s.patience()}},
	}
	if s.pick(3) == 0 {
		t.Mode = sdk.PermissionRetry
	}
	if s.pick(2) == 0 {
		t.Scopes = []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool, sdk.ScopePrincipal}[:2+s.pick(2)]
	}
	if s.pick(8) == 0 {
		t.Approvers = principals[1:]
	}
	if s.pick(4) == 0 {
		t.Stages = append(t.Stages, sdk.PermissionStage{Domain: "the.boss", TimeoutMillis: s.patience()})
	}
	return t
}

// patience is how long a stage waits: mostly long enough for an answer.
func (s *simulation) patience() int64 { return int64(1+s.pick(3)) * minute / 2 }

// manager is the permission manager of all workers, with grants that reach beyond runs. It is as durable as a store.
type manager struct {
	*simulation
	records  []sdk.GrantRecord
	reserved map[string]string
}

// gate is the manager with the policy of one version of an agent.
type gate struct {
	*manager
	policy policy
}

var _ sdk.PermissionManager = gate{}

// Check implements sdk.PermissionManager, as do the methods that follow.
func (g gate) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	if err := g.enter(ctx, atPermission); err != nil {
		return sdk.PermissionRuling{}, err
	}
	if g.strikes(permissionFails) {
		return sdk.PermissionRuling{}, errStore
	}
	return g.policy.rule(c.Tool, c.Args), nil
}

func (g gate) Reserve(ctx context.Context, c sdk.PermissionCheck) (string, error) {
	if err := g.enter(ctx, atPermission); err != nil {
		return "", err
	}
	if g.strikes(permissionFails) {
		return "", errStore
	}
	if id, ok := g.reserved[c.Call]; ok {
		return id, nil
	}
	for _, r := range g.records {
		if r.Agent == c.Agent && r.Principal == c.Initiator && r.Tool == c.Tool && len(c.Terms.Unmet(r.Consent(), c.Initiator)) == 0 {
			g.reserved[c.Call] = r.ID
			return r.ID, nil
		}
	}
	return "", nil
}

func (g gate) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	return r, nil
}

func (g gate) Record(ctx context.Context, record sdk.GrantRecord) error {
	if err := g.enter(ctx, atPermission); err != nil {
		return err
	}
	if g.strikes(permissionFails) {
		return errStore
	}
	for _, r := range g.records {
		if r.ID == record.ID {
			return nil
		}
	}
	g.records = append(g.records, record)
	return nil
}

func (g gate) Cleanup(ctx context.Context, _ string) error { return g.enter(ctx, atPermission) }

// guard puts an agent under a policy.
func (s *simulation) guard(a *runner.Agent) {
	names := make([]string, len(a.Core.Tools))
	for i, t := range a.Core.Tools {
		names[i] = t.Name
	}
	p := s.policy(names)
	if len(p) > 0 {
		s.gated(a, p)
	}
	if s.hooked {
		s.watch(a)
	}
}

// gated has the calls of an agent checked.
func (s *simulation) gated(a *runner.Agent, p policy) {
	a.Core.NeedsRulings, a.Core.PermissionSchema, a.Core.PermissionResultSchema = true, "#/permission/1.0.0", "#/permission/1.1.0"
	a.Permissions = gate{s.manager, p}
	a.Describe = func(string) sdk.PermissionCheck { return sdk.PermissionCheck{} }
	s.policies[a.Core.Digest] = p
	if s.pick(3) == 0 {
		a.Core.Hooked = true
		a.Phases = []sdk.Hook{{Name: "gate", BeforeToolExecute: s.judge}}
	}
}

// judge lets calls pass that were not held, and now and then blocks one that was: people may have taken their time.
func (s *simulation) judge(ctx context.Context, attempt sdk.ToolAttempt) (sdk.Gate, error) {
	if !attempt.Resumed {
		return sdk.Gate{}, nil
	}
	if err := s.enter(ctx, atTool); err != nil {
		return sdk.Gate{}, err
	}
	if s.pick(4) == 0 {
		return sdk.Gate{Verdict: sdk.GateBlock, Reason: "too late"}, nil
	}
	return sdk.Gate{}, nil
}

// ruling is what the policy of a spec makes of a call, for the audit.
func (s *simulation) ruling(spec, tool string, args json.RawMessage) sdk.PermissionRuling {
	return s.policies[spec].rule(tool, args)
}

// asked are people who see a permission request: one decides, or as many as it takes, now and then too few, more than once,
// or wrongly.
func (s *simulation) asked(call wire.CallAddress, ev wire.Event) {
	var r sdk.PermissionRequest
	if err := json.Unmarshal(ev.Data, &r); err != nil {
		s.violate("I13", "permission request %s: %v", ev.ID, err)
		return
	}
	if s.strikes(serviceSilent) {
		return
	}
	s.view(call, ev, r)
	first := s.pick(len(principals))
	for n := range max(r.Quorum, 1) + s.pick(2) {
		who := principals[(first+n)%len(principals)]
		d := s.named(r, s.decide(r))
		delay := int64(s.pick(20_000))
		if s.strikes(serviceLate) {
			delay = int64(s.pick(2 * minute))
		}
		if s.strikes(decisionWrong) {
			wrong := d
			s.spoil(&wrong, &who)
			s.decided(call, ev, who, delay, wrong)
			delay += int64(s.pick(20_000))
		}
		s.decided(call, ev, who, delay, d)
		if s.strikes(serviceTwice) {
			s.decided(call, ev, who, delay+int64(s.pick(minute)), s.named(r, s.decide(r)))
		}
	}
}

// view plans that people have a look at a request, more than once now and then.
func (s *simulation) view(call wire.CallAddress, ev wire.Event, r sdk.PermissionRequest) {
	for range s.pick(3) {
		s.decided(call, ev, principals[s.pick(len(principals))], int64(s.pick(20_000)), sdk.PermissionDecision{
			Decision: sdk.DecisionViewed, ArgsHash: r.ArgsHash,
		})
	}
}

// decided plans a decision.
func (s *simulation) decided(call wire.CallAddress, ev wire.Event, who string, delay int64, d sdk.PermissionDecision) {
	data, err := json.Marshal(d)
	if err != nil {
		panic(fmt.Sprintf("sim: decision: %v", err))
	}
	a := wire.Event{
		ID: fmt.Sprintf("d-%d", s.rng.Uint32()), Source: "desk", Type: sdk.TypePermissionDecided, Subject: ev.Subject,
		ParentID: ev.ID, Data: data,
	}
	if s.strikes(serviceFails) {
		a.Type, a.Data = wire.ErrorType(ev.Type), json.RawMessage(`{}`)
	}
	subject := subjects.Reply(call)
	if who != "" {
		subject += "." + who
	}
	s.later(delay, func() {
		for range s.times(duplicate) {
			s.broker.send(subject, a)
		}
	})
}

// decide is a decision that counts.
func (s *simulation) decide(r sdk.PermissionRequest) sdk.PermissionDecision {
	d := sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: r.ArgsHash, Scope: r.Scopes[s.pick(len(r.Scopes))]}
	switch s.pick(10) {
	case 0:
		d.Decision = sdk.DecisionDeny
	case 1:
		d.Decision, d.Reason = sdk.DecisionAsk, "why?"
	case 2:
		if r.Mode == sdk.PermissionHold && r.Quorum == 1 {
			d.Scope, d.Args = sdk.ScopeCall, json.RawMessage([]string{`{ "n" : 7 }`, `{"m":1}`}[s.pick(2)])
			if r.Tool == sdk.ToolReviewPlan {
				d.Args = s.editPlan(r.Args)
			}
		}
	}
	if r.Results && s.pick(3) == 0 {
		return sdk.PermissionDecision{
			Decision: sdk.DecisionResult, ArgsHash: r.ArgsHash, Scope: sdk.ScopeCall, Result: json.RawMessage(`{"given":1}`),
		}
	}
	if r.Quorum > 1 && s.pick(2) == 0 {
		d.Scope = r.Scopes[len(r.Scopes)-1] // what all want is more than this call
		return d
	}
	if d.Scope == sdk.ScopeTool && s.pick(2) == 0 {
		d.Uses = 1 + s.pick(2)
	}
	if d.Scope == sdk.ScopeTool && s.pick(3) == 0 {
		d.ExpiresMillis = s.now + int64(s.pick(2*minute))
	}
	return d
}

// named has a decision on several calls say which: all, or some, each with what it says of it.
func (s *simulation) named(r sdk.PermissionRequest, d sdk.PermissionDecision) sdk.PermissionDecision {
	if len(r.Calls) == 0 {
		return d
	}
	if d.All = len(d.Args) == 0 && len(d.Result) == 0 && s.pick(2) == 0; d.All {
		return d
	}
	for _, c := range r.Calls {
		if s.pick(3) == 0 {
			continue
		}
		one := sdk.CallDecision{Call: c.Call, ArgsHash: c.ArgsHash, Args: d.Args, Result: d.Result}
		if s.pick(5) == 0 {
			one = sdk.CallDecision{Call: c.Call, ArgsHash: c.ArgsHash, Decision: sdk.DecisionDeny}
		}
		d.Calls = append(d.Calls, one)
	}
	d.ArgsHash, d.Args, d.Result = "", nil, nil
	return d
}

// spoil makes a decision one that mostly must not count.
func (s *simulation) spoil(d *sdk.PermissionDecision, who *string) {
	if len(d.Calls) > 0 && s.pick(2) == 0 {
		d.Calls = append([]sdk.CallDecision(nil), d.Calls...)
		d.Calls[0].ArgsHash = sdk.ArgsHash([]byte("other"))
		return
	}
	switch s.pick(7) {
	case 6:
		d.Decision, d.Result = sdk.DecisionResult, json.RawMessage(`{"given":2}`) // mostly it is not offered
	case 0:
		d.ArgsHash = sdk.ArgsHash([]byte("other"))
	case 1:
		d.Scope = [...]sdk.GrantScope{sdk.ScopeTool, sdk.ScopeToolPattern, sdk.ScopePrincipal}[s.pick(3)]
		d.Pattern = "true"
	case 2:
		d.Args = json.RawMessage(`{"bad":true}`)
	case 3:
		d.Decision = "perhaps"
	case 4:
		*who = ""
	case 5:
		*who = principals[0] // who starts runs
	}
}
