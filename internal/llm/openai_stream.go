package llm

import (
	"slices"
	"strings"

	"agentd/sdk"
)

// assembly puts a streamed reply together.
type assembly struct {
	partial completion
	text    strings.Builder
	refusal strings.Builder
	calls   []*partialCall
	kept    kept
}

// partialCall is a tool call of which fragments arrive. Fragments of parallel calls may be mixed: index says which.
type partialCall struct {
	index     int64
	id        string
	name      string
	arguments strings.Builder
}

// whole reports whether the model has ended its reply. What may still come is what it used.
func (a *assembly) whole() bool { return a.partial.finish != "" }

func (a *assembly) add(chunk chatChunk, onDelta func(sdk.Delta)) {
	// Most servers send usage once, at the end; some send a running total.
	if u := usage(chunk.Usage); u != (sdk.Usage{}) {
		a.partial.usage = u
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		a.partial.answered = true
		if choice.FinishReason != "" {
			a.partial.finish = choice.FinishReason
		}
		for _, fragment := range []string{choice.Delta.Content, choice.Delta.Refusal} {
			if fragment != "" {
				onDelta(sdk.Delta{Text: fragment})
			}
		}
		a.kept.add(choice.Delta.Content, choice.Delta.Refusal)
		a.text.WriteString(choice.Delta.Content)
		a.refusal.WriteString(choice.Delta.Refusal)
		for _, fragment := range choice.Delta.ToolCalls {
			a.addCall(fragment, onDelta)
		}
	}
}

func (a *assembly) addCall(fragment chatFragment, onDelta func(sdk.Delta)) {
	call := a.find(fragment.Index, fragment.ID)
	if call == nil {
		call = &partialCall{index: fragment.Index, id: fragment.ID}
		a.calls = append(a.calls, call)
		a.kept += partCost
	}
	if call.name == "" && fragment.Function.Name != "" {
		call.name = fragment.Function.Name
		onDelta(sdk.Delta{Tool: call.name})
	}
	a.kept.add(fragment.ID, fragment.Function.Name, fragment.Function.Arguments)
	call.arguments.WriteString(fragment.Function.Arguments)
}

// find returns the call that a fragment belongs to: the newest of its index, unless the fragment has another id, because
// some servers give every parallel call the index 0.
func (a *assembly) find(index int64, id string) *partialCall {
	for _, call := range slices.Backward(a.calls) {
		if call.index != index {
			continue
		}
		if id == "" || call.id == "" || call.id == id {
			return call
		}
	}
	return nil
}

func (a *assembly) completion() completion {
	c := a.partial
	c.text, c.refusal = a.text.String(), a.refusal.String()
	slices.SortStableFunc(a.calls, func(x, y *partialCall) int { return int(x.index - y.index) })
	for _, call := range a.calls {
		c.calls = append(c.calls, sdk.ToolRequest{Name: call.name, Arguments: call.arguments.String()})
	}
	return c
}
