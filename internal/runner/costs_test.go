package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
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

// unready is a store that cannot take blobs, so many times.
type unready struct {
	*memory.Store
	times *int
}

func (s unready) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	if *s.times--; *s.times >= 0 {
		return errors.New("the store is away")
	}
	return s.Store.PutBlob(ctx, run, digest, data)
}

// So does a reply that could not be written, because others wrote to the run while the model made it, or the store was away.
func TestCosts_OfAReplyThatIsNotWrittenCount(t *testing.T) {
	t.Parallel()
	cost := sdk.Usage{Prompt: 1000, Completion: 10}
	t.Run("others wrote", func(t *testing.T) {
		t.Parallel()
		look, end := calls("lookup"), says
		look.Usage, end.Usage = cost, cost
		a := newTalk(t, look, end)
		a.agent.Core.MaxTurns = 20
		r, other := a.worker(), a.worker()
		answer := a.begin(r)
		a.meanwhile[2] = func() { a.handle(other, control(wire.ControlTag, `{"tags":{"tenant":"acme"}}`), runner.Ack) }
		a.handle(r, answer, runner.Ack)
		a.is(r, "tag_asked answered replied", "model written refused written model written published")
		entries := journal(t, r, "order 7")
		if got, want := entries[len(entries)-1].Head.Usage, (sdk.Usage{Prompt: 3000, Completion: 30}); got != want {
			t.Errorf("three model calls have used %+v, want %+v", got, want)
		}
	})
	t.Run("the store was away", func(t *testing.T) {
		t.Parallel()
		away := 1
		a := newTalk(t, sdk.ModelReply{Text: strings.Repeat("x", 300<<10), Usage: cost})
		r := a.workerOn(unready{a.store, &away})
		if v := r.Process(t.Context(), begun(1)); v.Settlement != runner.Retry {
			t.Fatalf("the message is settled with %+v, want that it is given back", v)
		}
		if v := r.Process(t.Context(), begun(2)); v != (runner.Verdict{}) {
			t.Fatalf("the message is settled with %+v", v)
		}
		entries := journal(t, r, "order 7")
		last := entries[len(entries)-1].Head
		if want := (sdk.Usage{Prompt: 2000, Completion: 20}); last.Usage != want || last.Termination() != "completed:answer" {
			t.Errorf("the run ends with %s, and two model calls have used %+v, want %+v", last.Termination(), last.Usage, want)
		}
	})
}

// forgetful is a store that has written an entry, and does not know it when it has another one after that.
type forgetful struct {
	*memory.Store
	rev       uint64
	meanwhile func()
}

func (s forgetful) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	v, err := s.Store.Append(ctx, run, base, next)
	if err == nil && next.Rev == s.rev {
		s.meanwhile()
		return runner.Version{}, runner.ErrConflict
	}
	return v, err
}

// A reply that was written although the store did not say so counts once.
func TestCosts_OfAReplyThatWasWrittenAfterAllCountOnce(t *testing.T) {
	t.Parallel()
	tool, end := calls("inline"), says
	tool.Usage, end.Usage = sdk.Usage{Prompt: 1000}, sdk.Usage{Prompt: 1000}
	a := newTalk(t, tool, end)
	other := a.worker()
	r := a.workerOn(forgetful{a.store, 2, func() { a.handle(other, control(wire.ControlTag, `{"tags":{"tenant":"acme"}}`), runner.Ack) }})
	if v := r.Process(t.Context(), begun(1)); v != (runner.Verdict{}) {
		t.Fatalf("the message is settled with %+v", v)
	}
	a.is(r, "tag_asked returned replied", "model written tool model")
	entries := journal(t, r, "order 7")
	if last := entries[len(entries)-1].Head; last.Usage.Prompt != 2000 || last.Termination() != "completed:answer" {
		t.Errorf("the run ends with %s, and two model calls have used %+v", last.Termination(), last.Usage)
	}
}

// Nor does a run get more tokens because a model says that it has used more than there can be.
func TestBudget_IsNotLiftedByWhatModelsSay(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]sdk.Usage{
		"of prompt and reply": {Prompt: math.MaxInt64, Completion: math.MaxInt64},
		"of a reply":          {Prompt: 10, Completion: math.MaxInt64},
		"less than nothing":   {Prompt: 5000, Completion: -5000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			a := newTalk(t)
			a.agent.Core.MaxTokens = 4500
			_, entries := planned(t, a, func(sdk.ModelRequest) (sdk.ModelReply, error) {
				return sdk.ModelReply{Usage: sdk.Usage{Prompt: 900}, Text: listOf(40)}, nil
			}, func(sdk.ModelRequest) (sdk.ModelReply, error) {
				asked++
				return sdk.ModelReply{Usage: used, Text: "Which tool?"}, nil
			})
			if last := entries[len(entries)-1].Head; asked != 1 || last.Termination() != "quota:tokens" {
				t.Errorf("the router is asked %d times, and the run ends with %s; want once, and quota:tokens", asked, last.Termination())
			}
		})
	}
}

// A run whose model call came to nothing, because others wrote, makes no other one when that has used its last tokens.
func TestBudget_HoldsWhereAReplyIsNotWritten(t *testing.T) {
	t.Parallel()
	look, end := calls("lookup"), says
	look.Usage, end.Usage = sdk.Usage{Prompt: 1000}, sdk.Usage{Prompt: 1000}
	a := newTalk(t, look, end)
	a.agent.Core.MaxTurns, a.agent.Core.MaxTokens = 20, 2000
	r, other := a.worker(), a.worker()
	answer := a.begin(r)
	a.meanwhile[2] = func() { a.handle(other, control(wire.ControlTag, `{"tags":{"tenant":"acme"}}`), runner.Ack) }
	a.handle(r, answer, runner.Ack)
	entries := journal(t, r, "order 7")
	if last := entries[len(entries)-1].Head; a.asked != 2 || last.Usage.Prompt != 2000 || last.Termination() != "quota:tokens" {
		t.Errorf("the model is asked %d times, and the run ends with %s after %+v", a.asked, last.Termination(), last.Usage)
	}
}
