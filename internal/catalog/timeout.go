package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/runner"
	"agentd/sdk"
)

// beyondModels is how much longer than its models a model call may take: whichever was too slow is named.
const beyondModels = time.Second

// timedModels are models that an agent waits for as long as it says, and as long again for each of their fallbacks.
func timedModels(models Models, spec sdk.AgentSpec) Models {
	each := oneModel(spec)
	return func(m sdk.ModelSpec) (sdk.Provider, error) {
		p, err := models(m)
		if err != nil || p == nil { // none is known to who only checks agents
			return p, err
		}
		return timed{p, each, time.Duration(chained(m)) * each}, nil
	}
}

// timed is a model with its fallbacks.
type timed struct {
	sdk.Provider
	each, all time.Duration
}

func (t timed) Generate(ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	within, cancel := context.WithTimeout(ctx, t.all)
	defer cancel()
	reply, err := t.Provider.Generate(within, req, onDelta)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = &sdk.Error{Code: sdk.CodeUnavailable, Message: fmt.Sprintf("the model did not answer within %s", t.each), Retryable: true, Cause: err}
	}
	return reply, err
}

// longestStep is how long what an activation of the agent waits for takes at most: a model call, or a tool that runs in the worker.
func longestStep(a *runner.Agent) time.Duration {
	longest := a.ModelTimeout
	for _, tool := range a.Inline {
		longest = max(longest, cmp.Or(tool.Timeout, sdk.DefaultToolTimeout))
	}
	return longest
}

// longestTurn is how long a driver of the agent's runs takes between two entries at most: a step, or all model calls of a turn of planning, or
// for a summary of the conversation.
func longestTurn(a *runner.Agent, spec sdk.AgentSpec) time.Duration {
	calls := time.Duration(1)
	if a.Summarizer != nil {
		calls = runner.LongestCompaction
	}
	if spec.Planned() {
		calls = max(calls, runner.LongestTurn)
	}
	return max(longestStep(a), calls*a.ModelTimeout)
}

// oneModel is how long one model may take.
func oneModel(spec sdk.AgentSpec) time.Duration {
	return millis(spec.Limits.ModelTimeoutMillis, sdk.DefaultModelTimeout)
}

// modelTimeout bounds a call of any of the agent's models with its fallbacks.
func modelTimeout(spec sdk.AgentSpec) time.Duration {
	most := chained(spec.Model)
	for _, m := range spec.Plan.Models() {
		most = max(most, chained(*m)+chained(spec.Model)) // the agent's own stands in for it
	}
	if spec.Memory != nil && spec.Memory.Summarizer != nil {
		most = max(most, chained(*spec.Memory.Summarizer))
	}
	return time.Duration(most) * oneModel(spec)
}

// chained is how many models may be asked one after the other: a model, and its fallbacks.
func chained(m sdk.ModelSpec) int {
	n := 1
	for _, f := range m.Fallback {
		n += chained(f)
	}
	return n
}
