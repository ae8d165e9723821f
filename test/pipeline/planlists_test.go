package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// planners plays the models of an agent that plans: the planner says one plan after the other, the router calls the tool that a step names first,
// with the step and its element as n, and the writer says done.
type planners struct {
	mu    sync.Mutex
	plans []string
	told  []string
	// reviewed are the arguments that the router calls the tool of plans with.
	reviewed json.RawMessage
	// answers are written before "done".
	answers []string
}

func (p *planners) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := req.Messages[len(req.Messages)-1].PlainText()
	switch req.Model {
	case "planner":
		p.told = append(p.told, req.System)
		if len(p.plans) == 0 {
			return sdktest.Say(`plan.respond(message="Nothing is left to be done.")`), nil
		}
		plan := p.plans[0]
		p.plans = p.plans[1:]
		return sdktest.Say(plan), nil
	case "router":
		step, _, _ := strings.Cut(strings.TrimPrefix(last, "Step: "), "\n")
		tool, _, _ := strings.Cut(step, " ")
		if tool == sdk.ToolReviewPlan {
			return sdktest.Ask(sdktest.Tool(tool, p.reviewed)), nil
		}
		n := 0
		if _, element, listed := strings.Cut(last, "Do it for this element alone, which is number "); listed {
			if _, err := fmt.Sscan(element, &n); err != nil {
				return sdk.ModelReply{}, err
			}
		}
		return sdktest.Ask(sdktest.Tool(tool, map[string]any{"step": step, "n": n})), nil
	}
	p.told = append(p.told, last)
	if len(p.answers) > 0 {
		answer := p.answers[0]
		p.answers = p.answers[1:]
		return sdktest.Say(answer), nil
	}
	return sdktest.Say("done"), nil
}

// planDesk is a desk that plans, with a tool that finds so many things and one that fails for those numbers.
func planDesk(found int, failing ...int) (sdk.AgentSpec, []sdk.Tool) {
	spec := desk()
	role := func(name string) *sdk.ModelSpec { return &sdk.ModelSpec{Provider: spec.Model.Provider, Name: name} }
	spec.Mode, spec.Plan = sdk.ModePlan, &sdk.PlanSpec{Planner: role("planner"), Router: role("router"), Synthesizer: role("writer")}
	tool := func(name string, run func(n int) (any, error)) sdk.Tool {
		return sdk.Tool{
			Definition: sdk.ToolDefinition{Name: name, Description: "A test's " + name + ".", Parameters: []byte(`{"type":"object"}`)},
			Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
				var args struct{ N int }
				if err := json.Unmarshal(call.Args, &args); err != nil {
					return nil, err
				}
				result, err := run(args.N)
				if err != nil {
					return nil, err
				}
				return json.Marshal(result)
			},
		}
	}
	return spec, []sdk.Tool{
		tool("find", func(int) (any, error) {
			things := []string{}
			for i := range found {
				things = append(things, fmt.Sprintf("thing %d %s", i+1, strings.Repeat("x", 4096)))
			}
			return map[string]any{"things": things, "count": found}, nil
		}),
		tool("mend", func(n int) (any, error) {
			if slices.Contains(failing, n) {
				return nil, sdk.Errorf(sdk.CodeTool, "thing %d is broken", n)
			}
			return map[string]int{"mended": n}, nil
		}),
		tool("note", func(int) (any, error) { return "noted", nil }),
	}
}

// planned are the steps of a run's plan, each in one line.
func planned(h *harness.Harness, run harness.Run) string {
	text := ""
	for _, s := range h.State(run).Plan.Steps {
		text += fmt.Sprintf("%d %s %d/%d: %s\n", s.Number, s.Status, s.Done(), len(s.Elements), s.Fault)
	}
	return text
}

