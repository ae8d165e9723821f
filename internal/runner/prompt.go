package runner

import (
	"context"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/sdk"
)

// request is the next model call, with the prompt that it was made of.
func (a *activation) request(ctx context.Context) (sdk.ModelRequest, Prompt, error) {
	h := &a.state.Head
	interactions := sdk.Interactions{
		Current: h.Turns, Max: a.agent.Core.MaxTurns, Exhausted: h.Turns+1 >= a.agent.Core.MaxTurns,
	}
	built := Prompt{System: a.state.System, Messages: a.state.Conversation(), Tools: a.agent.Definitions}
	if a.agent.BuildPrompt != nil {
		var err error
		built, err = guarded(func() (Prompt, error) {
			return a.agent.BuildPrompt(ctx, PromptInput{
				Run: h.Run, System: a.state.System, Input: a.state.Input, Messages: built.Messages, Summarised: a.state.Summary != nil,
				Context: a.state.Context, Plan: a.state.Plan(), Interactions: interactions,
			})
		})
		if err != nil {
			return sdk.ModelRequest{}, Prompt{}, err
		}
	}
	return sdk.ModelRequest{
		Run: h.Run, Lifecycle: h.Lifecycle, Model: a.agent.ModelName, System: built.System, Turn: built.Turn,
		Messages: built.Messages, Tools: built.Tools, Output: a.agent.OutputSchema, Interactions: interactions,
		Temperature: a.agent.Temperature, MaxTokens: a.agent.MaxTokens, Tokens: max(h.TokensLeft(), 0),
	}, built, nil
}

// promptFailed ends the run: asking again would not mend a prompt that cannot be built.
func (a *activation) promptFailed(ctx context.Context, err error) (core.Event, error) {
	if ctx.Err() != nil && !woken(ctx) {
		return nil, fmt.Errorf("build the prompt of run %s: %w", a.state.Run, err)
	}
	a.Logger.Error("prompt could not be built", "run", a.state.Run, "error", err)
	problem := unbuilt("prompt", err)
	return core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: problem.Code, Message: problem.Message}}, nil
}

// compact asks the model for a summary of the older part of the conversation. Nil says that there is none: the call that
// follows does with what fits.
func (a *activation) compact(ctx context.Context, built Prompt, next sdk.ModelRequest) core.Event {
	request := sdk.ModelRequest{
		Run: next.Run, Lifecycle: next.Lifecycle, Model: next.Model, System: built.SummarySystem, Messages: built.SummaryMessages,
		Interactions: next.Interactions, Temperature: next.Temperature, MaxTokens: next.MaxTokens, Tokens: next.Tokens,
	}
	a.stats.ModelCalls.Add(1)
	a.calling(&request, forSummary)
	// Fragments of a summary are progress, and nobody is shown them.
	reply, err := guarded(func() (sdk.ModelReply, error) {
		return a.agent.Model.Generate(ctx, request, func(sdk.Delta) { a.progress() })
	})
	if err == nil {
		a.called(&reply)
		err = core.CheckReply(&reply)
	}
	storable(&reply)
	if err != nil || strings.TrimSpace(reply.Text) == "" {
		a.Logger.Warn("conversation could not be summarised", "run", a.state.Run, "error", err)
		return nil
	}
	return core.Compacted{Messages: a.state.Summarised(built.Compact), Reply: reply}
}
