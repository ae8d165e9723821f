package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Cancel asks a run to end. It returns when the broker has stored the request; Wait returns when the run has ended, with
// sdk.CodeCancelled. A run that is done, or is not there, is not told: the request becomes a dead letter. Whoever started a run
// may cancel it, and an operator; for others the error is sdk.CodePermissionDenied.
func (c *Client) Cancel(ctx context.Context, run Run, reason string) error {
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return fmt.Errorf("encode the reason: %w", err)
	}
	who := c.as
	switch status, err := c.Status(ctx, run); {
	case err == nil:
		who = status.CancelAs(c.as)
	case !notYet(err):
		return err
	}
	return c.control(ctx, wire.ControlCancel, run, who, wire.Event{ID: newID("cancel"), Type: wire.TypeCancel, Data: data})
}

// Send sends a message into a run and waits a moment until the run has it. What becomes of it is up to the agent
// (sdk.SteeringPolicy). heard is false when no worker has taken it yet: it is stored, and one will.
func (c *Client) Send(ctx context.Context, run Run, text string) (heard bool, err error) {
	if text == "" || len(text) > wire.MaxMessage {
		return false, sdk.Errorf(sdk.CodeMessageRefused, "the message has %d bytes; it must have 1 to %d", len(text), wire.MaxMessage)
	}
	data, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		return false, fmt.Errorf("encode the message: %w", err)
	}
	event := wire.Event{ID: newID("message"), Type: wire.TypeMessage, Data: data}
	if err := c.control(ctx, wire.ControlMessage, run, c.as, event); err != nil {
		return false, err
	}
	message := wire.MessageID(c.source, event.ID)
	_, heard, err = c.until(ctx, run, func(s wire.RunStatus) bool { return slices.Contains(s.Heard, message) })
	return heard, err
}

// Retry takes up a run that ended with an error, by a limit or by its deadline, from where it ended, and waits a moment until it goes on.
// It needs the right of an operator. The run that it returns is the new generation: Wait waits for that one's end. Who asks for the same
// end of a run to be retried twice gets one generation. taken is false when no worker has taken the run up yet: the request is
// stored, and one will. The error is sdk.CodeRetryRefused for a run that cannot be retried.
func (c *Client) Retry(ctx context.Context, run Run) (generation Run, taken bool, err error) {
	status, err := c.Status(ctx, run)
	if err != nil {
		return Run{}, false, err
	}
	if refusal := status.CheckRetry(); refusal != nil {
		return Run{}, false, refusal
	}
	event := wire.Event{ID: "retry-" + wire.TerminalID(run.key(), status.Init), Type: wire.TypeRetry, Data: json.RawMessage("{}")}
	if err := c.control(ctx, wire.ControlRetry, run, c.as, event); err != nil {
		return Run{}, false, err
	}
	generation = Run{Agent: run.Agent, Name: run.Name, Init: wire.InitToken(c.source, event.ID)}
	now, taken, err := c.until(ctx, run, func(s wire.RunStatus) bool { return s.Init != status.Init })
	if taken {
		generation.Init = now.Init // somebody else may have been first
	}
	return generation, taken, err
}

func (c *Client) control(ctx context.Context, verb wire.ControlVerb, run Run, who string, event wire.Event) error {
	event.Source, event.Subject, event.Time = c.source, run.Name, time.Now()
	if err := c.conn.Control(ctx, verb, run.Agent, run.key(), who, event); err != nil {
		return fmt.Errorf("%s run %s: %w", verb, run.Name, err)
	}
	return nil
}

// until asks for the run until it is as wanted, and reports whether it came to that in a moment.
func (c *Client) until(ctx context.Context, run Run, wanted func(wire.RunStatus) bool) (wire.RunStatus, bool, error) {
	waiting, stop := context.WithTimeout(ctx, c.patience)
	defer stop()
	for {
		status, err := c.Status(waiting, run)
		if err == nil && wanted(status) {
			return status, true, nil
		}
		if ctx.Err() != nil {
			return wire.RunStatus{}, false, ctx.Err()
		}
		if retry.Sleep(waiting, 50*time.Millisecond) != nil {
			return wire.RunStatus{}, false, nil // no worker has handled it yet, or it is refused
		}
	}
}
