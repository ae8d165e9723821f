package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Request asks an agent for a run.
type Request struct {
	// Agent is the agent's name.
	Agent string
	// Input is the data of the init event: anything that encodes as a JSON object which fits the agent's contract.
	Input any
	// Key makes the request repeat-safe: whoever starts again with the same key, and from the same source, gets the same run.
	// Empty is a key that is unique.
	Key string
	// Name names the run; empty is a name that follows from the key. A name that another request has taken ends this request's
	// run with sdk.CodeRunExists, and leaves the other run alone.
	Name string
	// Type is the type of the agent's contract, where it is not the agent's name.
	Type string
	// Require are patterns of tools that need permission in this run, beyond the agent's policy.
	Require []string
	// Tokens is the most that the run may use, if the agent's own limit is not lower; 0 is any number.
	Tokens int64
	// Constraints bound the run's calls beside its agent's: a call has to keep to both. The agent must have some, and says which tools
	// write files. Nil is none.
	Constraints *sdk.Constraints
	// Tags are what people find the run by (docs/index_of_runs.md): wire.CheckTags says what they may be.
	Tags map[string]string
	// AccessControl is carried in every event of the run and never interpreted. TraceParent and TraceState are W3C Trace Context.
	AccessControl, TraceParent, TraceState string
}

// Run names a run: one without an agent or a name is refused with sdk.CodeInvalidEvent. It holds no resource: it may be stored, as JSON for example, and used by other programs.
type Run struct {
	Agent string `json:"agent"`
	Name  string `json:"run"`
	// Init is the token of the init event. It tells the outcome of one's own request from that of another with the same name;
	// empty is whoever started the run.
	Init string `json:"init,omitempty"`
}

func (r Run) key() wire.RunKey { return wire.NewRunKey(r.Name) }

// check refuses what names no run, or more than one.
func (r Run) check() error {
	if r.Name == "" {
		return badRequest("a run of agent %q without a name", r.Agent)
	}
	return checkAgent(r.Agent)
}

// checkAgent refuses what stands for any agent in subjects.
func checkAgent(agent string) error {
	if agent == "" || strings.ContainsAny(agent, "*>") {
		return badRequest("agent %q: want the name of one", agent)
	}
	return nil
}

// NewKey returns a key that is unique, for whoever needs to know a run before it is started.
func NewKey() string { return newID("run") }

// Identify returns the run that Start would start. Without a key it is another one each time.
func (c *Client) Identify(r Request) Run {
	if r.Key == "" {
		r.Key = NewKey()
	}
	init := wire.InitToken(c.source, r.Key)
	if r.Name == "" {
		r.Name = wire.DefaultSubject(init)
	}
	return Run{Agent: r.Agent, Name: r.Name, Init: init}
}

// Start publishes the init event, and returns when the broker has stored it: from then on the run is carried out, whatever
// happens to this program. The error is sdk.CodeInvalidEvent or sdk.CodeContractViolation when the request can never be sent,
// and sdk.CodeUnavailable when no stream takes it, or nobody says that one did: start it again then, with the same key. What the agent refuses is an error of Wait.
func (c *Client) Start(ctx context.Context, r Request) (Run, error) {
	if r.Key == "" {
		r.Key = NewKey()
	}
	event, err := c.initEvent(r)
	if err != nil {
		return Run{}, err
	}
	if err := coded(ctx, c.conn.Start(ctx, r.Agent, event)); err != nil {
		return Run{}, fmt.Errorf("start a run of %s: %w", r.Agent, err)
	}
	return c.Identify(r), nil
}

// initEvent is the event that Start publishes. What no worker could read is refused here, where somebody is told.
func (c *Client) initEvent(r Request) (wire.Event, error) {
	if err := wire.CheckName(r.Agent); err != nil {
		return wire.Event{}, badRequest("agent %q: want letters, digits, \"_\", \"-\" and single dots", r.Agent)
	}
	data, err := object(r.Input)
	if err != nil {
		return wire.Event{}, err
	}
	if r.Type == "" {
		r.Type = r.Agent
	}
	if slices.ContainsFunc(r.Require, func(pattern string) bool { return strings.TrimSpace(pattern) == "" }) {
		return wire.Event{}, badRequest("require %q: want patterns of tools, and not an empty one", r.Require)
	}
	if r.Tokens < 0 {
		return wire.Event{}, badRequest("tokens %d: want 0, for any number, or more", r.Tokens)
	}
	event := wire.Event{
		ID: r.Key, Source: c.source, Type: r.Type, Subject: c.Identify(r).Name, Time: time.Now(), Data: data,
		AccessControl: r.AccessControl, TraceParent: r.TraceParent, TraceState: r.TraceState, Extensions: map[string]any{},
	}
	if len(r.Require) > 0 {
		event.Extensions[wire.RequirePermission] = strings.Join(r.Require, ",")
	}
	if r.Tokens > 0 {
		event.Extensions[wire.TokenBudget] = strconv.FormatInt(r.Tokens, 10)
	}
	if r.Constraints != nil {
		constraints, err := json.Marshal(r.Constraints)
		if err != nil {
			return wire.Event{}, badRequest("the constraints cannot be encoded as JSON: %v", err)
		}
		event.Extensions[wire.RunConstraints] = string(constraints)
	}
	if err := wire.CheckTags(r.Tags); err != nil {
		return wire.Event{}, err
	}
	if len(r.Tags) > 0 {
		event.Extensions[wire.TagsAttribute] = wire.FormatTags(r.Tags)
	}
	encoded, err := event.Encode()
	if err == nil {
		_, err = wire.DecodeEvent(nil, encoded)
	}
	if err != nil {
		e := *sdk.AsError(err)
		e.Message = "the run cannot be started with this name and input"
		return wire.Event{}, &e
	}
	return event, nil
}

// object encodes a value that must be a JSON object.
func object(value any) (json.RawMessage, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the input cannot be encoded as JSON").WithCause(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return nil, &sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the input must be a JSON object",
			Faults: []sdk.Fault{{Path: "$", Expected: "an object", Got: shortened(string(data))}},
		}
	}
	return data, nil
}

// shortened is the beginning of a text that an error quotes.
func shortened(text string) string {
	const most = 80
	return clip.Text(text, most)
}
