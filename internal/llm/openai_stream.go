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
	id        callID
	name      string
	arguments strings.Builder
	// atOnce says that its first fragment was all of it.
	atOnce bool
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
		content, refusal := string(choice.Delta.Content), choice.Delta.Refusal
		for _, fragment := range []string{content, refusal} {
			if fragment != "" {
				onDelta(sdk.Delta{Text: fragment})
			}
		}
		a.kept.add(content, refusal)
		a.text.WriteString(content)
		a.refusal.WriteString(refusal)
		for _, fragment := range choice.Delta.ToolCalls {
			a.addCall(fragment, onDelta)
		}
	}
}

func (a *assembly) addCall(fragment chatFragment, onDelta func(sdk.Delta)) {
	arguments := string(fragment.Function.Arguments)
	call := a.find(&fragment)
	if call == nil {
		call = &partialCall{index: fragment.Index, id: fragment.ID, atOnce: fragment.whole()}
		a.calls = append(a.calls, call)
		a.kept += partCost
	}
	if call.name == "" && fragment.Function.Name != "" {
		call.name = fragment.Function.Name
		onDelta(sdk.Delta{Tool: call.name})
	}
	a.kept.add(string(fragment.ID), fragment.Function.Name, arguments)
	call.arguments.WriteString(arguments)
}

// find returns the call that a fragment belongs to: the newest of its index that it can be of, because some servers give every parallel
// call the index 0.
func (a *assembly) find(fragment *chatFragment) *partialCall {
	for _, call := range slices.Backward(a.calls) {
		if call.index == fragment.Index && call.goesOnWith(fragment) {
			return call
		}
	}
	return nil
}

// goesOnWith goes by the ids of both. Where one has none, what has another name, or is a whole call as this one is, is another call.
func (c *partialCall) goesOnWith(fragment *chatFragment) bool {
	if c.id != "" && fragment.ID != "" {
		return c.id == fragment.ID
	}
	renamed := c.name != "" && fragment.Function.Name != "" && c.name != fragment.Function.Name && c.arguments.Len() > 0
	return !renamed && (!c.atOnce || !fragment.whole())
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
