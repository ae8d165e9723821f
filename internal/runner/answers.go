package runner

import (
	"context"

	"agentd/internal/core"
	"agentd/internal/judge"
	"agentd/sdk"
)

// judged adds to a reply of text its output, and what judges and gates have against it.
func (a *activation) judged(ctx context.Context, ev core.Replied) (core.Event, error) {
	if a.agent.Judge != nil {
		ev.Objections = a.agent.Judge(a.judgeable(ev.Reply.Text))
	}
	if a.agent.Core.Converse {
		return ev, nil
	}
	event, err := a.withOutput(ctx, ev.Reply.Text, func(o core.Output) core.Event {
		ev.Output = &o
		return ev
	})
	replied, ok := event.(core.Replied)
	if !ok || err != nil || replied.Output.Fault != "" {
		return event, err
	}
	if replied.Question, err = core.AnswerQuestion(a.agent.Core, a.state, replied.Output.Data); err != nil || a.agent.CheckOutput == nil {
		return replied, err
	}
	if err := a.write(ctx); err != nil {
		return nil, err
	}
	objections, err := guarded(func() ([]core.Objection, error) {
		return a.agent.CheckOutput(ctx, sdk.RequirementInput{Run: a.state.Run, Input: a.state.Input, Output: replied.Output.Data})
	})
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		a.Logger.ErrorContext(ctx, "gate failed", "run", a.state.Run, "error", err)
		return core.Ended{Ending: core.Ending{
			Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "a gate of the agent failed", Detail: "gate",
		}}, nil
	}
	replied.Objections = append(replied.Objections, objections...)
	return replied, nil
}

// judgeable is a text with the calls that led to it.
func (a *activation) judgeable(text string) judge.Reply {
	r := judge.Reply{Text: text}
	for i := range a.state.History {
		m := &a.state.History[i]
		for j := range m.Content {
			c := &m.Content[j]
			if !c.IsResult() {
				continue
			}
			r.Calls = append(r.Calls, judge.Call{Tool: c.Tool, Failed: c.IsError, Result: c.Text})
			if m.Turns > a.state.Answers.Heard {
				r.Since++
			}
		}
	}
	return r
}

// degraded is how the run completes without a model, where its agent has a text for that; nil is not so.
func (a *activation) degraded(ctx context.Context, failed *sdk.Error) *core.Ended {
	if a.agent.Degraded == "" || a.agent.BuildOutput == nil {
		return nil
	}
	output, err := a.buildOutput(ctx, a.agent.Degraded)
	if err != nil || output.Fault != "" {
		a.Logger.ErrorContext(ctx, "the degraded answer is not an output of the agent", "run", a.state.Run, "fault", output.Fault, "error", err)
		return nil
	}
	a.Logger.WarnContext(ctx, "no model answered; the run completes with the degraded answer", "run", a.state.Run, "error", failed)
	return &core.Ended{Degraded: output.Data}
}
