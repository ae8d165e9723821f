package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// asking bounds one question to workers.
const asking = 10 * time.Second

// ask asks the workers of an agent.
func (c *Client) ask(ctx context.Context, agent string, query wire.Query, answer any) error {
	err := checkAgent(agent)
	if query.List == nil {
		err = Run{Agent: agent, Name: query.Run}.check()
	}
	if err != nil {
		return err
	}
	bounded, stop := context.WithTimeout(ctx, asking)
	defer stop()
	return coded(ctx, c.conn.Ask(bounded, agent, query, answer))
}

// Status says how far a run is and what it waits for, without its milestones. The error is sdk.CodeUnknownRun when there is not any
// such run (yet: an init event that is stored may not be handled), and sdk.CodeUnavailable when no worker serves the agent, or nobody answers for 10 s.
func (c *Client) Status(ctx context.Context, run Run) (wire.RunStatus, error) {
	var status wire.RunStatus
	err := c.ask(ctx, run.Agent, wire.Query{Run: run.Name, After: wire.Mark{Revision: math.MaxInt64}}, &status)
	if err != nil {
		return status, fmt.Errorf("ask for run %s: %w", run.Name, err)
	}
	return status, nil
}

// List returns the runs of an agent with a status, "" being any, in no order that means anything. Runs that begin meanwhile
// may be missing. It ends after an error; sdk.CodeUnavailable is that no worker serves the agent.
func (c *Client) List(ctx context.Context, agent string, status wire.Status) iter.Seq2[wire.RunStatus, error] {
	return func(yield func(wire.RunStatus, error) bool) {
		for cursor := ""; ; {
			var page wire.RunList
			err := c.ask(ctx, agent, wire.Query{List: &wire.ListQuery{Cursor: cursor, Status: status}}, &page)
			if err != nil {
				yield(wire.RunStatus{}, fmt.Errorf("list the runs of %s: %w", agent, err))
				return
			}
			for _, run := range page.Runs {
				if !yield(run, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// Result is how a run ended.
type Result struct {
	// Type is one of those that the agent's contract emits, Data what belongs to it. Reason says why the run ended.
	Type   string
	Data   json.RawMessage
	Reason wire.Reason
	// Units are what the run cost.
	Units sdk.Units
}

// Decode puts the data into a value.
func (r Result) Decode(value any) error {
	if err := json.Unmarshal(r.Data, value); err != nil {
		return fmt.Errorf("decode the result: %w", err)
	}
	return nil
}

// RunError says that a run ended with an error. Unwrap gives it as *sdk.Error, so errors.Is compares its code.
type RunError struct {
	Run    Run
	Reason wire.Reason
	Err    *sdk.Error
}

func (e *RunError) Error() string { return "run " + e.Run.Name + " ended: " + e.Err.Error() }

// Unwrap returns the error that the run ended with.
func (e *RunError) Unwrap() error { return e.Err }

// Wait returns the result of a run when it has ended; the run may also end before Wait is called, or be started later. It waits on while
// NATS, or all workers, are away. A run that ended with an error is a *RunError.
func (c *Client) Wait(ctx context.Context, run Run) (Result, error) {
	called := false
	for run.Init == "" {
		status, err := c.Status(ctx, run)
		switch {
		case err == nil && status.Terminal != nil:
			return resultOf(run, status.Terminal.Type, status.Terminal.Data, string(status.Reason), status.Units)
		case err == nil && status.Purged > 0:
			return Result{}, purged(run, &status)
		case err == nil:
			run.Init, called = status.Init, status.Called
			continue
		case !notYet(err):
			return Result{}, err
		}
		if err := retry.Sleep(ctx, askAgain); err != nil {
			return Result{}, fmt.Errorf("wait for run %s: %w", run.Name, err)
		}
	}
	if called {
		return c.waitCalled(ctx, run)
	}
	event, err := c.waitDone(ctx, run)
	if err != nil {
		return Result{}, fmt.Errorf("wait for run %s: %w", run.Name, err)
	}
	reason, _ := event.Extensions[wire.TerminationReason].(string)
	return resultOf(run, event.Type, event.Data, reason, event.ExecutionUnits)
}

// waitDone waits for a terminal event, and begins anew where the broker is away as it begins.
func (c *Client) waitDone(ctx context.Context, run Run) (wire.Event, error) {
	if err := run.check(); err != nil {
		return wire.Event{}, err
	}
	for {
		event, err := c.conn.WaitDone(ctx, run.Agent, run.key(), run.Init)
		if err = coded(ctx, err); !isUnavailable(err) || retry.Sleep(ctx, askAgain) != nil {
			return event, err
		}
	}
}

// purged is what is told of a run whose history was removed.
func purged(run Run, status *wire.RunStatus) error {
	return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done (%s), and its history was removed", run.Name, status.Reason)
}

// waitCalled waits for a run that answers a call: its terminal event goes to the caller, the journal has it too.
func (c *Client) waitCalled(ctx context.Context, run Run) (Result, error) {
	for live, err := range c.Follow(ctx, run, wire.Mark{}) {
		if err != nil {
			return Result{}, err
		}
		if live.Type == wire.MilestoneFinished {
			break
		}
	}
	status, err := c.Status(ctx, run)
	if err != nil {
		return Result{}, err
	}
	if status.Terminal == nil {
		return Result{}, sdk.Errorf(sdk.CodeUnknownRun, "run %s is done (%s), and its outcome was removed", run.Name, status.Reason)
	}
	return resultOf(run, status.Terminal.Type, status.Terminal.Data, string(status.Reason), status.Units)
}

// resultOf reads a terminal event. reason may have a code after a colon.
func resultOf(run Run, eventType string, data json.RawMessage, reason string, units sdk.Units) (Result, error) {
	why, _, _ := strings.Cut(reason, ":")
	result := Result{Type: eventType, Data: data, Reason: wire.Reason(why), Units: units}
	problem, failed := wire.ProblemIn(eventType, data)
	if !failed {
		return result, nil
	}
	return result, &RunError{run, result.Reason, &sdk.Error{
		// Whoever makes events by hand may leave out the code.
		Code: cmp.Or(problem.Code, sdk.Code(problem.ErrorName), sdk.CodeInternal), Message: problem.ErrorMessage, Retryable: problem.Retryable, Faults: problem.Faults,
	}}
}

// notYet reports whether an error of Status may pass: the init event is not handled, or no worker is there.
func notYet(err error) bool {
	return errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) || isUnavailable(err)
}