// What is written of a plan is judged as any answer: one that is not taken is written again, unless it could be mended by calls alone.
func TestPlan_AnswersAreJudged(t *testing.T) {
	t.Parallel()
	for answer, c := range map[string]struct {
		judges sdk.Answers
		told   int // the planner is told once, and the writer as often as it writes
		ends   string
		judged string
	}{
		"I have moved the files.":     {sdk.Answers{Unverified: 1}, 3, "Nothing was moved.", ""},
		"Next I will note the rest.":  {sdk.Answers{Incomplete: 9}, 2, "Next I will note the rest.", "incomplete, accepted"},
		"Shall I note the rest, too?": {sdk.Answers{Deflecting: 9}, 2, "Shall I note the rest, too?", "deflecting, accepted"},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			models := &planners{plans: []string{`plan.add_step(step=1, text="find things")`}, answers: []string{answer, "Nothing was moved."}}
			spec, tools := planDesk(1)
			spec.Answers = &c.judges
			h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
			run := h.Run("desk", hello())
			wantResponse(t, h.Done(run), c.ends)
			if n := len(models.told); n != c.told {
				t.Errorf("planner and writer are asked %d times: %q", n, models.told)
			}
			if got := judgedLast(h, run); got != c.judged {
				t.Errorf("of the answer, watchers are told %q, want %q", got, c.judged)
			}
			if diff := cmp.Diff([]string{"find"}, calledTools(h, run)); diff != "" {
				t.Errorf("calls, -want +got:\n%s", diff)
			}
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}

// A step with a list is done for each of its elements, at most 64 at once, whoever drives the run; a failing element is told, and what its
// condition does not let be done is skipped. What the list is of may be larger than what models are shown of it.
func TestPlan_OfListsAndConditions(t *testing.T) {
	t.Parallel()
	models := &planners{plans: []string{`plan.add_step(step=1, text="find things")
plan.add_step(step=2, each="step1.things", text="mend the thing")
plan.add_step(step=3, when="step2.exists(r, has(r.error))", text="note that things are broken")
plan.add_step(step=4, when="step1.count > 100.0", text="note that there are many")
plan.add_step(step=5, after=[4], text="note it again")`}}
	spec, tools := planDesk(70, 7, 66)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	want := `1 done 0/0: 
2 done 68/70: 2 of 70 failed; element 7: tool_failed: thing 7 is broken
3 done 0/0: 
4 skipped 0/0: its condition does not hold: step1.count > 100.0
5 skipped 0/0: step 4 was skipped
`
	if diff := cmp.Diff(want, planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var rounds []int
	for _, e := range h.Journal(run) {
		if e.Kind == core.KindRouted {
			rounds = append(rounds, len(e.Head.Calls))
		}
	}
	if diff := cmp.Diff([]int{1, 64, 6, 1}, rounds); diff != "" {
		t.Errorf("calls at once, -want +got:\n%s", diff)
	}
	// Another plan would have no room for what is done.
	for _, told := range []string{
		"Step 2 is done for 68 of 70 elements (2 of 70 failed; element 7: tool_failed: thing 7 is broken): mend the thing",
		"Step 4 was skipped, and not done (its condition does not hold: step1.count > 100.0): note that there are many",
	} {
		if !strings.Contains(models.told[1], told) {
			t.Errorf("the writer is not told %q, but\n%s", told, models.told[1])
		}
	}
	calls := map[string]int{}
	for _, e := range h.Journal(run) {
		for _, m := range e.Messages {
			for _, c := range m.Content {
				if c.Kind == sdk.ContentToolUse {
					calls[c.Tool+string(c.Args)]++
				}
			}
		}
	}
	for call, times := range calls {
		if times > 1 {
			t.Errorf("%s is called %d times", call, times)
		}
	}
}

// A list or a condition that nobody can evaluate fails its step, which says why; a list that is too long does too.
func TestPlan_OfListsThatCannotBe(t *testing.T) {
	t.Parallel()
	models := &planners{plans: []string{`plan.add_step(step=1, text="find things")
plan.add_step(step=2, each="step1.things", text="mend the thing")
plan.add_step(step=3, each="step1.count", text="mend the thing")
plan.add_step(step=4, when="step1.none", text="note it")`}}
	spec, tools := planDesk(97)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	want := `1 done 0/0: 
2 failed 0/0: its list: tool_failed: "step1.things" has 97 elements, and there is room for 96
3 failed 0/0: its list: tool_failed: "step1.count" yields double, want a list
4 failed 0/0: its condition: evaluate "step1.none": no such key: none
`
	if diff := cmp.Diff(want, planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
