package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// limited is the failure of a model that was asked too much at once.
var limited = &sdk.Error{Code: sdk.CodeRateLimited, Message: "too many requests", Retryable: true}

// planned is a run that plans with these models, up to where it waits.
func planned(t *testing.T, a *talk, planner, router generate) (*runner.Runner, []core.Entry) {
	t.Helper()
	a.agent.Core.Planning, a.agent.ModelKey, a.agent.Core.MaxTurns = &core.Planning{}, "m", 20
	a.agent.Parks, a.agent.Definitions = []sdk.Code{sdk.CodeRateLimited}, []sdk.ToolDefinition{{Name: "inline"}}
	a.agent.Planning = &runner.Planning{
		Planner: runner.Role{Model: planner}, Router: runner.Role{Model: router}, Synthesizer: runner.Role{Model: planner}, Form: planning.CallsForm,
	}
	r := a.worker()
	process(t, r, "order 7", starts, `{}`)
	return r, journal(t, r, "order 7")
}

// Of the calls that are chosen at once those are made that were chosen, whatever becomes of the others: these stay to be chosen. What was
// paid for choices that came to nothing counts.
func TestRoute_KeepsWhatWasChosen(t *testing.T) {
	t.Parallel()
	cost := sdk.Usage{Prompt: 1000, Completion: 10}
	asked := map[string]int{}
	a := newTalk(t)
	r, entries := planned(t, a, func(sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{Usage: cost, Text: `plan.add_step(step=1, text="do alpha") plan.add_step(step=2, text="do beta")`}, nil
	}, func(req sdk.ModelRequest) (sdk.ModelReply, error) {
		_, step, _ := strings.Cut(req.Messages[0].PlainText(), "Step: ")
		step, _, _ = strings.Cut(step, "\n")
		switch asked[step]++; {
		case step == "do alpha":
			return sdk.ModelReply{Usage: cost, Calls: []sdk.ToolRequest{{Name: "inline", Arguments: `{}`}}}, nil
		case asked[step]%2 == 1:
			return sdk.ModelReply{Usage: cost, Text: "Which tool?"}, nil // it is asked once more
		}
		return sdk.ModelReply{}, limited
	})
	last := entries[len(entries)-1].Head
	if got := fmt.Sprint(last.Plan.Steps[0].Status, " ", last.Plan.Steps[1].Status); got != "done planned" || last.Parked == nil {
		t.Fatalf("the steps are %s, and the run is parked for %+v", got, last.Parked)
	}
	if diff := cmp.Diff(map[string]int{"do alpha": 1, "do beta": 4}, asked); diff != "" {
		t.Errorf("routers are asked, -want +got:\n%s", diff)
	}
	// The planner, a call that was chosen, and two answers that were none: one beside it, one before the run was parked.
	if want := (sdk.Usage{Prompt: 4000, Completion: 40}); last.Usage != want {
		t.Errorf("it has used %+v, want %+v", last.Usage, want)
	}
	process(t, r, "order 7", wire.Address{Kind: wire.KindCtl, Verb: wire.ControlUnpark}, `{}`)
	entries = journal(t, r, "order 7")
	if got, want := entries[len(entries)-1].Head.Usage.Prompt, int64(5000); got != want {
		t.Errorf("tried again, it has used %d tokens of prompts, want %d", got, want)
	}
}

// A plan that could be a better one is followed when the planner cannot be asked again.
func TestPlanner_ThatFailsOnceMoreIsTakenAtItsWord(t *testing.T) {
	t.Parallel()
	asked := 0
	a := newTalk(t)
	a.agent.BuildContext = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		return sdk.Context{Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Find a flight to Paris, and then book it.")}}, nil
	}
	_, entries := planned(t, a, func(sdk.ModelRequest) (sdk.ModelReply, error) {
		if asked++; asked == 2 {
			return sdk.ModelReply{}, limited
		}
		return sdk.ModelReply{Usage: sdk.Usage{Prompt: 1000}, Text: `plan.add_step(step=1, text="do all")`}, nil
	}, func(sdk.ModelRequest) (sdk.ModelReply, error) { return sdk.ModelReply{}, limited })
	last := entries[len(entries)-1].Head
	if asked != 2 || last.Plan == nil || len(last.Plan.Steps) != 1 || last.Usage.Prompt != 1000 {
		t.Errorf("the planner was asked %d times, the plan is %+v and the run has used %+v", asked, last.Plan, last.Usage)
	}
}
