// Package deadletter reads messages that no worker or service could handle, says what can be done about them, and publishes
// them again.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"agentd/internal/broker"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Letter is a dead letter, as far as it can be read.
type Letter struct {
	broker.Letter
	// Address and Event are zero when the subject or the body cannot be read; Undecodable says why of the body.
	Address     wire.Address
	Event       wire.Event
	Undecodable error
	// Key is that of the run which the message is for, Run the run's name or, where nobody says it, the key.
	Key wire.RunKey
	Run string
}

// Of reads a dead letter.
func Of(subjects wire.Subjects, b broker.Letter) *Letter {
	l := &Letter{Letter: b}
	if address, err := subjects.Parse(b.Subject); err == nil {
		l.Address, l.Key = address, address.Run
	}
	if l.Event, l.Undecodable = wire.DecodeEvent(b.Headers, b.Data); l.Undecodable == nil {
		l.name()
	}
	if l.Run == "" && l.Key != (wire.RunKey{}) {
		l.Run = l.Key.String()
	}
	return l
}

// name finds the run's name. Only an init event says which run it is for: elsewhere the subject does, and the event's own
// name of it is a claim.
func (l *Letter) name() {
	claimed := l.Event.Subject
	if l.Address.Kind == wire.KindStart {
		if claimed == "" {
			claimed = wire.DefaultSubject(l.init())
		}
		l.Key = wire.NewRunKey(claimed)
	}
	if claimed != "" && wire.NewRunKey(claimed) == l.Key {
		l.Run = claimed
	}
}

// init is the token of an init event.
func (l *Letter) init() string { return wire.InitToken(l.Event.Source, l.Event.ID) }

// Get reads one dead letter by its sequence.
func Get(ctx context.Context, conn *broker.Conn, sequence uint64) (*Letter, error) {
	b, err := conn.Letter(ctx, sequence)
	if errors.Is(err, broker.ErrNotStored) {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "dead letter %d does not exist; see: agentd dlq list", sequence)
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	return Of(conn.Subjects(), b), nil
}

// Redacted is the letter without what looks like a secret.
func (l Letter) Redacted() Letter {
	l.Detail = telemetry.Redact(l.Detail)
	if utf8.Valid(l.Data) {
		l.Data = []byte(telemetry.Redact(string(l.Data)))
	}
	headers := make(map[string][]string, len(l.Headers))
	for name, values := range l.Headers {
		shown := make([]string, len(values))
		for i, value := range values {
			if shown[i] = telemetry.Redact(value); telemetry.Secret(name) {
				shown[i] = telemetry.Redacted
			}
		}
		headers[name] = shown
	}
	l.Headers = headers
	return l
}
