package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// forever is when a pause without an end ends: JetStream's needs one.
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// drains is the metadata of a consumer of init events whose agent's runs go on while it is paused.
const drains = "agentd-drain"

// AgentPause is an operator's pause of an agent: its runs do not begin. The zero value is none.
type AgentPause struct {
	// For is how long it lasts from now on; Endless has no end.
	For time.Duration
	// Drain lets runs that have begun go on.
	Drain bool
}

// Endless is how long a pause lasts that ends only when somebody ends it.
const Endless = time.Duration(1<<63 - 1)

// Paused reports whether the agent is paused.
func (p AgentPause) Paused() bool { return p.For > 0 }

// beginnings are the consumers that bring what begins an agent's runs: init events, which come first, and calls of other agents.
func (c *Conn) beginnings(ctx context.Context, agent string) ([]streams.ConsumerRef, error) {
	refs := streams.AgentConsumers(agent)
	return c.Divided(ctx, refs[0], refs[3])
}

// PauseKnown is for how long a worker may take an agent not to be paused that was not when it last asked.
const PauseKnown = 2 * time.Second

// PauseAgent has no run of an agent begin, until the pause ends or ResumeAgent ends it. A pause that there is already is replaced.
// Answers, messages and timers reach runs as ever. It returns when all workers know of it, PauseKnown after the servers do.
func (c *Conn) PauseAgent(ctx context.Context, agent string, p AgentPause) error {
	refs, err := c.beginnings(ctx, agent)
	if err != nil {
		return err
	}
	if err := c.setDrain(ctx, refs[0], p.Drain); err != nil {
		return err
	}
	until := forever
	if p.For < time.Until(forever) {
		until = time.UnixMilli(c.Now()).Add(p.For)
	}
	for _, ref := range refs {
		if _, err := c.js.PauseConsumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name, until); err != nil {
			return fmt.Errorf("pause consumer %s of stream %s: %w", ref.Name, streams.Name(c.subjects, ref.Zone), err)
		}
		if err := c.awaitPause(ctx, ref, until); err != nil {
			return err
		}
	}
	return retry.Sleep(ctx, PauseKnown)
}

const (
	// applied is how long the servers of a cluster may take to carry out what one of them has confirmed: an election may be needed.
	applied = 20 * time.Second
	// looks are the pauses between looks whether they have.
	firstLook, longestLook = 10 * time.Millisecond, 500 * time.Millisecond
)

// awaitPause returns when the server that leads a consumer says that it is paused, or that it is not from until on; zero is that it was
// resumed. A cluster confirms either before that server has heard of it, and a run that is woken before then asks it, and waits on.
func (c *Conn) awaitPause(ctx context.Context, ref streams.ConsumerRef, until time.Time) error {
	began := time.Now()
	for pauses := (retry.Pauses{First: firstLook, Longest: longestLook}).Start(); ; {
		info, err := c.consumerInfo(ctx, ref)
		if err != nil || info.Paused == (c.Now() < until.UnixMilli()) {
			return err
		}
		if time.Since(began) > applied {
			return sdk.Errorf(sdk.CodeUnavailable, "the servers do not carry out a change of consumer %s, or somebody else has changed it too: agentd agents list", ref.Name)
		}
		if err := retry.Sleep(ctx, pauses.Next()); err != nil {
			return err
		}
	}
}

// resumePause lies between two runs that are woken: all of them are about to ask their model.
const resumePause = 50 * time.Millisecond

// ResumeAgent ends a pause, and wakes the runs that wait because of it one after the other. It returns how many, and may be repeated.
func (c *Conn) ResumeAgent(ctx context.Context, agent string) (woken int, err error) {
	if err := c.EndPause(ctx, agent); err != nil {
		return 0, err
	}
	return c.WakePaused(ctx, agent)
}

// EndPause has runs of an agent begin again. Those that wait because of the pause wait on, until WakePaused.
func (c *Conn) EndPause(ctx context.Context, agent string) error {
	refs, err := c.beginnings(ctx, agent)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if _, err := c.js.ResumeConsumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name); err != nil {
			return fmt.Errorf("resume consumer %s of stream %s: %w", ref.Name, streams.Name(c.subjects, ref.Zone), err)
		}
		if err := c.awaitPause(ctx, ref, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// WakePaused wakes the runs that wait because their agent was paused, one after the other, and returns how many. It may be repeated.
func (c *Conn) WakePaused(ctx context.Context, agent string) (woken int, err error) {
	runs, err := c.ParkedRuns(ctx, wire.KeyAgentPaused, agent)
	if err != nil {
		return 0, err
	}
	for i, run := range runs {
		if i > 0 {
			err = retry.Sleep(ctx, resumePause)
		}
		if err == nil {
			err = c.Unpark(ctx, wire.KeyAgentPaused, run)
		}
		if err != nil {
			return i, fmt.Errorf("%d of %d runs were woken: %w", i, len(runs), err)
		}
	}
	return len(runs), nil
}

// AgentPause asks the consumer of the agent's init events. An agent that is not provisioned is not paused.
func (c *Conn) AgentPause(ctx context.Context, agent string) (AgentPause, error) {
	info, err := c.consumerInfo(ctx, streams.InitConsumer(agent))
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return AgentPause{}, nil
	}
	if err != nil || !info.Paused {
		return AgentPause{}, err
	}
	p := AgentPause{For: info.PauseRemaining, Drain: info.Config.Metadata[drains] != ""}
	if until := info.Config.PauseUntil; until != nil && !until.Before(forever) {
		p.For = Endless
	}
	return p, nil
}

func (c *Conn) consumerInfo(ctx context.Context, ref streams.ConsumerRef) (*jetstream.ConsumerInfo, error) {
	asked := c.own.steady()
	consumer, err := c.js.Consumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name)
	if err != nil {
		return nil, fmt.Errorf("look at consumer %s: %w", ref.Name, err)
	}
	info := consumer.CachedInfo() // it was just asked for
	if !info.TimeStamp.IsZero() {
		c.broker.Measured(asked, info.TimeStamp.UnixMilli(), c.own.steady())
	}
	return info, nil
}

func (c *Conn) setDrain(ctx context.Context, ref streams.ConsumerRef, drain bool) error {
	info, err := c.consumerInfo(ctx, ref)
	if err != nil || (info.Config.Metadata[drains] != "") == drain {
		return err
	}
	config := info.Config
	config.Metadata = maps.Clone(config.Metadata)
	delete(config.Metadata, drains)
	if drain {
		if config.Metadata == nil {
			config.Metadata = map[string]string{}
		}
		config.Metadata[drains] = "true"
	}
	if _, err := c.js.UpdateConsumer(ctx, streams.Name(c.subjects, ref.Zone), config); err != nil {
		return fmt.Errorf("update consumer %s: %w", ref.Name, err)
	}
	return nil
}
