package core

import (
	"encoding/json"

	"agentd/sdk"
)

// Plan is what a reply asks for: the calls that would be opened, and the tools of those that are dropped because others of
// the reply have a higher priority (seed 000).
type Plan struct {
	Calls   []Planned
	Dropped []string
}

// Planned is a call with its id. Refusal is set when it cannot be made; else Args are canonical and valid.
type Planned struct {
	ID, Tool string
	Args     json.RawMessage
	Refusal  *sdk.Error
}

// PlanRound says which calls Step will open for a reply to the run with that head.
func PlanRound(spec *Spec, head *Head, reply sdk.ModelReply) Plan {
	var plan Plan
	highest := spec.priority(reply.Calls[0].Name)
	for _, c := range reply.Calls[1:] {
		highest = max(highest, spec.priority(c.Name))
	}
	for _, request := range reply.Calls {
		if spec.priority(request.Name) < highest {
			plan.Dropped = append(plan.Dropped, request.Name)
			continue
		}
		plan.Calls = append(plan.Calls, spec.plan(head, len(plan.Calls), request))
	}
	return plan
}

func (s *Spec) priority(tool string) int {
	if t := s.tool(tool); t != nil {
		return t.Priority
	}
	return 0
}

func (s *Spec) plan(head *Head, index int, request sdk.ToolRequest) Planned {
	p := Planned{Tool: request.Name}
	if tool := s.tool(request.Name); tool == nil {
		p.Refusal = sdk.Errorf(sdk.CodeUnknownTool, "there is no tool %q", request.Name)
	} else if args, faults := tool.Validate(request.Arguments); len(faults) > 0 {
		p.Refusal = unfit(faults)
	} else {
		p.Args = args
	}
	if p.Refusal != nil {
		p.Args = asWritten(request.Arguments)
	}
	p.ID = sdk.CallID(head.Key(), head.Init.Token, head.Step+1, index, request.Name, p.Args)
	return p
}

func unfit(faults []sdk.Fault) *sdk.Error {
	return &sdk.Error{Code: sdk.CodeContractViolation, Message: "the arguments do not fit the tool", Faults: faults}
}
