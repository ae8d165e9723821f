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

// The model calls of a run count anew when it is taken up again, as its limit does, for whichever model is asked.
func TestInteractions_CountAnewWhenTheRunIsTakenUp(t *testing.T) {
	t.Parallel()
	first, last, only := sdk.Interactions{Max: 2}, sdk.Interactions{Current: 1, Max: 2, Exhausted: true}, sdk.Interactions{Max: 1, Exhausted: true}
	for name, c := range map[string]struct {
		plans bool
		most  int
		want  []sdk.Interactions
	}{
		"in a loop": {false, 2, []sdk.Interactions{first, last, first, last}},
		"of a plan": {true, 1, []sdk.Interactions{only, only}}, // its planner, and then its router
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
