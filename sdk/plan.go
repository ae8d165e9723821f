package sdk

import "cmp"

// Mode is how an agent goes about its work.
type Mode string

// The modes.
const (
	// ModeLoop asks the model again and again, with the results of the calls that it makes, until it answers.
	ModeLoop Mode = "loop"
	// ModePlan has a plan made first, a call chosen for each of its steps, and the answer written of the results.
	ModePlan Mode = "plan"
)

// How often a plan with failed steps is replaced.
const (
	DefaultReplans = 2
	MaxReplans     = 5
)

// PlanSpec says who plans and how, of an agent of ModePlan. Each model is the agent's own where it is nil, and the agent's own stands in for
// each when it and its fallbacks do not answer.
type PlanSpec struct {
	// Planner makes plans, Router chooses the call of a step, and Synthesizer writes the answer.
	Planner     *ModelSpec `json:"planner,omitempty"`
	Router      *ModelSpec `json:"router,omitempty"`
	Synthesizer *ModelSpec `json:"synthesizer,omitempty"`
	// Replans is how often a plan with failed steps is replaced by another one; nil is DefaultReplans.
	Replans *int `json:"replans,omitempty"`
	// Review asks people to approve plans before they are carried out, under these terms; nil asks nobody. Mode, Scopes,
	// Results and Batch have no effect: each plan is decided by itself, and held until then.
	Review *PermissionPolicyTerms `json:"review,omitempty"`
	// Templates are plans for requests that are known, made without a model.
	Templates []PlanTemplate `json:"templates,omitempty"`
}

// PlanTemplate is the plan for requests that have a word of each group of Keywords. Of several, the one with the most groups is taken.
type PlanTemplate struct {
	Name     string         `json:"name"`
	Keywords [][]string     `json:"keywords"`
	Steps    []TemplateStep `json:"steps"`
}

// TemplateStep is a step of a PlanTemplate. Text says what is to be done, Tool which tool or server may do it, and After which steps, by their
// places from 1, it needs the results of. When is a condition over results of steps before it, without which the step is skipped, and Each a
// list in them, for each element of which it is done: expressions in CEL, which call the result of step 1 step1.
type TemplateStep struct {
	Text  string `json:"text"`
	Tool  string `json:"tool,omitempty"`
	After []int  `json:"after,omitempty"`
	When  string `json:"when,omitempty"`
	Each  string `json:"each,omitempty"`
}

// Models are those of the roles that are not the agent's own, by the names of their roles.
func (p *PlanSpec) Models() map[string]*ModelSpec {
	models := map[string]*ModelSpec{}
	if p == nil {
		return models
	}
	for role, m := range map[string]*ModelSpec{"planner": p.Planner, "router": p.Router, "synthesizer": p.Synthesizer} {
		if m != nil {
			models[role] = m
		}
	}
	return models
}

// MostReplans is how often a plan is replaced.
func (p *PlanSpec) MostReplans() int {
	if p == nil || p.Replans == nil {
		return DefaultReplans
	}
	return *p.Replans
}

// Planned reports whether the agent plans.
func (s *AgentSpec) Planned() bool { return cmp.Or(s.Mode, ModeLoop) == ModePlan }

// ToolReviewPlan is what a plan is called that people review: the tool of the request, whose arguments are the plan. No model calls it.
const ToolReviewPlan = "agentd_plan"
