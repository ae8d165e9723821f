package llm

import (
	"strings"

	"agentd/sdk"

	"github.com/anthropics/anthropic-sdk-go"
)

// blockKind says what a block of a reply is; text is kept apart from the blocks.
type blockKind int

const (
	blockOther blockKind = iota
	blockTool
	blockThinking
	blockRedacted
)

// blocks puts a streamed reply together.
type blocks struct {
	// model is what thinking is kept for.
	model   string
	started bool
	text    strings.Builder
	all     []*block
	stop    anthropic.StopReason
	usage   sdk.Usage
	kept    kept
}

// block is a tool call or a piece of thinking of which fragments arrive.
type block struct {
	index     int64
	kind      blockKind
	name      string
	signature string
	content   strings.Builder
}

func (b *blocks) add(event anthropic.MessageStreamEventUnion, onDelta func(sdk.Delta)) {
	switch event.Type {
	case "message_start":
		b.started = true
		u := event.Message.Usage
		b.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens)
		b.usage.Completion = u.OutputTokens
	case "content_block_start":
		b.begin(event, onDelta)
	case "content_block_delta":
		b.extend(event, onDelta)
	case "message_delta":
		if event.Delta.StopReason != "" {
			b.stop = event.Delta.StopReason
		}
		// Counts are of the whole message so far; servers leave out those that did not change.
		if u := event.Usage; u.JSON.InputTokens.Valid() {
			b.count(u.InputTokens, u.CacheReadInputTokens, u.CacheCreationInputTokens)
		}
		if event.Usage.JSON.OutputTokens.Valid() {
			b.usage.Completion = event.Usage.OutputTokens
		}
	}
}

// count takes the three parts of a prompt together: the protocol counts those in the cache apart.
func (b *blocks) count(input, cacheRead, cacheWrite int64) {
	b.usage.Prompt, b.usage.CacheRead, b.usage.CacheWrite = input+cacheRead+cacheWrite, cacheRead, cacheWrite
}

func (b *blocks) begin(event anthropic.MessageStreamEventUnion, onDelta func(sdk.Delta)) {
	start := event.ContentBlock
	next := &block{index: event.Index}
	b.kept += partCost
	b.kept.add(start.Text, start.Name, start.Thinking, start.Signature, start.Data)
	switch start.Type {
	case "text":
		b.say(start.Text, onDelta)
	case "tool_use":
		next.kind, next.name = blockTool, start.Name
		onDelta(sdk.Delta{Tool: start.Name})
	case "thinking":
		next.kind, next.signature = blockThinking, start.Signature
		next.content.WriteString(start.Thinking)
	case "redacted_thinking":
		next.kind, next.signature = blockRedacted, start.Data
	}
	b.all = append(b.all, next)
}

func (b *blocks) extend(event anthropic.MessageStreamEventUnion, onDelta func(sdk.Delta)) {
	at := b.find(event.Index)
	b.kept.add(event.Delta.Text, event.Delta.PartialJSON, event.Delta.Thinking, event.Delta.Signature)
	switch d := event.Delta; d.Type {
	case "text_delta":
		b.say(d.Text, onDelta)
	case "input_json_delta":
		at.content.WriteString(d.PartialJSON)
	case "thinking_delta":
		at.content.WriteString(d.Thinking)
		onDelta(sdk.Delta{Thinking: d.Thinking})
	case "signature_delta":
		at.signature += d.Signature
	}
}

func (b *blocks) say(text string, onDelta func(sdk.Delta)) {
	if text != "" {
		b.text.WriteString(text)
		onDelta(sdk.Delta{Text: text})
	}
}

// find returns the block of that index; one that never began is of no use to anyone.
func (b *blocks) find(index int64) *block {
	for i := len(b.all) - 1; i >= 0; i-- {
		if b.all[i].index == index {
			return b.all[i]
		}
	}
	return &block{}
}
