package worker

import (
	"context"
	"errors"

	"agentd/internal/broker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// publisher is the connection, which also dead-letters an event that finds another one on its subject.
type publisher struct{ *broker.Conn }

// Publish implements runner.Publisher. A conflict is returned when the event is among the dead letters.
func (p publisher) Publish(ctx context.Context, subject string, event wire.Event) error {
	return p.contest(ctx, subject, event, p.Conn.Publish(ctx, subject, event))
}

// Restore implements runner.Publisher.
func (p publisher) Restore(ctx context.Context, subject string, event wire.Event) error {
	return p.contest(ctx, subject, event, p.Conn.Restore(ctx, subject, event))
}

// contest dead-letters an event that could not be published because of what is on its subject.
func (p publisher) contest(ctx context.Context, subject string, event wire.Event, err error) error {
	if err != nil && errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		if failed := p.Contest(ctx, subject, event); failed != nil {
			return failed
		}
	}
	return err
}
