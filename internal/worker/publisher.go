package worker

import (
	"context"
	"errors"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/sdk"
)

// publisher is the connection, which also dead-letters an event that finds another one on its subject.
type publisher struct{ *broker.Conn }

// Publish implements runner.Publisher. A conflict is returned when the event is among the dead letters.
func (p publisher) Publish(ctx context.Context, subject string, event wire.Event) error {
	err := p.Conn.Publish(ctx, subject, event)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		if failed := p.Contest(ctx, subject, event); failed != nil {
			return failed
		}
	}
	return err
}
