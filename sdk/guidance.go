package sdk

import (
	_ "embed"
	"strings"
)

// Guidance are the sections of a system prompt after its instructions, in this order: text/template like
// AgentSpec.System, and over .Interactions. Empty ones are left out.
type Guidance struct {
	Loop         string `json:"loop,omitempty"`
	Capabilities string `json:"capabilities,omitempty"`
	Thinking     string `json:"thinking,omitempty"`
}

// The sections that come with agentd.
var (
	//go:embed guidance/loop.md
	standardLoop string
	//go:embed guidance/capabilities.md
	standardCapabilities string
	//go:embed guidance/thinking.md
	standardThinking string
)

// StandardGuidance are sections for any agent that calls tools: how to go about a task, what there is to act with, and how to think. An
// agent includes all of them or some.
func StandardGuidance() Guidance {
	return Guidance{
		Loop: strings.TrimSpace(standardLoop), Capabilities: strings.TrimSpace(standardCapabilities), Thinking: strings.TrimSpace(standardThinking),
	}
}
