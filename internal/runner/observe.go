package runner

import (
	"context"
	"encoding/json"

	"agentd/internal/core"
	"agentd/sdk"
)

// Observer is told what activations do, for telemetry. It decides nothing, but for the trace of a run whose init event has
// none. Its methods are called by the activation's goroutine, Tool by those of its tools; they do not block. What they are
// given is only theirs until they return.
type Observer interface {
	// Begin is called once for each message. Everything that the activation calls gets the returned context.
	Begin(ctx context.Context, m *Message) context.Context
	// Loaded is called when the head of the run was read, which is zero for a run that does not exist yet; at is when its
	// last entry was made, in Unix milliseconds. It returns the traceparent for a run that the message starts, or "".
	Loaded(ctx context.Context, h *core.Head, at int64) (traceparent string)
	// Appended is called when an entry of that many bytes is durable.
	Appended(ctx context.Context, e *core.Entry, size int)
	// Tool runs an inline tool, and returns what it returns.
	Tool(ctx context.Context, tool sdk.Tool, call sdk.ToolCall) (json.RawMessage, error)
	// End is called when the message is about to be settled.
	End(ctx context.Context, v Verdict, err error)
}

// unobserved is the Observer of a Runner that was given none.
type unobserved struct{}

func (unobserved) Begin(ctx context.Context, _ *Message) context.Context   { return ctx }
func (unobserved) Loaded(context.Context, *core.Head, int64) (none string) { return }
func (unobserved) Appended(context.Context, *core.Entry, int)              {}
func (unobserved) End(context.Context, Verdict, error)                     {}

func (unobserved) Tool(ctx context.Context, tool sdk.Tool, call sdk.ToolCall) (json.RawMessage, error) {
	return tool.Run(ctx, call)
}
