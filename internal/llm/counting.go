package llm

import (
	"context"
	"encoding/json"
	"slices"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// counting estimates what a call used where its server does not say, or says what cannot be: a run's limit of tokens would not end it.
type counting struct {
	provider sdk.Provider
	count    prompt.Counter
}

func (c counting) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	reply, err := c.provider.Generate(ctx, req, onDelta)
	if err != nil {
		return sdk.ModelReply{}, err
	}
	said := reply.Usage
	if said.Prompt <= 0 {
		reply.Usage = sdk.Usage{Prompt: c.prompt(&req), Completion: said.Completion}
	}
	if said.Completion <= 0 {
		reply.Usage.Completion = c.completion(&reply)
	}
	reply.Estimated = reply.Usage != said
	if reply.Units == Price(sdk.ModelSpec{}, said) { // it has no prices of its own
		reply.Units = Price(sdk.ModelSpec{}, reply.Usage)
	}
	return reply, nil
}

func (c counting) prompt(req *sdk.ModelRequest) int64 {
	return int64(c.count.Prose(req.System) + c.count.Messages(req.Messages) + c.count.Tools(req.Tools))
}

func (c counting) completion(reply *sdk.ModelReply) int64 {
	said := slices.Clip(reply.Thinking)
	if reply.Text != "" {
		said = append(said, sdk.Content{Kind: sdk.ContentText, Text: reply.Text})
	}
	for _, call := range reply.Calls {
		said = append(said, sdk.Content{Kind: sdk.ContentToolUse, Tool: call.Name, Args: json.RawMessage(call.Arguments)})
	}
	if len(said) == 0 {
		return 0
	}
	return int64(c.count.Message(&sdk.Message{Content: said}))
}
