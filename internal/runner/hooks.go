package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"agentd/internal/core"
	"agentd/sdk"
)

// guarded calls code of an agent's author. A panic in it is an error, so that it ends the run at once: left alone, it
// would come back with every delivery of the message.
func guarded[T any](call func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}

// buildContext begins the conversation. problem is set when the agent's author has to mend something.
func (a *activation) buildContext(ctx context.Context, in sdk.ContextInput) (built sdk.Context, problem *sdk.Error, err error) {
	built, err = guarded(func() (sdk.Context, error) { return a.agent.BuildContext(ctx, in) })
	if err == nil {
		err = checkPatterns(built.Require)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return sdk.Context{}, nil, err
	case err != nil:
		return sdk.Context{}, unbuilt("context", err), nil
	case len(built.Messages) == 0:
		built.Messages, err = defaultMessages(in.Input)
	}
	return built, nil, err
}

// unbuilt is what is told of a part of a prompt that cannot be built. That it is too large is the input's fault, and anything else
// the agent's: what its author, or the template, says of it is told.
func unbuilt(part string, err error) *sdk.Error {
	told := sdk.Errorf(sdk.CodeConfig, "the agent's %s could not be built", part).WithCause(err)
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		if e.Code == sdk.CodeTooLarge {
			return e
		}
		told.Message += ": " + e.Message
	}
	return told
}

// defaultMessages is the input as the one message of a conversation, without what models are not shown.
func defaultMessages(input json.RawMessage) ([]sdk.Message, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	if _, ok := fields[sdk.ParentSubjectField]; ok {
		delete(fields, sdk.ParentSubjectField)
		var err error
		if input, err = core.EncodeJSON(fields); err != nil { // sorts the keys
			return nil, fmt.Errorf("encode input: %w", err)
		}
	}
	return []sdk.Message{sdk.Text(sdk.RoleUser, string(input))}, nil
}

// buildOutput makes of a text what the run puts out.
func (a *activation) buildOutput(ctx context.Context, text string) (core.Output, error) {
	return guarded(func() (core.Output, error) {
		data, fault, err := a.agent.BuildOutput(ctx, sdk.OutputInput{Run: a.state.Run, Text: text, Input: a.state.Input})
		return core.Output{Data: data, Fault: fault}, err
	})
}

// withOutput builds the output of a text and returns what becomes of it. A builder that breaks down ends the run: asking
// the model again would not mend it.
func (a *activation) withOutput(ctx context.Context, text string, built func(core.Output) core.Event) (core.Event, error) {
	output, err := a.buildOutput(ctx, text)
	switch {
	case err == nil:
		return built(output), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("build output of run %s: %w", a.state.Run, err)
	}
	a.Logger.ErrorContext(ctx, "output could not be built", "run", a.state.Run, "error", err)
	return core.Ended{Ending: core.Ending{
		Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "the agent's output could not be built",
	}}, nil
}
