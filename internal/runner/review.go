package runner

import (
	"context"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/sdk"
)

// proposed is a plan that was made, with the tools that routers are offered for its steps, and the request that people approve it, where the
// agent wants that. Without a request nobody can, and the plan is not carried out.
func (a *activation) proposed(ctx context.Context, made core.Planned) (core.Event, error) {
	event, err := a.offerSteps(ctx, made)
	made, ok := event.(core.Planned)
	terms := a.agent.Planning.Review
	if err != nil || !ok || terms == nil || made.Fault != "" || len(made.Steps) == 0 {
		return event, err
	}
	if made.Review, err = core.AdmitReview(a.agent.Core, &a.state.Head, made.Steps, a.Env.Now()); err != nil {
		return nil, err
	}
	ruling := core.Ruling{Verdict: core.VerdictAsk, Reason: "the plan is approved before it is carried out", Terms: *terms}
	if !made.Review.Rule(0, ruling) {
		return made, nil // a grant of the run has decided it
	}
	check := a.permissionCheck(&a.state.Head, &made.Review.Calls[0])
	check.Type, check.Parameters, check.Labels = sdk.TypePlanReview, planning.ReviewSchema, sdk.ToolLabels{}
	request, err := a.permissionRequest(ctx, check, &ruling)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		a.Logger.ErrorContext(ctx, "nobody can be asked about a plan, so it is not approved", "run", a.state.Run, "error", err)
		return made, nil
	}
	made.Review.Ask(0, request)
	return made, nil
}

// isReview reports whether a call is a plan that people review.
func (a *activation) isReview(tool string) bool {
	return tool == sdk.ToolReviewPlan && a.agent.Planning != nil && a.agent.Planning.Review != nil
}
