package llm

import (
	"context"
	"errors"
	"strings"

	"agentd/sdk"
)

// Fallback asks each of providers in order until one answers. The request reaches each as it is. When all fail, the
// error lists every failure, and is retryable if any of them is.
func Fallback(providers ...sdk.Provider) sdk.Provider {
	if len(providers) == 1 {
		return providers[0]
	}
	return fallback(providers)
}

type fallback []sdk.Provider

func (f fallback) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	fragments := &fragments{send: onDelta}
	var failures []error
	for _, p := range f {
		fragments.reset()
		reply, err := p.Generate(ctx, req, fragments.listener())
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return sdk.ModelReply{}, ctx.Err()
		}
		failures = append(failures, err)
	}
	return sdk.ModelReply{}, allFailed(failures)
}

// allFailed has the code of the first failure that may pass, because that is the one to wait for; else of the first.
func allFailed(failures []error) error {
	if len(failures) == 0 {
		return sdk.Errorf(sdk.CodeConfig, "there is no model to ask")
	}
	var messages []string
	var chosen *sdk.Error
	for _, err := range failures {
		e := sdk.AsError(err)
		messages = append(messages, e.Message)
		if chosen == nil || (e.Retryable && !chosen.Retryable) {
			chosen = e
		}
	}
	all := *chosen
	all.Message = "no model answered: " + strings.Join(messages, "; ")
	all.Cause = errors.Join(failures...)
	return &all
}
