package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// request is the next model call, with the prompt that it was made of, and with what hooks want of it.
func (a *activation) request(ctx context.Context, s *hookEffects) (sdk.ModelRequest, prompt.Fitted, error) {
	h := &a.state.Head
	interactions := a.agent.Core.Interactions(h)
	conversation := a.state.Conversation()
	conversation.Messages = a.agent.Core.Shown(conversation.Messages)
	added := slices.Concat(s.kept, s.context)
	if h.Lifecycle == sdk.LifecycleReminder {
		added = append(added, sdk.Text(sdk.RoleUser, a.agent.Core.NoToolCall.Text))
	}
	if h.Nudge != "" {
		added = append(added, sdk.Text(sdk.RoleUser, h.Nudge))
	}
	hidden := slices.Concat(s.hidden, h.Withdrawn())
	tools := slices.DeleteFunc(a.offered(), func(d sdk.ToolDefinition) bool { return slices.Contains(hidden, d.Name) })
	var built prompt.Fitted
	if a.agent.BuildPrompt == nil {
		built = prompt.Fitted{System: a.state.System, Messages: slices.Concat(conversation.Messages, added), Tools: tools}
	} else {
		var err error
		built, err = guarded(func() (prompt.Fitted, error) {
			return a.agent.BuildPrompt(ctx, PromptInput{
				Run: h.Run, System: a.state.System, Input: a.state.Input, Conversation: conversation, Calibration: h.Calibration,
				Context: a.state.Context, Plan: a.state.WrittenPlan(), Interactions: interactions, Tools: tools, Added: added, MaxTokens: s.maxTokens,
				Now: a.Env.Now(),
			})
		})
		if err != nil {
			return sdk.ModelRequest{}, prompt.Fitted{}, err
		}
	}
	request := sdk.ModelRequest{
		Run: h.Run, Lifecycle: h.Lifecycle, Model: a.model().Name, System: built.System, Turn: built.Sections,
		Messages: prompt.Noted(built.Messages), Tools: built.Tools, Output: a.agent.OutputSchema, Interactions: interactions,
		Temperature: s.temperature, MaxTokens: s.maxTokens, Tokens: max(a.tokensLeft(), 0),
	}
	return request, built, nil
}

// noRoom is what the model is told when the prompt leaves too little for another round.
const noRoom = "There is no room left to call tools. " + core.FinalAnswer

// lastCall is what the model is told when it may not be called again.
const lastCall = "No calls can be made any more: the limit on interactions is reached. " + core.FinalAnswer

// conclude makes it a request for the final answer, without tools, where the prompt leaves too little for another round, where it is the
// last that the run may make, or where the core has nudged the model to summarise. It reports whether it did.
func (a *activation) conclude(r *sdk.ModelRequest, full bool) (final bool) {
	told := ""
	switch {
	case a.state.Synthesizes():
		told = planning.Synthesis(a.state.Plan)
	case a.state.Summarises(): // the nudge says it
	case full:
		told = noRoom
	case a.agent.Core.LastTurn(&a.state.Head):
		told = lastCall + planning.SoFar(a.state.Plan)
	default:
		return false
	}
	r.Tools = nil
	if told != "" {
		r.Messages = append(slices.Clip(r.Messages), sdk.Text(sdk.RoleUser, told))
	}
	return true
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

// compacting is the data of the live events around a compaction.
type compacting struct {
	// Messages are those that get a summary, Evicted the tokens that the prompt has fewer, Done and Batches its progress.
	Messages int    `json:"messages"`
	Evicted  int    `json:"evicted"`
	Done     int    `json:"done"`
	Batches  int    `json:"batches"`
	Error    string `json:"error,omitempty"`
}

// LongestCompaction is how many times as long as a model call a compaction may take: a summariser is asked again until it has taken one less.
const LongestCompaction = 5

// errSlowSummary says that a summariser has taken all the time that there is for a compaction.
var errSlowSummary = sdk.Errorf(sdk.CodeUnavailable, "the model takes too long for so long a conversation")

// compact shortens the conversation, with a summary of what is left out. Each batch of turns is summarised by the model that does
// so; where there is none, where it fails, and once it was away or has taken too long, by the first words of what was said.
func (a *activation) compact(ctx context.Context, c *prompt.Compaction, next sdk.ModelRequest) core.Event {
	former := core.Summary{}
	if a.state.Summary != nil {
		former = *a.state.Summary
	}
	batches := c.Batches()
	told := compacting{Messages: c.Messages, Evicted: c.Evicted, Batches: len(batches)}
	a.live(wire.LiveCompacting, a.state.Turns, func() any { return told })
	ev := core.Compacted{Summary: core.Summary{
		Messages: former.Messages + c.Messages, Lined: former.Messages + c.Lined, Text: former.Text, Evicted: c.Evicted,
		Files: prompt.Touched(former.Files, c.Turns),
	}}
	asks, until := c.Large, a.Env.Now()+((LongestCompaction-1)*a.agent.ModelTimeout).Milliseconds()
	for _, batch := range batches {
		text, err := "", error(nil)
		switch {
		case asks && a.Env.Now() >= until:
			err = errSlowSummary
		case asks:
			text, err = a.summarise(ctx, batch, next, &ev.Reply)
		}
		if err != nil {
			asks = asks && ofRequest(sdk.AsError(err))
			a.Logger.Warn("conversation could not be summarised by the model", "run", a.state.Run, "error", err)
			a.live(wire.LiveCompactionFailed, a.state.Turns, func() any {
				failed := told
				failed.Error = sdk.AsError(err).Message
				return failed
			})
		}
		if text == "" {
			text = prompt.Extract(batch)
		}
		ev.Summary.Text = a.agent.Remember(ev.Summary.Text, text)
		told.Done++
		a.live(wire.LiveCompactionProgress, a.state.Turns, func() any { return told })
	}
	return ev
}

// summaryPart is how many characters a model is asked to summarise at once.
const summaryPart = 16_000

// summarise asks the model for a summary of a batch, and adds what that costs. No text and no error: no model summarises.
func (a *activation) summarise(
	ctx context.Context, batch [][]sdk.Message, next sdk.ModelRequest, cost *sdk.ModelReply,
) (string, error) {
	if a.agent.Summarizer == nil {
		return "", nil
	}
	task := ""
	if len(a.state.History) > 0 {
		task = a.state.History[0].PlainText()
	}
	request := sdk.ModelRequest{
		Run: next.Run, Lifecycle: next.Lifecycle, Model: a.agent.SummarizerName, Interactions: next.Interactions,
	}
	request.System, request.Messages = prompt.Ask(batch, task, summaryPart)
	reply, err := a.consult(ctx, a.agent.Summarizer, request, forSummary, cost)
	if errors.Is(err, errNoTokens) {
		err = sdk.Errorf(sdk.CodeQuotaExhausted, "%s", err)
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(reply.Text)
	if text == "" {
		return "", sdk.Errorf(sdk.CodeModel, "the model's summary is empty")
	}
	return text, nil
}
