package runner

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// messageVoided is why a run ends that answers a call which was voided.
const messageVoided = "the caller no longer waits"

// voided reports whether the message is a call that nobody waits for any more. A void cancels the run of its call; one
// that is handled before the call finds no run. So whoever begins the run looks for the void when the run is durable: a
// void that is published later finds the run, and ends it under a message of its own. A call that is delivered again ends
// no run that waits: its earlier delivery may be about to ack it.
func (a *activation) voided(ctx context.Context) (bool, error) {
	h := &a.head
	if a.msg.Address.Kind != wire.KindOut || h.Status == core.StatusDone || h.Init.Token != a.init().Token {
		return false, nil
	}
	voided, err := a.Publisher.Published(ctx, a.Subjects.Void(a.msg.Address.Call))
	if err != nil {
		return false, fmt.Errorf("look for a void of the call: %w", err)
	}
	return voided, nil
}

// endVoided marks a run that begins with a voided call, so that its driver ends it. core.ErrFenced says that it is somebody
// else's by now, who may have ended it and not yet have said so.
func (a *activation) endVoided(ctx context.Context) error {
	voided, err := a.voided(ctx)
	if err != nil || !voided {
		return err
	}
	if err := a.commit(ctx, core.CancelAsked{Message: messageVoided}); err != nil && !errors.Is(err, core.ErrStale) {
		return err
	}
	return a.stillDriven()
}
