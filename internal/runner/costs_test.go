package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A run uses no more tokens than it has but for the call with which it uses them up, also where one turn makes many calls: each is told what
// those before have left.
func TestBudget_HoldsWithinATurn(t *testing.T) {
	t.Parallel()
	var told []int64
	a := newTalk(t)
	a.agent.Core.MaxTokens = 4500
	says := func(text string) generate {
		return func(req sdk.ModelRequest) (sdk.ModelReply, error) {
			told = append(told, req.Tokens)
			return sdk.ModelReply{Usage: sdk.Usage{Prompt: 900, Completion: 100}, Text: text}, nil
		}
	}
	_, entries := planned(t, a, says(listOf(40)), says("Which tool?"))
	last := entries[len(entries)-1].Head
	if diff := cmp.Diff([]int64{4500, 3500, 2500, 1500, 500}, told); diff != "" {
		t.Errorf("models are told that so much is left, -want +got:\n%s", diff)
	}
	if last.Termination() != "quota:tokens" || last.TokensLeft() != -500 {
		t.Errorf("the run ends with %s, and %d tokens left", last.Termination(), last.TokensLeft())
	}
}

// A summariser is not asked for what no tokens are left for, nor a planner once more.
func TestBudget_EndsWhatIsAskedForInParts(t *testing.T) {
	t.Parallel()
	asked, compacted := 0, false
	spends := generate(func(sdk.ModelRequest) (sdk.ModelReply, error) {
		asked++
		return sdk.ModelReply{Usage: sdk.Usage{Prompt: 1000}, Text: "words"}, nil
	})
	planner := newTalk(t)
	planner.agent.Core.MaxTokens = 1000
	_, entries := planned(t, planner, spends, spends)
	if last := entries[len(entries)-1].Head; asked != 1 || last.Usage.Prompt != 1000 || last.Termination() != "quota:tokens" {
		t.Errorf("the planner is asked %d times, and the run ends with %s after %+v", asked, last.Termination(), last.Usage)
	}
	asked = 0
	a := newTalk(t)
	a.agent.Core.MaxTokens, a.agent.Summarizer = 1500, spends
	a.agent.Remember = func(summary, next string) string { return summary + next }
	a.agent.BuildPrompt = func(_ context.Context, in runner.PromptInput) (prompt.Fitted, error) {
		if compacted {
			return prompt.Fitted{Messages: in.Conversation.Messages}, nil
		}
		compacted = true
		turns := make([][]sdk.Message, 100)
		return prompt.Fitted{Compaction: &prompt.Compaction{Messages: 1, Lined: 1, Large: true, Turns: turns}}, nil
	}
	r := a.worker()
	process(t, r, "order 7", starts, `{}`)
	entries = journal(t, r, "order 7")
	if last := entries[len(entries)-1].Head; asked != 2 || last.Usage.Prompt != 2000 || last.Termination() != "quota:tokens" {
		t.Errorf("the summariser is asked %d times, and the run ends with %s after %+v", asked, last.Termination(), last.Usage)
	}
}

