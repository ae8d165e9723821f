package catalog

import (
	"encoding/json"
	"sync"

	"agentd/internal/contracts"
	"agentd/internal/core"
	"agentd/internal/expression"
	"agentd/internal/runner"
	"agentd/internal/signature"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// answers checks responses against the contracts that were called.
type answers struct {
	tools *toolbox.Toolbox
	asked
	keys signature.Keys
}

// asked are the contracts by which people are asked, which are the same for every agent.
type asked struct {
	turn, permission, question *contracts.Version
	// permissionResult is the contract of permission requests that offer to give the call's result, or ask for several calls.
	permissionResult *contracts.Version
	// review is the contract of requests to approve plans.
	review *contracts.Version
}

var compileAsked = sync.OnceValues(func() (a asked, err error) {
	for _, one := range []struct {
		compiled **contracts.Version
		contract sdk.Contract
		version  string
	}{
		{&a.turn, contracts.Conversation(), contracts.BuiltinVersion},
		{&a.permission, contracts.Permission(), contracts.BuiltinVersion},
		{&a.permissionResult, contracts.Permission(), contracts.PermissionResultVersion},
		{&a.review, contracts.PlanReview(), contracts.BuiltinVersion},
		{&a.question, contracts.Question(), contracts.BuiltinVersion},
	} {
		if *one.compiled, err = contracts.CompileVersion(one.contract, one.version); err != nil {
			return asked{}, err
		}
	}
	return a, nil
})

func newAnswers(tools *toolbox.Toolbox, keys signature.Keys) (*answers, error) {
	people, err := compileAsked()
	return &answers{tools, people, keys}, err
}

// check is runner.Agent.CheckAnswer. What a service answers wrongly is an error result for the model; what a person
// answers wrongly is refused, so that they can answer again.
func (a *answers) check(call core.Call, ev wire.Event, who string) (runner.Answer, *sdk.Error) {
	if ev.Type == wire.ErrorType(call.Type) {
		e := reported(ev)
		return runner.Answer{Data: core.FailureData(e), Error: true, Retryable: e.Retryable}, nil
	}
	data, problem := a.valid(call, ev)
	switch {
	case problem == nil && call.Kind == core.CallPermission:
		return a.decision(call, ev, who)
	case problem == nil:
		return runner.Answer{Data: data}, nil
	case call.Kind == core.CallPermission:
		return runner.Answer{}, problem
	case call.Type == sdk.TypeConversationTurn || call.Type == sdk.TypeQuestion:
		return runner.Answer{}, problem
	}
	return runner.Answer{Data: core.FailureData(problem), Error: true}, nil
}

func (a *answers) valid(call core.Call, ev wire.Event) (json.RawMessage, *sdk.Error) {
	var faults []sdk.Fault
	unknown := false
	if own := a.builtin(&call); own != nil {
		schema, ok := own.Emits[ev.Type]
		if unknown = !ok; ok {
			faults = schema.Validate(ev.Data)
		}
	} else if tool, ok := a.called(call); ok {
		if fault := checkSchemaRef(ev.DataSchema, tool.Contract.URI, tool.Version); fault != nil {
			faults = append(faults, *fault)
		}
		var found []sdk.Fault
		found, unknown = tool.Answer(ev.Type, ev.Data)
		faults = append(faults, found...)
	} else {
		return nil, sdk.Errorf(sdk.CodeContractMissing, "the contract of %s is not known any more", call.Tool)
	}
	if unknown {
		faults = append(faults, sdk.Fault{Path: "$.type", Expected: "a type that the contract emits", Got: ev.Type})
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the answer does not fit the contract of " + call.Type, Faults: faults,
		}
	}
	return ev.Data, nil
}

// called is what was called: a tool of the model, or a service that was asked for context.
func (a *answers) called(call core.Call) (*toolbox.Tool, bool) {
	if call.Kind == core.CallContext {
		return a.tools.ContextService(call.Section())
	}
	return a.tools.ByName(call.Tool)
}

// builtin is the contract of calls that the core makes of itself, or nil.
func (a *answers) builtin(call *core.Call) *contracts.Version {
	switch call.Kind {
	case core.CallTurn:
		return a.turn
	case core.CallPermission:
		if call.Type == sdk.TypePlanReview {
			return a.review
		}
		if call.Permission.Results || call.Permission.Batch != "" {
			return a.permissionResult
		}
		return a.permission
	case core.CallQuestion:
		return a.question
	case core.CallService, core.CallInline, core.CallContext:
	}
	return nil
}

// decision reads a decision on a permission request, or that somebody has seen it. What can be judged without the run is
// judged here: its signature and its pattern. The run records a refusal.
func (a *answers) decision(call core.Call, ev wire.Event, who string) (runner.Answer, *sdk.Error) {
	var d sdk.PermissionDecision
	if err := json.Unmarshal(ev.Data, &d); err != nil {
		return runner.Answer{}, sdk.Errorf(sdk.CodeContractViolation, "the decision cannot be read").WithCause(err)
	}
	answer := runner.Answer{Data: ev.Data, Decision: &d}
	if ev.Type == sdk.TypePermissionViewed {
		d.Decision = sdk.DecisionViewed
		return answer, nil
	}
	if d.Pattern != "" {
		if err := expression.CheckPattern(d.Pattern); err != nil {
			answer.Refused = sdk.AsError(err).Message
		}
	}
	var results []*json.RawMessage
	if d.Decision == sdk.DecisionResult && len(d.Calls) == 0 {
		results = append(results, &d.Result)
	}
	for i := range d.Calls {
		if len(d.Calls[i].Result) > 0 {
			results = append(results, &d.Calls[i].Result)
		}
	}
	for _, result := range results {
		var err error
		if *result, err = wire.Canonicalize(*result); err != nil {
			answer.Refused = "the result cannot be read: " + sdk.AsError(err).Message
		}
	}
	if call.Permission.Signed {
		key, err := a.keys.Verify(call.Domains, ev, who)
		if err != nil {
			answer.Refused = sdk.AsError(err).Message
		}
		answer.Key = key
	}
	return answer, nil
}

// reported is the error that a service reports, without what a model has no use for, such as its stack.
func reported(ev wire.Event) *sdk.Error {
	var p wire.Problem
	if err := json.Unmarshal(ev.Data, &p); err != nil || p.ErrorMessage == "" {
		p.ErrorMessage = "the service failed"
	}
	if p.Code == "" {
		p.Code = sdk.CodeTool
	}
	return &sdk.Error{Code: p.Code, Message: p.ErrorMessage, Retryable: p.Retryable, Faults: p.Faults}
}
