package catalog

import (
	"testing"
	"time"

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
