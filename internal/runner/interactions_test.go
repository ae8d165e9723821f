package runner_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// generate is a model that is a function.
type generate func(sdk.ModelRequest) (sdk.ModelReply, error)

func (f generate) Generate(_ context.Context, r sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	return f(r)
}

// A run that is taken up again may make as many model calls as before, and whichever model is asked is told so.
func TestInteractions_CountAnewWhenTheRunIsTakenUp(t *testing.T) {
	t.Parallel()
	inLoop := []sdk.Interactions{
		{Current: 0, Max: 2},
		{Current: 1, Max: 2, Exhausted: true},
		{Current: 2, Max: 4},
		{Current: 3, Max: 4, Exhausted: true},
	}
	ofPlan := []sdk.Interactions{{Max: 1, Exhausted: true}, {Current: 1, Max: 2, Exhausted: true}} // its planner, and then its router
	for name, c := range map[string]struct {
		plans bool
		most  int
		want  []sdk.Interactions
	}{
		"in a loop": {false, 2, inLoop},
		"of a plan": {true, 1, ofPlan},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTalk(t)
			var told []sdk.Interactions
			model := generate(func(r sdk.ModelRequest) (sdk.ModelReply, error) {
				told = append(told, r.Interactions)
				if r.Kind == sdk.TurnConversation {
					return sdk.ModelReply{Text: `plan.add_step(step=1, text="do it")`}, nil
				}
				return sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: "inline", Arguments: `{}`}}}, nil
			})
			a.agent.Model, a.agent.Core.MaxTurns = model, c.most
			a.agent.Definitions = []sdk.ToolDefinition{{Name: "inline"}}
			if c.plans {
				role := runner.Role{Model: model}
				a.agent.Core.Planning = &core.Planning{}
				a.agent.Planning = &runner.Planning{Planner: role, Router: role, Synthesizer: role, Form: planning.CallsForm}
			}
			r := a.worker()
			process(t, r, "order 7", starts, `{}`)
			process(t, r, "order 7", wire.Address{Kind: wire.KindCtl, Verb: wire.ControlRetry}, `{}`)
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
