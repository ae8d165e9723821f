package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// Severity of a finding.
type Severity string

// The severities. With an error, agentd does not keep its promises.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is something about a server or a store that should be otherwise.
type Finding struct {
	// Code is stable, for scripts.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

// Verify compares the broker with the plan and changes nothing.
func (c *Conn) Verify(ctx context.Context, p Plan) ([]Finding, error) {
	var findings []Finding
	for _, want := range c.streams(p) {
		s, err := c.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			findings = append(findings, Finding{
				"stream_missing", SeverityError, "stream " + want.Name + " does not exist", "run: agentd provision",
			})
			continue
		}
		if err != nil {
			return findings, fmt.Errorf("look at stream %s: %w", want.Name, err)
		}
		findings = append(findings, c.verifyStream(s.CachedInfo().Config, want)...)
	}
	for _, want := range c.consumers(p) {
		f, err := c.verifyConsumer(ctx, want)
		if err != nil {
			return findings, err
		}
		findings = append(findings, f...)
	}
	return findings, nil
}

func (c *Conn) verifyStream(got, want jetstream.StreamConfig) []Finding {
	var f []Finding
	add := func(code string, severity Severity, message, remedy string) {
		f = append(f, Finding{code, severity, "stream " + got.Name + ": " + message, remedy})
	}
	if want.DenyDelete { // others publish here
		if got.Duplicates > shortestDuplicates {
			add("duplicates_window", SeverityError,
				fmt.Sprintf("its duplicate window is %s; a publisher could use up the message id of another's answer", got.Duplicates),
				"run: agentd provision, or: nats stream edit "+got.Name+" --dupe-window 100ms")
		}
		if got.AllowRollup || got.AllowMsgSchedules || got.AllowAtomicPublish {
			add("rollup_allowed", SeverityError, "it allows rollup, schedules or batches; a publisher could wipe it",
				"create it anew without them: agentd provision")
		}
		if !got.DenyDelete || !got.DenyPurge {
			add("delete_allowed", SeverityWarning, "messages can be deleted", "run: agentd provision")
		}
	}
	if got.MaxAge > 0 && (want.MaxAge == 0 || got.MaxAge < want.MaxAge) {
		add("max_age", SeverityError,
			fmt.Sprintf("it forgets messages after %s, before the longest deadline of a configured agent has passed", got.MaxAge),
			"run: agentd provision")
	}
	if want.AllowMsgSchedules && !got.AllowMsgSchedules {
		add("no_schedules", SeverityError, "it does not allow scheduled messages, so no timer fires", "run: agentd provision")
	}
	if got.Retention != jetstream.LimitsPolicy {
		add("retention", SeverityError, "its retention is not by limits", "create it anew: agentd provision")
	}
	return f
}

func (c *Conn) verifyConsumer(ctx context.Context, want consumerPlan) ([]Finding, error) {
	name := StreamName(c.subjects, want.Zone) + "/" + want.Name
	consumer, err := c.js.Consumer(ctx, StreamName(c.subjects, want.Zone), want.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return []Finding{{
			"consumer_missing", SeverityError, "consumer " + name + " does not exist", "run: agentd provision",
		}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at consumer %s: %w", name, err)
	}
	var f []Finding
	info := consumer.CachedInfo()
	if info.Config.MaxDeliver != -1 {
		f = append(f, Finding{
			"max_deliver", SeverityError,
			fmt.Sprintf("consumer %s gives up on a message after %d deliveries; a run may be stuck for ever", name, info.Config.MaxDeliver),
			"run: agentd provision",
		})
	}
	if lag := info.NumPending; lag > 0 && info.Delivered.Last != nil && time.Since(*info.Delivered.Last) > day {
		f = append(f, Finding{
			"consumer_lag", SeverityWarning,
			fmt.Sprintf("consumer %s has %d messages to read and has read none for a day", name, lag),
			"start a worker or service for it",
		})
	}
	return f, nil
}

// Problem turns findings into the error of a command that cannot go on with them; nil when none is an error.
func Problem(findings []Finding) error {
	var problem *sdk.Error
	for _, f := range findings {
		if f.Severity != SeverityError {
			continue
		}
		if problem == nil {
			problem = sdk.Errorf(sdk.CodeConfig, "the broker is not set up (%s)", f.Remedy)
		}
		problem.Faults = append(problem.Faults, sdk.Fault{Path: f.Code, Expected: f.Message})
	}
	if problem == nil {
		return nil
	}
	return problem
}
