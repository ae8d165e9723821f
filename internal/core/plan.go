package core

import (
	"encoding/json"
	"slices"

	"agentd/sdk/wire"

	"agentd/sdk"
)

// Plan is what a reply asks for: the calls that would be opened, and the tools of those that are dropped because others of
// the reply have a higher priority (seed 000), or because they are far beyond MaxRound.
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

// PlanRound says which calls Step will open for a reply to the run with that head. hidden are the tools that the model was not
// shown.
func PlanRound(spec *Spec, head *Head, reply sdk.ModelReply, hidden []string) Plan {
	var plan Plan
	highest := spec.priority(reply.Calls[0].Name)
	for _, c := range reply.Calls[1:] {
		highest = max(highest, spec.priority(c.Name))
	}
	for _, request := range reply.Calls {
		if spec.priority(request.Name) < highest || len(plan.Calls) == 2*MaxRound {
			plan.drop(request.Name)
			continue
		}
		plan.Calls = append(plan.Calls, spec.plan(head, len(plan.Calls), request, hidden))
	}
	return plan
}

func (p *Plan) drop(tool string) {
	if len(p.Dropped) < maxDropped {
		p.Dropped = append(p.Dropped, clip(tool, maxToolName))
	}
}

func (s *Spec) priority(tool string) int {
	if t := s.tool(tool); t != nil {
		return t.Priority
	}
	return 0
}

func (s *Spec) plan(head *Head, index int, request sdk.ToolRequest, hidden []string) Planned {
	p := Planned{Tool: clip(request.Name, maxToolName)}
	if p.Args, p.Refusal = s.admit(index, request, hidden); p.Refusal != nil {
		p.Args = asWritten(request.Arguments)
	}
	p.ID = wire.CallID(head.Key(), head.Init.Token, head.Step+1, index, p.Tool, p.Args)
	return p
}

// admit returns the canonical arguments of a call that can be made, or why it cannot.
func (s *Spec) admit(index int, request sdk.ToolRequest, hidden []string) (json.RawMessage, *sdk.Error) {
	tool := s.tool(request.Name)
	switch {
	case tool == nil:
		return nil, s.unknown(request.Name)
	case slices.Contains(hidden, tool.Name):
		return nil, sdk.Errorf(sdk.CodeUnknownTool, "%s cannot be used in this step", tool.Name)
	case index >= MaxRound:
		return nil, sdk.Errorf(sdk.CodeTooLarge, "at most %d calls are made at once; make this one when those have returned", MaxRound)
	case len(request.Arguments) > MaxArguments:
		return nil, sdk.Errorf(sdk.CodeTooLarge, "the arguments have %d bytes, more than %d", len(request.Arguments), MaxArguments)
	}
	args, faults := tool.Validate(request.Arguments)
	if len(faults) > 0 {
		return nil, unfit(faults)
	}
	return args, nil
}

// Away says why a tool cannot be called before its toolset answers; nil for every other.
func (s *Spec) Away(tool string) *sdk.Error {
	if s.Missing == nil || s.tool(tool) != nil {
		return nil
	}
	return s.Missing(tool)
}

func (s *Spec) unknown(tool string) *sdk.Error {
	if away := s.Away(tool); away != nil {
		return away
	}
	return sdk.Errorf(sdk.CodeUnknownTool, "there is no tool %q%s", clip(tool, maxToolName), s.toolNames())
}

// toolNames lists the tools that there are, in their order, for a model that named another.
func (s *Spec) toolNames() string {
	var names string
	for i := range s.Tools {
		if len(names) > maxToolNames {
			return "; there is " + names[2:] + ", …"
		}
		names += ", " + s.Tools[i].Name
	}
	if names == "" {
		return "; there are none"
	}
	return "; there is " + names[2:]
}

func unfit(faults []sdk.Fault) *sdk.Error {
	return &sdk.Error{Code: sdk.CodeContractViolation, Message: "the arguments do not fit the tool", Faults: faults}
}
