package runner

import (
	"context"
	"slices"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
)

// Selection chooses the tools that a model is offered, of many. Its functions are safe for concurrent use.
type Selection struct {
	// Tools is the digest of the tools that there are.
	Tools string
	// Choose chooses for what people have said, the newest first. It may ask a model for embeddings, and goes by words when that fails.
	Choose func(ctx context.Context, wanted []string) core.Offered
	// Person reports whether a tool's results are what a person says, and Finds whether they are tools that the model may call.
	Person, Finds func(tool string) bool
}

// choiceTimeout bounds one choice, with the embeddings that it needs.
const choiceTimeout = 30 * time.Second

// choose chooses the tools that the model is offered next; nil is that the journal has the choice. It is made once for what people have
// said, and is durable before the model is asked, so that whoever repeats the turn offers the same.
func (a *activation) choose(ctx context.Context) (core.Event, error) {
	s := a.agent.Selection
	if s == nil {
		return nil, nil
	}
	wanted := a.state.Wanted(s.Person)
	of := core.Digest([]byte(s.Tools + "\x00" + strings.Join(wanted, "\x00")))
	if o := a.state.Offered; o != nil && o.For == of {
		return nil, nil
	}
	within, cancel := a.withTimeout(ctx, choiceTimeout)
	defer cancel()
	offered := s.Choose(within, wanted)
	if err := ctx.Err(); err != nil && !woken(ctx) {
		return nil, err
	}
	offered.For = of
	if offered.Degraded != "" {
		a.Logger.WarnContext(ctx, "tools are chosen by words, because embeddings cannot be had", "run", a.state.Run, "error", offered.Degraded)
	}
	return core.Chosen{Offered: offered}, nil
}

// offered are the tools that the model is offered, unless something hides them.
func (a *activation) offered() []sdk.ToolDefinition {
	all := slices.Clone(a.agent.Definitions)
	s, o := a.agent.Selection, a.state.Offered
	if s == nil || o == nil {
		return all
	}
	uses := a.state.Uses(s.Finds)
	return slices.DeleteFunc(all, func(d sdk.ToolDefinition) bool { return !uses[d.Name] && !slices.Contains(o.Tools, d.Name) })
}
