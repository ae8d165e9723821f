package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"agentd/sdk"
)

// ModelFunc is a model made of a function.
type ModelFunc func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error)

// Generate calls the function, and sends its text as one delta.
func (f ModelFunc) Generate(ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	reply, err := f(ctx, req)
	if err == nil && onDelta != nil && reply.Text != "" {
		onDelta(sdk.Delta{Text: reply.Text})
	}
	return reply, err
}

// Model is a scripted model. Which reply it gives depends only on how many model calls the request's run has behind it,
// so crashes, retries and parallel runs all get the same. It records every request.
type Model struct {
	replies []sdk.ModelReply

	mu       sync.Mutex
	requests []sdk.ModelRequest
}

// Script returns a model that gives the replies in order.
func Script(replies ...sdk.ModelReply) *Model { return &Model{replies: replies} }

// Generate gives the reply that the request's turn is due.
func (m *Model) Generate(_ context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	m.mu.Lock()
	m.requests = append(m.requests, req)
	m.mu.Unlock()
	turn := req.Interactions.Current
	if turn >= len(m.replies) {
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the script has %d replies, and a reply %d was asked for",
			len(m.replies), turn+1)
	}
	reply := m.replies[turn]
	if onDelta != nil {
		stream(reply, onDelta)
	}
	return reply, nil
}

// stream sends each part of a reply as one fragment.
func stream(reply sdk.ModelReply, onDelta func(sdk.Delta)) {
	for _, c := range reply.Thinking {
		if c.Text != "" {
			onDelta(sdk.Delta{Thinking: c.Text})
		}
	}
	if reply.Text != "" {
		onDelta(sdk.Delta{Text: reply.Text})
	}
	for _, c := range reply.Calls {
		onDelta(sdk.Delta{Tool: c.Name})
	}
}

// Requests are the requests so far, in order.
func (m *Model) Requests() []sdk.ModelRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]sdk.ModelRequest(nil), m.requests...)
}

// Say is a reply of text alone, at the cost of one unit.
func Say(text string) sdk.ModelReply {
	return sdk.ModelReply{Text: text, Units: 1_000_000, Usage: sdk.Usage{Prompt: 1, Completion: 1}}
}

// Ask is a reply with the given calls, at the cost of one unit.
func Ask(calls ...sdk.ToolRequest) sdk.ModelReply {
	return sdk.ModelReply{Calls: calls, Units: 1_000_000, Usage: sdk.Usage{Prompt: 1, Completion: 1}}
}

// Tool is one call of a tool; args is anything that encodes to a JSON object.
func Tool(name string, args any) sdk.ToolRequest {
	data, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("sdktest: arguments of %s: %v", name, err))
	}
	return sdk.ToolRequest{Name: name, Arguments: string(data)}
}
