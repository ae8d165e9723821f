package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Unknown is the error about a run that the store does not have, of an agent or of any that is configured ("").
func (c *Client) Unknown(ctx context.Context, agent, run string) error {
	if err := c.Gone(ctx, agent, run); err != nil {
		return err
	}
	return c.NotThere(run)
}

// Untold is Unknown where the store was not read: what lies there is not known to be lost.
func (c *Client) Untold(ctx context.Context, agent, run string) error {
	if err := c.Over(ctx, agent, run); err != nil {
		return err
	}
	return c.NotThere(run)
}

// Gone is why a run that the store does not have does not begin any more: it is Over, or its journal is lost. Nil is a run that may begin yet.
func (c *Client) Gone(ctx context.Context, agent, run string) error {
	if err := c.Over(ctx, agent, run); err != nil {
		return err
	}
	return c.lost(ctx, run)
}

// Over is why a run that no worker knows does not begin any more, by what is published of it: it has ended, or its init event was refused and
// none waits that came after. agent is looked at beside those that are configured.
func (c *Client) Over(ctx context.Context, agent, run string) error {
	agents := setup.AgentNames(c.Config)
	if agent != "" && !slices.Contains(agents, agent) {
		agents = append(agents, agent)
	}
	for _, name := range agents {
		event, ended, err := c.Ended(ctx, name, wire.NewRunKey(run))
		if err == nil && !ended || NotPermitted(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for the end of run %q: %w", run, err)
		}
		problem := Refused(name, event)
		if problem == nil {
			return sdk.Errorf(sdk.CodeUnknownRun,
				"run %q has ended (%v), and its journal is lost, or was removed after its time; if it was lost, restore the store of runs",
				event.Subject, event.Extensions[wire.TerminationReason])
		}
		switch init, err := c.Waiting(ctx, name, run); {
		case err != nil:
			return err
		case init == "":
			return sdk.Errorf(sdk.CodeUnknownRun, "%s", problem.Message)
		}
	}
	return nil
}

// Refused is why a run never began, by the event that says so; nil is an event of one that began.
func Refused(agent string, end wire.Event) *sdk.Error {
	if _, refused := show.RefusedRow(agent, end, 0); !refused {
		return nil
	}
	problem, _ := wire.ProblemIn(end.Type, end.Data)
	err := sdk.Errorf(problem.Code, "run %q never began; its init event was refused: %s: %s", end.Subject, problem.Code, problem.ErrorMessage)
	err.Faults = problem.Faults
	return err
}

// Waiting is the token of the first init event of a run that is stored and that no worker has handled; empty is that there is none, or that
// this user may not look.
func (c *Client) Waiting(ctx context.Context, agent, run string) (init string, err error) {
	err = c.Permitted(ctx, func(ctx context.Context) error {
		floor, err := c.AckFloor(ctx, streams.InitConsumer(agent))
		if errors.Is(err, broker.ErrNotStored) {
			return nil
		}
		if err != nil {
			return err
		}
		start := c.Subjects().Start(agent)
		for _, filter := range []string{start, start + ".*"} { // of nobody, and of principals
			err := c.Scan(ctx, streams.Start, filter, floor+1, func(m broker.Stored) (more bool, err error) {
				token := initToken(m, run)
				if token == "" {
					return true, nil
				}
				answered, err := c.Published(ctx, c.Subjects().Done(agent, wire.NewRunKey(run), token))
				if err == nil && !answered {
					init = token
				}
				return answered, err
			})
			if err != nil || init != "" {
				return err
			}
		}
		return nil
	})
	if err != nil && !NotPermitted(err) {
		return "", fmt.Errorf("look for init events of run %q: %w", run, err)
	}
	return init, nil
}

// initToken is that of an init event of a run; empty is another message, or one that cannot be read and begins nothing.
func initToken(m broker.Stored, run string) string {
	event, err := wire.DecodeEvent(m.Headers, m.Data)
	if err != nil || event.Subject != run {
		return ""
	}
	return wire.InitToken(event.Source, event.ID)
}

// lost is the error about a run without a journal that had begun, as the broker knows by its timer.
func (c *Client) lost(ctx context.Context, run string) error {
	timer := c.Subjects().Root() + "." + string(wire.KindTimer) + ".*." + wire.NewRunKey(run).String()
	var armed []string
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		armed, err = c.SubjectsUnder(ctx, streams.Timer, timer)
		return err
	})
	if err != nil && !NotPermitted(err) {
		return fmt.Errorf("look for the timer of run %q: %w", run, err)
	}
	if len(armed) > 0 {
		return sdk.Errorf(sdk.CodeUnknownRun,
			"the journal of run %q is lost: the run had begun, and nobody can go on with it; restore the store of runs, or end such runs: %s", run, c.CommandLine("reconcile"))
	}
	return nil
}

// Ended is the last terminal event of a run, if there is one.
func (c *Client) Ended(ctx context.Context, agent string, run wire.RunKey) (event wire.Event, ended bool, err error) {
	event, err = c.LastEnd(ctx, agent, run)
	if errors.Is(err, broker.ErrNotStored) {
		return wire.Event{}, false, nil
	}
	return event, err == nil, err
}

// NotBegun reports whether who asks workers for a run is told what may pass: that it is not there, or that no worker is.
func NotBegun(err error) bool {
	return errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) || errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable})
}

// Unbegun says why a run whose init event is stored has not begun; asked is what who asks workers for the run was told.
func (c *Client) Unbegun(ctx context.Context, agent string, asked error) string {
	var pause broker.AgentPause
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		pause, err = c.AgentPause(ctx, agent)
		return err
	})
	switch {
	case err == nil && pause.Paused(): // not all may look
		return show.Line(agent, show.LineMax) + " is paused; the run begins when it is resumed: " + c.CommandLine("agents", "resume", agent)
	case errors.Is(asked, &sdk.Error{Code: sdk.CodeUnavailable}):
		return show.NoWorker(agent) + c.Meant(agent)
	}
	return "the run has not begun yet; its event is stored, and handled when a worker has time for it"
}

// CheckAgent refuses an agent that nobody made consumers for: it is misspelt, as a rule. Who may not look is not refused.
func (c *Client) CheckAgent(ctx context.Context, agent string) error {
	known := true
	err := c.Permitted(ctx, func(ctx context.Context) (err error) {
		known, err = c.HasConsumer(ctx, streams.InitConsumer(agent))
		return err
	})
	if err != nil && !NotPermitted(err) {
		return fmt.Errorf("look for agent %s: %w", agent, err)
	}
	if known {
		return nil
	}
	return sdk.Errorf(sdk.CodeUnknownAgent, "the server has no consumers for agent %s%s", agent, cmp.Or(c.Meant(agent), "; correct the name, or run: "+c.CommandLine("provision")))
}

// NotThere is the error about a run of which nothing is known.
func (c *Client) NotThere(run string) error {
	return sdk.Errorf(sdk.CodeUnknownRun, "run %q does not exist, or no worker has begun it yet; see: %s", run, c.CommandLine("runs", "list"))
}
