package llm

import (
	"strings"

	"agentd/sdk"
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
	stop    string
	usage   sdk.Usage
	kept    kept
}

// block is a tool call or a piece of thinking of which fragments arrive.
type block struct {
	index     int64
	kind      blockKind
	name      string
	signature string
	// input are the arguments of a call of which no fragments arrive.
	input   string
	content strings.Builder
}

// whole reports whether the model has ended its reply.
func (b *blocks) whole() bool { return b.stop != "" }

func (b *blocks) add(event messageEvent, onDelta func(sdk.Delta)) {
	switch event.Type {
	case "message_start":
		b.started = true
		b.count(event.Message.Usage)
	case "content_block_start":
		b.begin(event, onDelta)
	case "content_block_delta":
		b.extend(event, onDelta)
	case "message_delta":
		if event.Delta.StopReason != "" {
			b.stop = event.Delta.StopReason
		}
		// Counts are of the whole message so far; servers leave out those that did not change.
		b.count(event.Usage)
	}
}

// count takes the three parts of a prompt together: the protocol counts those in the cache apart.
func (b *blocks) count(u messageUsage) {
	if u.Input != nil {
		b.usage.Prompt, b.usage.CacheRead, b.usage.CacheWrite = *u.Input+u.CacheRead+u.CacheWrite, u.CacheRead, u.CacheWrite
	}
	if u.Output != nil {
		b.usage.Completion = *u.Output
	}
}

func (b *blocks) begin(event messageEvent, onDelta func(sdk.Delta)) {
	start := event.ContentBlock
	next := &block{index: event.Index}
	b.kept += partCost
	b.kept.add(start.Text, start.Name, start.Thinking, start.Signature, start.Data, string(start.Input))
	switch start.Type {
	case blockTypeText:
		b.say(start.Text, onDelta)
	case blockTypeToolUse:
		next.kind, next.name, next.input = blockTool, start.Name, string(start.Input)
		onDelta(sdk.Delta{Tool: start.Name})
	case blockTypeThinking:
		next.kind, next.signature = blockThinking, start.Signature
		next.content.WriteString(start.Thinking)
	case blockTypeRedacted:
		next.kind, next.signature = blockRedacted, start.Data
	}
	b.all = append(b.all, next)
}

func (b *blocks) extend(event messageEvent, onDelta func(sdk.Delta)) {
	at := b.find(event.Index)
	b.kept.add(event.Delta.Text, string(event.Delta.PartialJSON), event.Delta.Thinking, event.Delta.Signature)
	switch d := event.Delta; d.Type {
	case "text_delta":
		b.say(d.Text, onDelta)
	case deltaTypeInput:
		at.content.WriteString(string(d.PartialJSON))
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
