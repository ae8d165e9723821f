package sdk

import (
	"context"
	"encoding/json"
	"math"
)

// Lifecycle tells a model why it is called.
type Lifecycle string

// The lifecycles.
const (
	LifecycleInit                Lifecycle = "init"
	LifecycleToolResult          Lifecycle = "tool_result"
	LifecycleOutputErrorFeedback Lifecycle = "output_error_feedback"
	// LifecycleUserMessage: somebody sent a message into the run.
	LifecycleUserMessage Lifecycle = "user_message"
	// LifecycleReminder: the last reply had no tool call, and the model is reminded to make one.
	LifecycleReminder Lifecycle = "reminder"
	// LifecycleNudge: the last reply was not an answer, and the model is told so.
	LifecycleNudge Lifecycle = "nudge"
)

// TurnKind is what a model is asked for in a turn. Empty is none of them, such as a summary of a conversation.
type TurnKind string

// The kinds of turns.
const (
	// TurnTools: the model may call tools.
	TurnTools TurnKind = "tools"
	// TurnConversation: the model has no tools, and is to say something.
	TurnConversation TurnKind = "conversation"
	// TurnSummary: the model is asked for its final answer, without tools.
	TurnSummary TurnKind = "summary"
)

// ToolDefinition is what a model is shown of a tool.
type ToolDefinition struct {
	// Name matches ^[a-zA-Z0-9_-]{1,64}$.
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Server names the toolset that the tool comes from; empty is the agent's own. Models that call tools in text are told.
	Server string `json:"server,omitempty"`
	// Parameters is a JSON Schema whose root is an object.
	Parameters json.RawMessage `json:"parameters"`
}

// Interactions is how far a run is with its model calls. Current counts the calls made before this one.
type Interactions struct {
	Current, Max int
	// Exhausted says that this is the last call the limit allows.
	Exhausted bool
}

// ModelRequest is everything a provider may look at. It must not be modified.
type ModelRequest struct {
	Run       string
	Lifecycle Lifecycle
	// Model is the vendor's name of the model.
	Model  string
	System string
	// Turn are the sections that precede the newest input: what is planned, what was looked up. A Registry puts
	// them into the Messages, so providers find none.
	Turn []Section
	// Messages carry their seen counts; a provider masks media that the model has seen.
	Messages []Message
	// Tools are in a stable order, so that providers can cache the prompt.
	Tools []ToolDefinition
	// Output is the JSON Schema of the answer; nil asks for free text.
	Output       json.RawMessage
	Interactions Interactions
	// Kind is what the model is asked for.
	Kind TurnKind
	// Temperature and TopP are nil, and MaxTokens, which bounds the reply, is 0 for the vendor's default. Before a Registry fills in
	// what the ModelSpec says, they are what hooks want instead of that.
	Temperature *float64
	TopP        *float64
	MaxTokens   int
	// Thinking is ModelSpec's.
	Thinking string
	// Tokens is how many tokens the run may still use; 0 is any number.
	Tokens int64
}

// Section is a named part of a prompt.
type Section struct {
	// Name is lower-case with underscores, such as "planning".
	Name string
	Text string
}

// ModelReply is one whole reply. A reply may have text beside its calls.
type ModelReply struct {
	Text  string
	Calls []ToolRequest
	// Thinking is what has to be sent back with the results of the calls: content of the kinds thinking and redacted_thinking.
	Thinking []Content
	// Usage is what limits of tokens count. A provider of agentd.yaml estimates it where its server does not say; others say it themselves.
	Usage Usage
	// Estimated says that some of Usage is.
	Estimated bool
	// Units is the cost; a provider that does not price reports tokens as whole units.
	Units Units
	// Model is the name of the model that answered, which differs from the one asked when a fallback did.
	Model string
	// Truncated says that the reply was cut by a limit of length.
	Truncated bool
	// Fault says that the reply has a tool call that cannot be understood: none of its calls are made, Text is all that
	// was written, and the model is told.
	Fault *ReplyFault
}

// ReplyFault is what is wrong with a reply.
type ReplyFault struct {
	// Class is "parse_error", "missing_field" or "invalid_arguments".
	Class string `json:"class"`
	// Message is what the model is told.
	Message string `json:"message"`
}

// ToolRequest is one call that a model asks for.
type ToolRequest struct {
	Name string
	// Arguments is the text that the model wrote. It should be a JSON object, and is not trusted to be.
	Arguments string
	// Written is set where a provider had to correct what the model wrote to understand it as this call: what that was. Repair says in
	// words what was done.
	Written, Repair string
}

// Usage is what a model call used, in tokens.
type Usage struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
	// CacheRead and CacheWrite are parts of Prompt: read from the provider's cache, and written to it.
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// Add adds what another model call used. Less than nothing counts as nothing, and no sum goes beyond the largest number: providers say what
// they like.
func (u *Usage) Add(o Usage) {
	for _, count := range []struct {
		total *int64
		more  int64
	}{{&u.Prompt, o.Prompt}, {&u.Completion, o.Completion}, {&u.CacheRead, o.CacheRead}, {&u.CacheWrite, o.CacheWrite}} {
		*count.total += min(max(count.more, 0), math.MaxInt64-max(*count.total, 0))
	}
}

// Delta is a best-effort fragment of a reply while it is being made. After a failed attempt the fragments start anew
// with Reset.
type Delta struct {
	Text string `json:"text,omitempty"`
	// Thinking is what the model says to itself.
	Thinking string `json:"thinking,omitempty"`
	// Tool is the name of a tool call that begins.
	Tool  string `json:"tool,omitempty"`
	Reset bool   `json:"reset,omitempty"`
}

// Provider calls a model once; retries belong to the caller. onDelta may be nil. Errors are *Error, or ctx's when ctx ended:
// CodeModel says that the request itself was refused, which ends the run. After any other the run waits for the model;
// CodeRateLimited and CodeUnavailable, which are retryable, are tried again at once. Safe for concurrent use.
type Provider interface {
	Generate(ctx context.Context, req ModelRequest, onDelta func(Delta)) (ModelReply, error)
}
