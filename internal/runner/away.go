package runner

import (
	"context"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// modelAway says that a model call failed for a reason that is not the request's: the run is handed back, and its message is
// delivered again after pause.
type modelAway struct {
	cause error
	pause time.Duration
}

func (e *modelAway) Error() string { return "the model is away: " + e.cause.Error() }

// ofRequest reports whether a model's failure is about what it was asked, so that it would fail again: the run ends.
// Everything else may pass, what an operator has to mend too: the run waits.
func ofRequest(e *sdk.Error) bool {
	return e.Code == sdk.CodeModel && !e.Retryable || e.Code == sdk.CodeTooLarge
}

// awayPauses are before a model is asked again, by the deliveries of the message.
var awayPauses = retry.Pauses{First: 30 * time.Second, Longest: 10 * time.Minute}

// handBack tells who watches that the run waits for its model, and returns why and for how long.
func (a *activation) handBack(ctx context.Context, e *sdk.Error) error {
	pause := a.awayPause(e.RetryAfter)
	a.Logger.WarnContext(ctx, "run waits for its model", "run", a.state.Run, "agent", a.state.Agent,
		"pause", pause, "error", e)
	a.live(wire.LiveModelAway, a.state.Turns+1, map[string]any{
		modelMember: a.agent.ModelName, "code": e.Code, "message": e.Message, "pause": pause.Milliseconds(),
	})
	return &modelAway{e, pause}
}

// awayPause is not shorter than the provider asked for, and not longer than the run may take. Up to a quarter of it is added by
// the run's key, so that the runs which an outage stopped together do not all come back together.
func (a *activation) awayPause(asked time.Duration) time.Duration {
	pause := awayPauses.Nth(a.msg.Delivered)
	added := pause / 4 * time.Duration(a.spread(1000)) / 1000
	left := time.Duration(a.state.Deadline-a.Env.Now()) * time.Millisecond
	return max(min(max(pause, asked)+added, left), 0)
}
