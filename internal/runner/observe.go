package runner

import (
	"context"
	"encoding/json"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/sdk"
)

// Observer is told what activations do, for telemetry. It decides nothing, but for the trace of a run whose init event has
// none. Its methods are called one after the other for an activation, Tool by the goroutines of its tools; they do not block. What they are
// given is only theirs until they return.
type Observer interface {
	// Begin is called once for each message. Everything that the activation calls gets the returned context.
	Begin(ctx context.Context, m *Message) context.Context
	// Loaded is called when the head of the run was read, which is zero for a run that does not exist yet; at is when its
	// last entry was made, in Unix milliseconds. It returns the traceparent for a run that the message starts, or "". Repairs, which no
	// message asks for, call it and Appended with a context that Begin has not returned.
	Loaded(ctx context.Context, h *core.Head, at int64) (traceparent string)
	// Appended is called when an entry of that many bytes is durable.
	Appended(ctx context.Context, e *core.Entry, size int)
	// Answered is called when an entry is durable that says how an attempt at a service's call ended.
	Answered(ctx context.Context, attempt Attempt)
	// Budgeted is called before a model call of that agent, with what the tokens of its prompt are for.
	Budgeted(ctx context.Context, agent string, ledger *prompt.Ledger)
	// Tool runs an inline tool, and returns what it returns.
	Tool(ctx context.Context, tool sdk.Tool, call sdk.ToolCall) (json.RawMessage, error)
	// End is called when the message is about to be settled.
	End(ctx context.Context, v Verdict, err error)
}

// Attempt is an attempt at a service's call that has ended.
type Attempt struct {
	Agent, Type string
	// Millis is from when the run had sent it to when the run had its end, by the clocks of the workers that did that.
	Millis int64
	// Outcome is "ok", "error" or "timeout".
	Outcome string
}

// ended tells the observer of the attempts at service calls that end with an entry. before is the head that the entry is
// based on.
func (a *activation) ended(ctx context.Context, before *core.Head, e *core.Entry) {
	for i := range before.Calls {
		c := &before.Calls[i]
		sent := a.agent.Core.SentAt(c)
		if sent == 0 || c.Closed() {
			continue
		}
		if outcome := outcome(c, e); outcome != "" {
			a.Observer.Answered(ctx, Attempt{Agent: e.Head.Agent, Type: c.Type, Millis: max(e.At-sent, 0), Outcome: outcome})
		}
	}
}

// outcome is how the last attempt at an open call ended with an entry, or "".
func outcome(c *core.Call, e *core.Entry) string {
	for i := range e.Results {
		r := &e.Results[i]
		switch {
		case r.Call != c.ID:
			continue
		case r.Kind == core.ResultTimeout:
			return "timeout"
		case r.Kind != core.ResultAnswer: // the run ended first
			return ""
		case r.Error:
			return "error"
		}
		return "ok"
	}
	for i := range e.Head.Calls {
		if next := &e.Head.Calls[i]; next.ID == c.ID && next.RetryAt > 0 && c.RetryAt == 0 {
			if len(next.Refused) > len(c.Refused) {
				return "error"
			}
			return "timeout"
		}
	}
	return ""
}

// unobserved is the Observer of a Runner that was given none.
type unobserved struct{}

func (unobserved) Begin(ctx context.Context, _ *Message) context.Context   { return ctx }
func (unobserved) Loaded(context.Context, *core.Head, int64) (none string) { return }
func (unobserved) Appended(context.Context, *core.Entry, int)              {}
func (unobserved) Answered(context.Context, Attempt)                       {}
func (unobserved) Budgeted(context.Context, string, *prompt.Ledger)        {}
func (unobserved) End(context.Context, Verdict, error)                     {}

func (unobserved) Tool(ctx context.Context, tool sdk.Tool, call sdk.ToolCall) (json.RawMessage, error) {
	return tool.Run(ctx, call)
}
