package runner

import (
	"cmp"
	"context"
	"encoding/json"

	"agentd/internal/prompt"
	"agentd/sdk/wire"

	"agentd/sdk"
)

// forSummary is the purpose of a model call whose reply does not belong to the conversation.
const forSummary = "summary"

// modelMember names the model in live events.
const modelMember = "model"

// calling tells who watches that the model is called, and the budget of the call: seed 002. No purpose is a turn's.
func (a *activation) calling(req *sdk.ModelRequest, purpose string) {
	started := map[string]any{
		modelMember: req.Model, "interactions": map[string]int{"current": req.Interactions.Current, "max": req.Interactions.Max},
		"max_tokens": cmp.Or(req.MaxTokens, a.agent.MaxTokens), "used": a.state.Usage,
	}
	if purpose != "" {
		started["purpose"] = purpose
	}
	a.live(wire.LiveTurnStarted, a.state.Turns+1, started)
}

// budgeted tells what the tokens of the prompt are for.
func (a *activation) budgeted(ctx context.Context, built *prompt.Fitted) {
	a.Observer.Budgeted(ctx, a.state.Agent, &built.Ledger)
	a.live(wire.LiveContextBudget, a.state.Turns+1, struct {
		prompt.Ledger
		Final       bool `json:"final"`
		Calibration int  `json:"calibration"`
	}{built.Ledger, built.Final, a.state.Calibrated()})
}

// called tells what the call used, and the run with it.
func (a *activation) called(reply *sdk.ModelReply) {
	u, run := reply.Usage, a.state.Usage
	a.live(wire.LiveUsage, a.state.Turns+1, map[string]any{
		modelMember: reply.Model, "prompt": u.Prompt, "completion": u.Completion, "total": u.Prompt + u.Completion,
		"run": sdk.Usage{Prompt: run.Prompt + u.Prompt, Completion: run.Completion + u.Completion},
	})
}

// live tells whoever watches of something that is not in the journal, and that nobody repairs.
func (a *activation) live(kind string, turn int, of any) {
	data, err := json.Marshal(of)
	if err != nil {
		return // texts, numbers and bools always encode
	}
	a.Publisher.Live(wire.Live{
		Run: a.state.Run, Agent: a.state.Agent, Revision: a.state.Rev, Turn: turn, Ephemeral: true, Type: kind,
		Time: a.Env.Now(), Data: data,
	})
}
