package llm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/sdk"
)

// Alternative is a provider of a Fallback.
type Alternative struct {
	sdk.Provider
	// On are the codes of the failure before it that it is asked after; none is all. The first alternative has no use for it.
	On []sdk.Code
}

// Fallback asks each of the alternatives in order until one answers. The request reaches each as it is. Of the time until ctx's deadline
// each has the same share, so that one that hangs keeps nobody from being asked. When all that were asked fail, the error lists every failure, and is retryable if any of them is.
func Fallback(alternatives ...Alternative) sdk.Provider {
	if len(alternatives) == 1 {
		return alternatives[0].Provider
	}
	return fallback(alternatives)
}

type fallback []Alternative

func (f fallback) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	fragments := &fragments{send: onDelta}
	var failures []error
	var share time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		share = time.Until(deadline) / time.Duration(len(f))
	}
	for _, a := range f {
		if last := len(failures) - 1; last >= 0 && !a.after(sdk.AsError(failures[last]).Code) {
			continue
		}
		fragments.reset()
		reply, err := a.within(ctx, share, req, fragments.listener())
		if err == nil {
			return reply, nil
		}
		if ctx.Err() != nil {
			return sdk.ModelReply{}, ctx.Err()
		}
		failures = append(failures, err)
	}
	if len(failures) == 1 {
		return sdk.ModelReply{}, failures[0]
	}
	return sdk.ModelReply{}, allFailed(failures)
}

// after reports whether the alternative is asked after a failure with that code.
func (a *Alternative) after(code sdk.Code) bool { return len(a.On) == 0 || slices.Contains(a.On, code) }

// within asks the alternative for so long at most; 0 is for as long as ctx lasts.
func (a *Alternative) within(
	ctx context.Context, share time.Duration, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	if share <= 0 {
		return a.Generate(ctx, req, onDelta)
	}
	bounded, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	reply, err := a.Generate(bounded, req, onDelta)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return sdk.ModelReply{}, &sdk.Error{
			Code: sdk.CodeUnavailable, Message: fmt.Sprintf("the model did not answer within %s", share.Round(time.Millisecond)), Retryable: true, Cause: err,
		}
	}
	return reply, err
}

// allFailed has the code of the first failure that may pass, because that is the one to wait for; else of the first that an
// operator can mend; else of the first.
func allFailed(failures []error) error {
	if len(failures) == 0 {
		return sdk.Errorf(sdk.CodeConfig, "no model to ask")
	}
	var messages []string
	var chosen *sdk.Error
	for _, err := range failures {
		e := sdk.AsError(err)
		messages = append(messages, e.Message)
		if chosen == nil || hope(e) > hope(chosen) {
			chosen = e
		}
	}
	all := *chosen
	all.Message = "no model answered: " + strings.Join(messages, "; ")
	all.Cause = errors.Join(failures...)
	return &all
}

// hope is greater for a failure that is more likely to pass.
func hope(e *sdk.Error) int {
	switch {
	case e.Retryable:
		return 2
	case e.Code != sdk.CodeModel:
		return 1
	}
	return 0
}
