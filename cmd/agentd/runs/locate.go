package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// withStatus calls do with a connection and how far a run is.
func withStatus(ctx context.Context, a *cli.App, run string, do func(*cli.Client, wire.RunStatus) error) error {
	return a.WithClient(ctx, func(c *cli.Client) error {
		status, known, err := locate(ctx, c, "", run)
		if err != nil {
			return err
		}
		if !known {
			return c.NotThere(run)
		}
		return do(c, status)
	})
}

// withExpected is withStatus of a run that may not have begun: where its agent is named, it is taken to begin yet, and to have been started
// by whoever asks.
func withExpected(ctx context.Context, a *cli.App, agent, run string, do func(*cli.Client, wire.RunStatus) error) error {
	if agent == "" {
		return withStatus(ctx, a, run, do)
	}
	return a.WithClient(ctx, func(c *cli.Client) error {
		status, known, err := locate(ctx, c, agent, run)
		if err != nil {
			return err
		}
		if !known {
			status = wire.RunStatus{Run: run, Agent: agent, Initiator: c.Who()}
		}
		return do(c, status)
	})
}

// locate asks workers for a run: those of one agent, or of all that are configured (""). What they do not know, the store may: runs are also of
// agents that are not configured here, and of some that no worker serves. A run that is not known may begin yet.
func locate(ctx context.Context, c *cli.Client, agent, run string) (status wire.RunStatus, known bool, err error) {
	agents := []string{agent}
	if agent == "" {
		agents = setup.AgentNames(c.Config)
	}
	status, silent, err := ask(ctx, c, agents, run)
	if err != nil || status.Agent != "" {
		return status, err == nil, err
	}
	status, err = stored(ctx, c, run)
	switch {
	case err == nil:
		return status, true, ofAgent(agent, status)
	case errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}):
		return status, false, begins(ctx, c, agent, run, c.Gone)
	case ctx.Err() != nil:
		return status, false, err
	case len(silent) > 0:
		return status, false, fmt.Errorf("no worker of %s answers, and the store cannot be read: %w", strings.Join(silent, ", "), err)
	case len(agents) == 0:
		return status, false, err
	case agent != "":
		others := slices.DeleteFunc(setup.AgentNames(c.Config), func(name string) bool { return name == agent })
		if status, _, err := ask(ctx, c, others, run); err == nil && status.Agent != "" { // of what these workers do not tell, nothing is known
			return status, false, ofAgent(agent, status)
		}
	}
	return status, false, begins(ctx, c, agent, run, c.Over)
}

// ask asks the workers of agents for a run, and returns those agents of which none answers. A status without an agent is that none knows it.
func ask(ctx context.Context, c *cli.Client, agents []string, run string) (status wire.RunStatus, silent []string, err error) {
	asking := c.Speaking(cli.Source)
	for _, name := range agents {
		status, err := asking.Status(ctx, client.Run{Agent: name, Name: run})
		switch {
		case err == nil:
			return status, silent, nil
		case errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}):
		case errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}), errors.Is(err, context.DeadlineExceeded):
			silent = append(silent, name)
		default:
			return wire.RunStatus{}, nil, err
		}
	}
	return wire.RunStatus{}, silent, nil
}

// stored is what the store says of a run.
func stored(ctx context.Context, c *cli.Client, run string) (status wire.RunStatus, err error) {
	err = c.Permitted(ctx, func(ctx context.Context) error {
		store, err := c.OpenStore(ctx)
		if err != nil {
			return err
		}
		last, err := cli.Head(ctx, store, run)
		if err == nil {
			status = statusOf(&last.Head)
		}
		return errors.Join(err, store.Close())
	})
	return status, err
}

func statusOf(h *core.Head) wire.RunStatus {
	return wire.RunStatus{
		Run: h.Run, Agent: h.Agent, Status: h.Status, Reason: h.Reason, Heard: h.Heard, Init: h.Generation().Token, Called: h.Init.Reply != nil,
		Initiator: h.Init.Who, Paused: h.Paused, Parked: h.Parked,
	}
}

// ofAgent refuses a run of another agent than the one that was named.
func ofAgent(agent string, s wire.RunStatus) error {
	if agent == "" || agent == s.Agent {
		return nil
	}
	return sdk.Errorf(sdk.CodeUnknownRun, "run %s is one of agent %s", s.Run, s.Agent)
}

// begins is why a run does not begin any more that nobody knows: its agent, if one is named, is not there, or gone says why. Nil is that it may.
func begins(ctx context.Context, c *cli.Client, agent, run string, gone func(ctx context.Context, agent, run string) error) error {
	if agent != "" {
		if err := c.CheckAgent(ctx, agent); err != nil {
			return err
		}
	}
	return gone(ctx, agent, run)
}
