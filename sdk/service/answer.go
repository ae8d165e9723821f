package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// response is the event that answers a call: with what the handler returned, or with an error. What it returned may have code of its own,
// which says how it is written.
func (s *serving) response(c Call, answer Answer, err error) (event wire.Event) {
	defer func() {
		if p := recover(); p != nil {
			event = s.failure(c, fmt.Errorf("the handler's answer panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	if err == nil {
		if event, err = s.success(c, answer); err == nil {
			return event
		}
	}
	return s.failure(c, err)
}

func (s *serving) success(c Call, answer Answer) (wire.Event, error) {
	version := s.versions[c.Version]
	if answer.Type == "" {
		answer.Type = only(version)
	}
	emits, ok := version.Emits[answer.Type]
	if !ok {
		return wire.Event{}, fmt.Errorf("the handler answered with type %q; version %s emits %s",
			answer.Type, c.Version, strings.Join(sorted(version.Emits), ", "))
	}
	data, err := encode(answer.Data)
	if err != nil {
		return wire.Event{}, fmt.Errorf("encode the answer %T: %w", answer.Data, err)
	}
	if faults := emits.Validate(data); len(faults) > 0 {
		// Not as an *sdk.Error: the caller can do nothing about it, and the faults quote what it should not see.
		return wire.Event{}, fmt.Errorf("the handler's answer does not fit the contract: %v", faults)
	}
	event := s.event(c, answer.Type, c.Version, data)
	if answer.Units != 0 {
		event.ExecutionUnits = answer.Units
	}
	return event, nil
}

// failure is the system error event for err.
func (s *serving) failure(c Call, err error) wire.Event {
	problem := *sdk.AsError(err)
	if problem.Code == "" {
		problem.Code = sdk.CodeTool
	}
	log := s.log.Info
	if problem.Code == sdk.CodeInternal {
		log = s.log.Error
	}
	log("call is answered with an error", "call", c.Event.ID, "code", problem.Code, "error", err)
	data, err := json.Marshal(wire.NewProblem(&problem))
	if err != nil {
		panic(fmt.Sprintf("service: a problem has no JSON: %v", err)) // it is made of texts and bools
	}
	return s.event(c, wire.ErrorType(s.contract.Type), contracts.Wildcard, data)
}

// event has what all answers to the call share.
func (s *serving) event(c Call, eventType, version string, data json.RawMessage) wire.Event {
	in := &c.Event
	to := in.RedirectTo
	if to == "" {
		to = in.Source
	}
	return wire.Event{
		// It follows from the call's, so that nobody mistakes the answers to two deliveries for two answers.
		ID: in.ID + "-answer", Source: s.contract.Type, Type: eventType, Subject: in.Subject, Time: time.Now(),
		DataContentType: wire.ContentTypeJSON, DataSchema: sdk.SchemaRef(s.contract.URI, version), Data: data,
		To: to, ParentID: in.ID, AccessControl: in.AccessControl, ExecutionUnits: s.units,
		TraceParent: in.TraceParent, TraceState: in.TraceState,
	}
}

// respond stores the answer on the reply subject of the subject where the call was delivered, never of one that the event
// names. An answer that is there already, from an earlier delivery or another program, is as good.
func (s *serving) respond(ctx context.Context, c Call, event wire.Event) error {
	reply, ok := s.conn.ReplySubject(c.subject)
	if !ok {
		return fmt.Errorf("subject %s does not belong to a call", c.subject)
	}
	err := s.publish(ctx, reply, event)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}):
		err = s.publish(ctx, reply, s.failure(c, sdk.Errorf(sdk.CodeTooLarge, "the answer is larger than the broker takes")))
	case errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}):
		err = s.publish(ctx, reply, s.failure(c, sdk.Errorf(sdk.CodeInternal, "internal error").WithCause(err)))
	}
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		s.log.Debug("call has an answer already", "call", c.Event.ID)
		return nil
	}
	return err
}

// answering are the pauses between attempts to store an answer while its stream has no room.
var answering = retry.Pauses{First: 500 * time.Millisecond, Longest: streams.CallHeartbeat}

// publish waits for room in the stream of answers, until ctx ends: what the handler did is not to be done again because there is none.
func (s *serving) publish(ctx context.Context, reply string, event wire.Event) error {
	return answering.Do(ctx, retry.Sleep, func() error {
		err := s.conn.Publish(ctx, reply, event)
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			s.log.Warn("answer is stored when there is room", "call", event.ParentID, "error", err)
			return err
		}
		return retry.Final(err)
	})
}
