package runner_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	if diff := cmp.Diff(map[string]int{"do alpha": 1, "do beta": 6}, asked); diff != "" {
		t.Errorf("routers are asked, -want +got:\n%s", diff)
	}
	// The planner, a call that was chosen, and three answers that were none: two beside it, one before the run was parked.
	if want := (sdk.Usage{Prompt: 5000, Completion: 50}); last.Usage != want {
		t.Errorf("it has used %+v, want %+v", last.Usage, want)
	}
	process(t, r, "order 7", wire.Address{Kind: wire.KindCtl, Verb: wire.ControlUnpark}, `{}`)
	entries = journal(t, r, "order 7")
	if got, want := entries[len(entries)-1].Head.Usage.Prompt, int64(6000); got != want {
		t.Errorf("tried again, it has used %d tokens of prompts, want %d", got, want)
	}
}

// listOf is what a planner says whose plan has one step, for each element of a list of so many.
func listOf(n int) string {
	return fmt.Sprintf(`plan.add_step(step=1, text="do it", each="[%s]")`, strings.TrimSuffix(strings.Repeat("1,", n), ","))
}

// So it is with the elements of a list: those wait that no call could be chosen for, and nobody is asked about the others again.
func TestRoute_KeepsWhatWasChosenForElements(t *testing.T) {
	t.Parallel()
	asked := map[string]int{}
	a := newTalk(t)
	_, entries := planned(t, a, func(sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{Text: `plan.add_step(step=1, text="do it", each="['alpha', 'beta', 'gamma']")`}, nil
	}, func(req sdk.ModelRequest) (sdk.ModelReply, error) {
		for _, element := range []string{"alpha", "beta", "gamma"} {
			if strings.Contains(req.Messages[0].PlainText(), element) {
				if asked[element]++; element == "beta" {
					return sdk.ModelReply{}, limited
				}
			}
		}
		return sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: "inline", Arguments: `{}`}}}, nil
	})
	last := entries[len(entries)-1].Head
	var got []string
	for _, e := range last.Plan.Steps[0].Elements {
		got = append(got, string(e.Status))
	}
	if diff := cmp.Diff([]string{"done", "planned", "done"}, got); diff != "" || last.Parked == nil {
		t.Errorf("the run is parked for %+v, and its elements, -want +got:\n%s", last.Parked, diff)
	}
	if diff := cmp.Diff(map[string]int{"alpha": 1, "beta": 3, "gamma": 1}, asked); diff != "" {
		t.Errorf("routers are asked, -want +got:\n%s", diff)
	}
}

// A router that fails once is asked again before the calls of others are made, which may wait for people: all are one round.
func TestRoute_WaitsForARouterThatFailsOnce(t *testing.T) {
	t.Parallel()
	asked := 0
	a := newTalk(t)
	_, entries := planned(t, a, func(sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdk.ModelReply{Text: `plan.add_step(step=1, text="do alpha") plan.add_step(step=2, text="do beta")`}, nil
	}, func(req sdk.ModelRequest) (sdk.ModelReply, error) {
		if strings.Contains(req.Messages[0].PlainText(), "Step: do beta") {
			if asked++; asked == 1 {
				return sdk.ModelReply{}, limited
			}
		}
		return sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: "lookup", Arguments: `{}`}}}, nil
	})
	last := entries[len(entries)-1].Head
	if got := fmt.Sprint(last.Plan.Steps[0].Status, " ", last.Plan.Steps[1].Status); got != "calling calling" || asked != 2 || last.Turns != 2 {
		t.Errorf("the steps are %s after %d model calls; the router of the second was asked %d times", got, last.Turns, asked)
	}
}

// A model that hangs takes its time once, not for each element of a list, and each call that returns is progress: the delivery that covers
// the run is not given up, and the run is parked.
func TestRoute_OfAModelThatHangsParksTheRun(t *testing.T) {
	t.Parallel()
	progress, heard := 0, []int{}
	a := newTalk(t)
	a.agent.Core.Planning, a.agent.ModelKey, a.agent.Parks = &core.Planning{}, "m", []sdk.Code{sdk.CodeUnavailable}
	a.agent.Definitions = []sdk.ToolDefinition{{Name: "inline"}}
	a.agent.Planning = &runner.Planning{
		Planner: runner.Role{Model: generate(func(sdk.ModelRequest) (sdk.ModelReply, error) { return sdk.ModelReply{Text: listOf(40)}, nil })},
		Router:  runner.Role{Model: silentAfter(func() { heard = append(heard, progress) })}, Form: planning.CallsForm,
	}
	r := runner.New(runner.Options{
		Store: a.store, Publisher: nowhere{}, Env: late{still{&issued}}, Catalog: only{a.agent},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	m := begun(1)
	m.Progress = func() { progress++ }
	if v := r.Process(t.Context(), m); v != (runner.Verdict{}) {
		t.Fatalf("the message is settled with %+v", v)
	}
	entries := journal(t, r, "order 7")
	if parked := entries[len(entries)-1].Head.Parked; parked == nil || parked.Code != sdk.CodeUnavailable || len(heard) != 16 {
		t.Fatalf("the run is parked for %+v, after its router was asked %d times, want 16", parked, len(heard))
	}
	for i := 1; i < len(heard); i++ {
		if heard[i] <= heard[i-1] {
			t.Fatalf("there was no progress when call %d had returned", i)
		}
	}
}

// silentAfter is a model that does something and never answers.
type silentAfter func()

func (f silentAfter) Generate(ctx context.Context, r sdk.ModelRequest, add func(sdk.Delta)) (sdk.ModelReply, error) {
	f()
	return silent{}.Generate(ctx, r, add)
}

// A summary is made without the model, once that has failed: of the batches that are left it would take its time for each.
func TestCompact_AsksASummariserThatFailsOnce(t *testing.T) {
	t.Parallel()
	asked, compacted := 0, false
	turn := []sdk.Message{sdk.Text(sdk.RoleUser, "words")}
	a := newTalk(t, sdk.ModelReply{Text: "done"})
	a.agent.Summarizer = generate(func(sdk.ModelRequest) (sdk.ModelReply, error) {
		asked++
		return sdk.ModelReply{}, limited
	})
	a.agent.Remember = func(summary, next string) string { return summary + next }
	a.agent.BuildPrompt = func(_ context.Context, in runner.PromptInput) (prompt.Fitted, error) {
		if compacted {
			return prompt.Fitted{Messages: in.Conversation.Messages}, nil
		}
		compacted = true
		return prompt.Fitted{Compaction: &prompt.Compaction{Messages: 1, Lined: 1, Large: true, Turns: slices.Repeat([][]sdk.Message{turn}, 100)}}, nil
	}
	r := a.worker()
	process(t, r, "order 7", starts, `{}`)
	entries := journal(t, r, "order 7")
	if got := strings.Count(entries[1].Summary.Text, "words"); asked != 1 || got != 100 {
		t.Errorf("the model was asked %d times, and the summary has %d of 100 turns", asked, got)
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
