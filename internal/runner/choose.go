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
	// Fit chooses in the same way for a step of a plan, with no regard to categories: there is nobody to open them.
	Fit func(ctx context.Context, step string) core.Offered
	// Person reports whether a tool's results are what a person says, and Finds whether they are tools that the model may call.
	Person, Finds func(tool string) bool
}

// choiceTimeout bounds one choice, with the embeddings that it needs.
const choiceTimeout = 30 * time.Second

// choose chooses the tools that the model is offered next; nil is that the journal has the choice, or that there is none to make. It is made once for what people have
// said, and is durable before the model is asked, so that whoever repeats the turn offers the same.
func (a *activation) choose(ctx context.Context) (core.Event, error) {
	s := a.agent.Selection
	if s == nil || a.state.Synthesizes() {
		return nil, nil
	}
	wanted := a.state.Wanted(s.Person)
	of := core.Digest([]byte(s.Tools + "\x00" + strings.Join(wanted, "\x00")))
	if o := a.state.Offered; o != nil && o.For == of {
		return nil, nil
	}
	if err := a.write(ctx); err != nil {
		return nil, err
	}
	within, cancel := a.withTimeout(ctx, choiceTimeout)
	defer cancel()
	offered := s.Choose(within, wanted)
	if err := ctx.Err(); err != nil && !woken(ctx) {
		return nil, err
	}
	offered.For = of
	a.degradedChoice(ctx, &offered)
	return core.Chosen{Offered: offered}, nil
}

func (a *activation) degradedChoice(ctx context.Context, o *core.Offered) {
	if o.Degraded != "" {
		a.Logger.WarnContext(ctx, "tools are chosen by words, because embeddings cannot be had", "run", a.state.Run, "error", o.Degraded)
	}
}

// offerSteps chooses the tools that the router is offered for each step of a new plan. They are durable with the plan, so that whoever
// repeats a routing offers the same.
func (a *activation) offerSteps(ctx context.Context, made core.Planned) (core.Event, error) {
	s := a.agent.Selection
	if s == nil {
		return made, nil
	}
	within, cancel := a.withTimeout(ctx, choiceTimeout)
	defer cancel()
	for i := range made.Steps {
		offered := s.Fit(within, made.Steps[i].Text)
		a.degradedChoice(ctx, &offered)
		made.Offers = append(made.Offers, offered)
	}
	if err := ctx.Err(); err != nil && !woken(ctx) {
		return nil, err
	}
	return made, nil
}

// offered are the tools that the model is offered, unless something hides them.
func (a *activation) offered() []sdk.ToolDefinition {
	if a.state.Synthesizes() {
		return nil
	}
	all := slices.Clone(a.agent.Definitions)
	s, o := a.agent.Selection, a.state.Offered
	if s == nil || o == nil {
		return all
	}
	uses := a.state.Uses(s.Finds)
	return slices.DeleteFunc(all, func(d sdk.ToolDefinition) bool { return !uses[d.Name] && !slices.Contains(o.Tools, d.Name) })
}
