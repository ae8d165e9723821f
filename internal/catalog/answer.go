package catalog

import (
	"encoding/json"

	"agentd/internal/contracts"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
)

// answers checks responses against the contracts that were called.
type answers struct {
	toolbox *contracts.Toolbox
	turn    *contracts.Version
}

func newAnswers(toolbox *contracts.Toolbox) (*answers, error) {
	turn, err := contracts.CompileVersion(contracts.Conversation(), contracts.BuiltinVersion)
	if err != nil {
		return nil, err
	}
	return &answers{toolbox, turn}, nil
}

// check is runner.Agent.CheckAnswer. What a service answers wrongly is an error result for the model; what a person
// answers wrongly is refused, so that they can answer again.
func (a *answers) check(call core.Call, ev sdk.Event) (runner.Answer, *sdk.Error) {
	if ev.Type == sdk.ErrorType(call.Type) {
		e := reported(ev)
		return runner.Answer{Data: core.FailureData(e), Error: true, Retryable: e.Retryable}, nil
	}
	data, problem := a.valid(call, ev)
	switch {
	case problem == nil:
		return runner.Answer{Data: data}, nil
	case call.Kind == core.CallTurn || call.Type == sdk.TypeQuestion:
		return runner.Answer{}, problem
	}
	return runner.Answer{Data: core.FailureData(problem), Error: true}, nil
}

func (a *answers) valid(call core.Call, ev sdk.Event) (json.RawMessage, *sdk.Error) {
	var faults []sdk.Fault
	unknown := false
	if call.Kind == core.CallTurn {
		schema, ok := a.turn.Emits[ev.Type]
		if unknown = !ok; ok {
			faults = schema.Validate(ev.Data)
		}
	} else if tool, ok := a.toolbox.ByName(call.Tool); ok {
		if fault := checkSchemaRef(ev.DataSchema, tool.Contract.URI, tool.Version); fault != nil {
			faults = append(faults, *fault)
		}
		var found []sdk.Fault
		found, unknown = tool.Answer(ev.Type, ev.Data)
		faults = append(faults, found...)
	} else {
		return nil, sdk.Errorf(sdk.CodeContractMissing, "the contract of %s is no longer known", call.Tool)
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

// reported is the error that a service reports, without what a model has no use for, such as its stack.
func reported(ev sdk.Event) *sdk.Error {
	var p sdk.Problem
	if err := json.Unmarshal(ev.Data, &p); err != nil || p.ErrorMessage == "" {
		p.ErrorMessage = "the service failed"
	}
	if p.Code == "" {
		p.Code = sdk.CodeTool
	}
	return &sdk.Error{Code: p.Code, Message: p.ErrorMessage, Retryable: p.Retryable, Faults: p.Faults}
}
