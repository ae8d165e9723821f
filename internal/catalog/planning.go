package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/approval"
	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/runner"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// planning has the agent plan, where it says so.
func (c *Catalog) planning(compiled *runner.Agent, spec sdk.AgentSpec, tools *toolbox.Toolbox) error {
	if err := checkPlan(&spec); err != nil {
		return err
	}
	if !spec.Planned() {
		return nil
	}
	p := spec.Plan
	if p == nil {
		p = &sdk.PlanSpec{}
	}
	if p.Review != nil {
		if faults := approval.CheckTerms(*p.Review, "$.plan.review", c.surroundings); len(faults) > 0 {
			return &sdk.Error{Code: sdk.CodeConfig, Message: "plans cannot be approved like this", Faults: faults}
		}
	}
	compiled.Core.Planning = &core.Planning{Replans: p.MostReplans()}
	if p.Review != nil {
		reviewed(compiled)
	}
	compiled.Planning = &runner.Planning{Form: planForm(cmp.Or(p.Planner, &spec.Model), &spec.Model), Templates: p.Templates, Skips: map[string]bool{sdk.ToolUpdatePlan: true, toolbox.TaskCompletion: true}}
	if p.Review != nil {
		terms := reviewTerms(*p.Review)
		compiled.Planning.Review = &terms
	}
	for _, t := range tools.All() {
		if t == tools.ReadMore() || t.Finds {
			compiled.Planning.Skips[t.Name] = true
		}
	}
	for _, role := range []struct {
		is   *runner.Role
		spec *sdk.ModelSpec
	}{
		{&compiled.Planning.Planner, p.Planner}, {&compiled.Planning.Router, p.Router}, {&compiled.Planning.Synthesizer, p.Synthesizer},
	} {
		var err error
		if *role.is, err = c.role(compiled, spec, role.spec); err != nil {
			return err
		}
	}
	return nil
}

// planForm is how those models are asked to write plans, of which the later stand in for the first: as structured output, unless one of them
// writes its calls into its text.
func planForm(models ...*sdk.ModelSpec) *planning.Form {
	native := func(m *sdk.ModelSpec) bool { return cmp.Or(m.ToolCalls, sdk.ToolCallsNative) == sdk.ToolCallsNative }
	for _, m := range models {
		if !native(m) || slices.ContainsFunc(m.Fallback, func(m sdk.ModelSpec) bool { return !native(&m) }) {
			return planning.CallsForm
		}
	}
	return planning.JSONForm
}

// reviewTerms are the terms under which people approve plans.
func reviewTerms(t sdk.PermissionPolicyTerms) sdk.PermissionTerms {
	t.Mode, t.Scopes, t.Results, t.Batch = sdk.PermissionHold, nil, false, false
	return approval.Terms(t)
}

// reviewed gives the agent the tool that plans are called by which people approve. It hands the plan back.
func reviewed(compiled *runner.Agent) {
	compiled.Core.ReviewSchema = reviewSchema
	compiled.Core.Tools = append(compiled.Core.Tools, core.Tool{
		Name: sdk.ToolReviewPlan, Kind: core.CallInline, Recalls: true, Reviews: planning.ReadReviewed, Validate: validPlan,
	})
	compiled.Inline[sdk.ToolReviewPlan] = sdk.Tool{
		Definition: sdk.ToolDefinition{Name: sdk.ToolReviewPlan, Parameters: planning.ReviewSchema},
		Run:        func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) { return call.Args, nil },
	}
}

// validPlan is a plan as people have written it, in canonical form, or what is wrong with it.
func validPlan(written string) (json.RawMessage, []sdk.Fault) {
	data, err := wire.Canonicalize(json.RawMessage(written))
	if err == nil {
		_, err = planning.ReadReviewed(data)
	}
	if err != nil {
		return nil, []sdk.Fault{{Path: "$", Expected: "a plan", Got: err.Error()}}
	}
	return data, nil
}

// role is a model of planning. The agent's own stands in for it, so that a run waits for its own model alone.
func (c *Catalog) role(compiled *runner.Agent, agent sdk.AgentSpec, spec *sdk.ModelSpec) (runner.Role, error) {
	own := agent.Model
	if spec == nil {
		return runner.Role{Model: compiled.Model, Name: own.Name}, nil
	}
	own.Follow, own.Park = "", nil
	with := *spec
	with.Fallback = append(slices.Clip(with.Fallback), own)
	provider, err := timedModels(c.models, agent)(with)
	return runner.Role{Model: provider, Name: spec.Name}, err
}

// checkPlan says what of a plan's configuration cannot be.
func checkPlan(spec *sdk.AgentSpec) error {
	fault := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeConfig, format, args...) }
	switch {
	case spec.Mode != "" && spec.Mode != sdk.ModeLoop && spec.Mode != sdk.ModePlan:
		return fault("mode: want %s or %s, got %q", sdk.ModeLoop, sdk.ModePlan, spec.Mode)
	case spec.Plan == nil:
		return nil
	case !spec.Planned():
		return fault("plan: it has no effect; say mode: plan as well")
	}
	var faults []error
	if n := spec.Plan.MostReplans(); n < 0 || n > sdk.MaxReplans {
		faults = append(faults, fault("plan: replans: want 0 to %d, got %d", sdk.MaxReplans, n))
	}
	for i := range spec.Plan.Templates {
		t := &spec.Plan.Templates[i]
		if t.Name == "" || t.Name == core.PlannedByModel {
			faults = append(faults, fault("plan: template %d: want a name other than %q", i+1, core.PlannedByModel))
		}
		if len(t.Keywords) == 0 || slices.ContainsFunc(t.Keywords, func(group []string) bool { return len(group) == 0 }) {
			faults = append(faults, fault("plan: template %s: want groups of keywords, each with a word at least", t.Name))
		}
		if _, err := planning.FromTemplate(t, 1); err != nil {
			faults = append(faults, fmt.Errorf("plan: template %s: %w", t.Name, fault("%s", err)))
		}
	}
	return errors.Join(faults...)
}
