package runner

import (
	"agentd/sdk"
	"agentd/sdk/wire"
)

// part is what a reply is made of: thinking, messages and calls, each between two live events.
type part struct{ started, ended string }

var (
	partThinking = part{wire.LiveThinkingStarted, wire.LiveThinkingEnded}
	partMessage  = part{wire.LiveMessageStarted, wire.LiveMessageEnded}
	partCall     = part{wire.LiveCallStarted, wire.LiveCallEnded}
)

// fragments tells whoever watches of one reply while it is made. It is used by the goroutine of the model call.
type fragments struct {
	*activation
	turn int
	// open is the part that is being made, and tool what a call is of.
	open part
	tool string
}

// calledTool is the data of the live events around a call.
type calledTool struct {
	Tool string `json:"tool,omitempty"`
}

// add passes a fragment on, and counts as progress. After a Reset nothing is open: what came before is void.
func (f *fragments) add(d sdk.Delta) {
	f.progress()
	if d.Reset {
		f.open = part{}
	}
	switch {
	case d.Tool != "":
		f.begin(partCall, d.Tool)
	case d.Thinking != "":
		f.begin(partThinking, "")
	case d.Text != "":
		f.begin(partMessage, "")
	}
	f.live(wire.LiveDelta, f.turn, func() any { return d })
}

// begin makes p the open part. Fragments of thinking and of messages go on with what is open; every call is one of its own.
func (f *fragments) begin(p part, tool string) {
	if f.open == p && p != partCall {
		return
	}
	f.end()
	f.open, f.tool = p, tool
	f.live(p.started, f.turn, func() any { return calledTool{tool} })
}

// end closes what is open: another part follows, or the reply is whole, or it came to nothing.
func (f *fragments) end() {
	if f.open != (part{}) {
		f.live(f.open.ended, f.turn, func() any { return calledTool{f.tool} })
	}
	f.open, f.tool = part{}, ""
}
