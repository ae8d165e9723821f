package runner

import (
	"cmp"
	"context"
	"encoding/json"

	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// forSummary is the purpose of a model call whose reply does not belong to the conversation.
const forSummary = "summary"

// modelMember names the model in live events.
const modelMember = "model"

// calling tells who watches that the model is called, and the budget of the call. No purpose is a turn's.
func (a *activation) calling(req *sdk.ModelRequest, purpose string) {
	a.live(wire.LiveTurnStarted, a.state.Turns+1, func() any {
		started := map[string]any{
			modelMember: req.Model, "interactions": map[string]int{"current": req.Interactions.Current, "max": req.Interactions.Max},
			"max_tokens": cmp.Or(req.MaxTokens, a.agent.MaxTokens), "used": a.state.Usage,
		}
		if purpose != "" {
			started["purpose"] = purpose
		}
		return started
	})
}

// budgeted tells what the tokens of the prompt are for.
func (a *activation) budgeted(ctx context.Context, built *prompt.Fitted) {
	a.Observer.Budgeted(ctx, a.state.Agent, &built.Ledger)
	a.live(wire.LiveContextBudget, a.state.Turns+1, func() any {
		return struct {
			prompt.Ledger
			Final       bool `json:"final"`
			Calibration int  `json:"calibration"`
		}{built.Ledger, built.Final, a.state.Calibrated()}
	})
}

// called tells what the call used, and the run with it.
func (a *activation) called(reply *sdk.ModelReply) {
	u, run := reply.Usage, a.state.Usage
	a.live(wire.LiveUsage, a.state.Turns+1, func() any {
		return map[string]any{
			modelMember: reply.Model, "prompt": u.Prompt, "completion": u.Completion, "total": u.Prompt + u.Completion,
			"run": sdk.Usage{Prompt: run.Prompt + u.Prompt, Completion: run.Completion + u.Completion},
		}
	})
}

// live tells whoever watches of something that is not in the journal, and that nobody repairs. Nobody builds it for nobody.
func (a *activation) live(kind string, turn int, build func() any) {
	if !a.watched(a.state.Agent) {
		return
	}
	data, err := json.Marshal(build())
	if err != nil {
		return // texts, numbers and bools always encode
	}
	a.Publisher.Live(wire.Live{
		Run: a.state.Run, Agent: a.state.Agent, Revision: a.state.Rev - a.behind.Load(), Turn: turn, Ephemeral: true, Type: kind,
		Time: a.Env.Now(), Data: data,
	})
}
