package llm

import (
	"context"
	"errors"
	"slices"
	"strings"

	"agentd/sdk"
)

const (
	// mostContinuations is how often a reply that a limit of length cut is gone on with.
	mostContinuations = 3
	// mostRecoveries is how often a reply whose connection broke is gone on with, in one attempt.
	mostRecoveries = 2

	goOnText = "Your reply was cut off there. Go on with the very next character: no introduction, no repetition."
)

// goOn is the request for what comes after said. The schema of the answer is left out: servers that enforce it would have
// the model begin anew, and whoever asked checks the whole.
func goOn(req sdk.ModelRequest, said string) sdk.ModelRequest {
	req.Messages = append(slices.Clip(req.Messages), sdk.Text(sdk.RoleAssistant, said), sdk.Text(sdk.RoleUser, goOnText))
	req.Output = nil
	return req
}

// Continuing has p go on, up to three times, with a reply that a limit of length cut before there was any call in it, and
// returns all as one reply with what it cost together. It does not begin another part when the run's tokens are used up
// (ModelRequest.Tokens). What still has no end after that is returned with Truncated.
func Continuing(p sdk.Provider) sdk.Provider { return continuing{p} }

type continuing struct{ provider sdk.Provider }

func (c continuing) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	whole, err := c.provider.Generate(ctx, req, onDelta)
	for range mostContinuations {
		used := whole.Usage.Prompt + whole.Usage.Completion
		if err != nil || !unfinished(&whole) || req.Tokens > 0 && used >= req.Tokens {
			break
		}
		var next sdk.ModelReply
		next, err = c.provider.Generate(ctx, goOn(req, whole.Text), after(whole.Text, onDelta))
		if err == nil {
			whole = joined(whole, next)
		}
	}
	if err != nil {
		return sdk.ModelReply{}, err
	}
	return whole, nil
}

func unfinished(r *sdk.ModelReply) bool {
	return r.Truncated && len(r.Calls) == 0 && r.Fault == nil && strings.TrimSpace(r.Text) != ""
}

// joined is one reply of two parts. Thinking belongs to the part with the calls.
func joined(a, b sdk.ModelReply) sdk.ModelReply {
	b.Text = a.Text + b.Text
	b.Units.Add(a.Units)
	b.Estimated = a.Estimated || b.Estimated
	b.Usage.Add(a.Usage)
	return b
}

// after passes on the fragments of what comes after said: a Reset voids only the part that is made, so said is told again.
func after(said string, onDelta func(sdk.Delta)) func(sdk.Delta) {
	if onDelta == nil || said == "" {
		return onDelta
	}
	return func(d sdk.Delta) {
		onDelta(d)
		if d.Reset {
			onDelta(sdk.Delta{Text: said})
		}
	}
}

// recovering has a provider go on, up to twice, with a reply whose connection broke while text arrived, instead of asking for
// all of it again. What the lost part cost is not known, as with any failed attempt. A reply with a call is not gone on with:
// its arguments are not whole.
type recovering struct{ provider sdk.Provider }

func (r recovering) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	if onDelta == nil {
		return r.provider.Generate(ctx, req, nil)
	}
	said, called := "", false
	listen := func(d sdk.Delta) {
		said, called = said+d.Text, called || d.Tool != ""
		onDelta(d)
	}
	ask, before := req, ""
	for recoveries := 0; ; recoveries++ {
		reply, err := r.provider.Generate(ctx, ask, listen)
		if err == nil {
			reply.Text = before + reply.Text
			return reply, nil
		}
		broken := errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) && strings.TrimSpace(said) != "" && said != before && !called
		if !broken || recoveries == mostRecoveries || ctx.Err() != nil {
			return sdk.ModelReply{}, err
		}
		ask, before = goOn(req, said), said
	}
}