// What model calls cost counts also where nothing comes of them, whatever that is for.
func TestCosts_OfWhatComesToNothingCount(t *testing.T) {
	t.Parallel()
	cost := sdk.Usage{Prompt: 1000, Completion: 10}
	refused := &sdk.Error{Code: sdk.CodeModel, Message: "400"}
	text := sdk.ModelReply{Usage: cost, Text: "words"}
	twoSteps := sdk.ModelReply{Usage: cost, Text: `plan.add_step(step=1, text="do alpha") plan.add_step(step=2, text="do beta")`}
	control := func(verb wire.ControlVerb, data string) func(*testing.T, *runner.Runner) {
		return func(t *testing.T, r *runner.Runner) {
			t.Helper()
			process(t, r, "order 7", wire.Address{Kind: wire.KindCtl, Verb: verb}, data)
			if err := r.Wake(t.Context(), wire.NewRunKey("order 7")); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		// planner is what it says, one after the other; an error after that. The router says one thing that is no call, and then fails.
		planner   []sdk.ModelReply
		fails     error
		meanwhile func(*testing.T, *runner.Runner)
		set       func(*runner.Agent)
		calls     int64
		ends      string
	}{
		"a router is limited while the run is cancelled": {
			planner: []sdk.ModelReply{twoSteps}, fails: limited, calls: 2, ends: "cancelled:asked",
			meanwhile: func(t *testing.T, r *runner.Runner) {
				t.Helper()
				process(t, r, "order 7", wire.Address{Kind: wire.KindCtl, Verb: wire.ControlCancel}, `{}`)
			},
		},
		"a router is interrupted by a cancel": {
			planner: []sdk.ModelReply{twoSteps}, fails: context.Canceled, calls: 2, ends: "cancelled:asked",
			meanwhile: control(wire.ControlCancel, `{}`),
		},
		"a router is interrupted by a message": {
			planner: []sdk.ModelReply{twoSteps}, fails: context.Canceled, calls: 2, ends: "error:model_failed",
			meanwhile: control(wire.ControlMessage, `{"message":"hurry","urgent":true}`),
			set:       func(a *runner.Agent) { a.Core.Steering = sdk.SteeringInterrupt },
		},
		"a planner is refused the second time":                 {planner: []sdk.ModelReply{text}, fails: refused, calls: 1, ends: "error:model_failed"},
		"a router is refused":                                  {planner: []sdk.ModelReply{twoSteps}, fails: refused, calls: 2, ends: "error:model_failed"},
		"a router fails, and the agent has an answer for that": {planner: []sdk.ModelReply{twoSteps}, fails: limited, calls: 2, ends: "completed:degraded", set: func(a *runner.Agent) { a.Degraded = "Sorry." }},
		"a hook fails that is shown the plan": {planner: []sdk.ModelReply{twoSteps}, calls: 1, ends: "error:hook", set: func(a *runner.Agent) {
			a.Phases = []sdk.Hook{{Name: "watch", AfterInference: func(context.Context, sdk.Inferred) (sdk.TurnEffects, error) {
				return sdk.TurnEffects{}, errors.New("no")
			}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t)
			if c.set != nil {
				c.set(a.agent)
			}
			a.agent.Core.Planning, a.agent.ModelKey, a.agent.Core.MaxTurns = &core.Planning{}, "m", 20
			a.agent.Parks, a.agent.Definitions = []sdk.Code{sdk.CodeRateLimited}, []sdk.ToolDefinition{{Name: "inline"}}
			var r *runner.Runner
			plans, routes := 0, 0
			planner := runner.Role{Model: generate(func(sdk.ModelRequest) (sdk.ModelReply, error) {
				if plans++; plans <= len(c.planner) {
					return c.planner[plans-1], nil
				}
				return sdk.ModelReply{}, refused
			})}
			router := runner.Role{Model: generate(func(sdk.ModelRequest) (sdk.ModelReply, error) {
				switch routes++; {
				case routes == 1:
					return text, nil
				case routes == 2 && c.meanwhile != nil:
					c.meanwhile(t, r)
				}
				return sdk.ModelReply{}, c.fails
			})}
			a.agent.Planning = &runner.Planning{Planner: planner, Router: router, Synthesizer: planner, Form: planning.CallsForm}
			r = a.worker()
			process(t, r, "order 7", starts, `{}`)
			entries := journal(t, r, "order 7")
			last := entries[len(entries)-1].Head
			if want := (sdk.Usage{Prompt: c.calls * 1000, Completion: c.calls * 10}); last.Usage != want || last.Termination() != c.ends {
				t.Errorf("the run ends with %s, and has used %+v, want %s and %+v", last.Termination(), last.Usage, c.ends, want)
			}
		})
	}
}

// So does a reply that comes to nothing.
func TestCosts_OfAReplyThatComesToNothingCount(t *testing.T) {
	t.Parallel()
	broken := errors.New("no")
	for name, c := range map[string]struct {
		text string
		set  func(*runner.Agent)
		ends string
	}{
		"too large for a conversation": {strings.Repeat("x", core.MaxReply+1), func(*runner.Agent) {}, "error:too_large"},
		"too large for an entry":       {large[:16<<10], func(*runner.Agent) {}, "error:too_large"},
		"its output cannot be built": {"words", func(a *runner.Agent) {
			a.BuildOutput = func(context.Context, sdk.OutputInput) (json.RawMessage, string, error) { return nil, "", broken }
		}, "error:internal"},
		"a gate fails": {"words", func(a *runner.Agent) {
			a.CheckOutput = func(context.Context, sdk.RequirementInput) ([]core.Objection, error) { return nil, broken }
		}, "error:gate"},
		"a hook fails": {"words", func(a *runner.Agent) {
			a.Phases = []sdk.Hook{{Name: "watch", AfterInference: func(context.Context, sdk.Inferred) (sdk.TurnEffects, error) {
				return sdk.TurnEffects{}, broken
			}}}
		}, "error:hook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, sdk.ModelReply{Text: c.text, Usage: sdk.Usage{Prompt: 1000, Completion: 10}, Units: 3})
			c.set(a.agent)
			r := runner.New(runner.Options{
				Store: cramped{a.store}, Publisher: nowhere{}, Env: still{&issued}, Catalog: only{a.agent},
				Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
			})
			process(t, r, "order 7", starts, `{}`)
			entries := journal(t, r, "order 7")
			last := entries[len(entries)-1].Head
			if got := fmt.Sprint(last.Termination(), last.Usage.Prompt, last.Usage.Completion, last.Units); got != c.ends+"1000 10 0.000003" {
				t.Errorf("the run ends with, and has used, %s, want %s", got, c.ends+"1000 10 0.000003")
			}
		})
	}
}
