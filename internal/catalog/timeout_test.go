package catalog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"agentd/internal/runner"
	"agentd/sdk"
)

// Each of the models that may be asked one after the other has the time of a model call.
func TestModelTimeout_IsThatOfEachFallback(t *testing.T) {
	t.Parallel()
	alone := sdk.ModelSpec{Name: "own"}
	with := func(n int) sdk.ModelSpec { return sdk.ModelSpec{Fallback: make([]sdk.ModelSpec, n)} }
	nested := sdk.ModelSpec{Fallback: []sdk.ModelSpec{with(1), alone}}
	two := with(2)
	limit := sdk.Limits{ModelTimeoutMillis: 10_000}
	for name, c := range map[string]struct {
		spec sdk.AgentSpec
		want time.Duration
	}{
		"the default":                         {sdk.AgentSpec{Model: alone}, 2 * time.Minute},
		"one model":                           {sdk.AgentSpec{Model: alone, Limits: limit}, 10 * time.Second},
		"two fallbacks":                       {sdk.AgentSpec{Model: two, Limits: limit}, 30 * time.Second},
		"a fallback of a fallback":            {sdk.AgentSpec{Model: nested, Limits: limit}, 40 * time.Second},
		"of the summarizer":                   {sdk.AgentSpec{Model: alone, Memory: &sdk.Memory{Summarizer: &two}, Limits: limit}, 30 * time.Second},
		"the agent's own, of the planner too": {sdk.AgentSpec{Model: with(1), Plan: &sdk.PlanSpec{Planner: &two}, Limits: limit}, 50 * time.Second},
	} {
		if got := modelTimeout(c.spec); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

type silent struct{}

func (silent) Generate(ctx context.Context, _ sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	<-ctx.Done()
	return sdk.ModelReply{}, ctx.Err()
}

// A model alone has its own time, whatever other models of the agent need.
func TestTimedModels_GiveEachItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		models := timedModels(func(sdk.ModelSpec) (sdk.Provider, error) { return silent{}, nil }, sdk.AgentSpec{Limits: sdk.Limits{ModelTimeoutMillis: 10_000}})
		for fallbacks, want := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
			model, err := models(sdk.ModelSpec{Fallback: make([]sdk.ModelSpec, fallbacks)})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = model.Generate(t.Context(), sdk.ModelRequest{}, nil)
			if e := sdk.AsError(err); time.Since(began) != want || e.Code != sdk.CodeUnavailable || !e.Retryable || e.Message != "the model did not answer within 10s" {
				t.Errorf("%d fallbacks: %v after %s; want %s", fallbacks, err, time.Since(began), want)
			}
		}
	})
}

// A driver that makes all the model calls of a turn of planning, or for a summary, is not taken for dead, and one that makes a single call no
// later than before.
func TestLongestTurn_HasAllItsModelCalls(t *testing.T) {
	t.Parallel()
	slow := map[string]sdk.Tool{"quick": {Timeout: time.Second}, "slow": {Timeout: 3 * time.Minute}, "none": {}}
	for name, c := range map[string]struct {
		mode       sdk.Mode
		summarizer sdk.Provider
		tools      map[string]sdk.Tool
		step, turn time.Duration
	}{
		"a model":                  {"", nil, nil, 10 * time.Second, 10 * time.Second},
		"a tool":                   {"", nil, slow, 3 * time.Minute, 3 * time.Minute},
		"a tool without a timeout": {"", nil, map[string]sdk.Tool{"none": {}}, time.Minute, time.Minute},
		"a summary":                {"", silent{}, nil, 10 * time.Second, 50 * time.Second},
		// Four times sixteen calls, each asked for three times, twice, and a pause.
		"a plan": {sdk.ModePlan, silent{}, slow, 3 * time.Minute, 250 * time.Second},
	} {
		a := &runner.Agent{ModelTimeout: 10 * time.Second, Inline: c.tools, Summarizer: c.summarizer}
		if step, turn := longestStep(a), longestTurn(a, sdk.AgentSpec{Mode: c.mode}); step != c.step || turn != c.turn {
			t.Errorf("%s: a step takes %s, and a turn %s; want %s and %s", name, step, turn, c.step, c.turn)
		}
	}
}
