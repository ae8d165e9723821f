package runner

import (
	"encoding/json"

	"agentd/sdk"
)

// The ephemeral live events around a model call.
const (
	// liveCall says that a model is called, with what the run may still use.
	liveCall = "model.call"
	// liveUsage says what the call used, in tokens.
	liveUsage = "model.usage"
	liveDelta = "model.delta"
)

// calling tells who watches that the model is called, and the budget of the call: seed 002.
func (a *activation) calling(req *sdk.ModelRequest) {
	a.ephemeral(liveCall, map[string]any{
		"model": req.Model, "interactions": map[string]int{"current": req.Interactions.Current, "max": req.Interactions.Max},
		"max_tokens": req.MaxTokens, "used": a.state.Usage,
	})
}

// called tells what the call used, and the run with it.
func (a *activation) called(reply *sdk.ModelReply) {
	u, run := reply.Usage, a.state.Usage
	a.ephemeral(liveUsage, map[string]any{
		"model": reply.Model, "prompt": u.Prompt, "completion": u.Completion, "total": u.Prompt + u.Completion,
		"run": sdk.Usage{Prompt: run.Prompt + u.Prompt, Completion: run.Completion + u.Completion},
	})
}

// ephemeral sends a live event that nobody repairs.
func (a *activation) ephemeral(kind string, content any) {
	data, err := json.Marshal(content)
	if err != nil {
		return // texts, numbers and bools always encode
	}
	a.Publisher.Live(sdk.Live{
		Run: a.state.Run, Agent: a.state.Agent, Revision: a.state.Rev, Ephemeral: true, Type: kind, Time: a.Env.Now(), Data: data,
	})
}
