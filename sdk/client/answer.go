package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Call is an open call that a person answers: a question, a turn of a conversation, a permission request, or a task of a
// contract in a person's domain.
type Call struct {
	Run Run
	wire.WaitingCall
	// AccessControl, TraceParent and TraceState are carried from the call's event into its answer.
	AccessControl, TraceParent, TraceState string
}

// Asked are the calls of a run that people answer: its questions, turns and permission requests.
func (c *Client) Asked(ctx context.Context, run Run) ([]Call, error) {
	status, err := c.Status(ctx, run)
	if err != nil {
		return nil, err
	}
	var calls []Call
	for _, w := range status.Waiting {
		if slices.Contains([]string{sdk.TypeQuestion, sdk.TypeConversationTurn, sdk.TypePermissionRequest, sdk.TypePlanReview}, w.Type) {
			calls = append(calls, Call{Run: run, WaitingCall: w})
		}
	}
	return calls, nil
}

// Reply answers a question or a turn. A question takes Text, or Data that fits the form which it asked for, or Data with "answer",
// "action" and "content" alone, as they are on the wire; a turn takes Text and End, which ends the conversation after it. A task takes
// Data of the Type that its contract emits.
type Reply struct {
	Text string          `json:"text,omitempty"`
	End  bool            `json:"end,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Type is the event type of the answer to a call of a contract: a task for a person.
	Type string `json:"type,omitempty"`
}

// OutcomeState says what became of an answer.
type OutcomeState string

// The states.
const (
	OutcomeCounted OutcomeState = "counted" // the run took it
	OutcomeRefused OutcomeState = "refused" // the run refused it; Outcome.Refused says why
	OutcomeSent    OutcomeState = "sent"    // nothing is known yet: it is stored, and handled when a worker comes to it
)

// Outcome is what became of an answer.
type Outcome struct {
	State OutcomeState `json:"state"`
	// Event is the id of the answer.
	Event string `json:"event"`
	// Who it was published as; empty is anonymous.
	Who     string `json:"who,omitempty"`
	Refused string `json:"refused,omitempty"`
	// Open says that the call still waits, for further approvers or for a better answer.
	Open bool `json:"open,omitempty"`
	// Allowed and Quorum are set when an approval counts and further ones are needed.
	Allowed int `json:"allowed,omitempty"`
	Quorum  int `json:"quorum,omitempty"`
	// Rest are the calls of the same request that are not decided yet.
	Rest int `json:"rest,omitempty"`
	// Queued says that the call is allowed and waits for its turn in the round; Undecided are the requests of the round that
	// were open then.
	Queued    bool `json:"queued,omitempty"`
	Undecided int  `json:"undecided,omitempty"`
}

// Answer answers an open question or turn of a run, and waits a moment for what becomes of it. An empty call is the only one
// that is open. The error is sdk.CodeUnknownRun when the run does not ask that.
func (c *Client) Answer(ctx context.Context, run Run, call string, r Reply) (Outcome, error) {
	asked, err := c.open(ctx, run, call, func(w wire.WaitingCall) bool {
		return w.Type == sdk.TypeQuestion || w.Type == sdk.TypeConversationTurn || r.Type != "" && !sdk.AsksPermission(w.Type)
	})
	if err != nil {
		return Outcome{}, err
	}
	eventType := r.Type
	switch asked.Type {
	case sdk.TypeQuestion:
		eventType = sdk.TypeQuestionAnswered
	case sdk.TypeConversationTurn:
		eventType = sdk.TypeConversationAnswered
	}
	data, err := r.Encode(asked.Type)
	if err != nil {
		return Outcome{}, err
	}
	return c.Publish(ctx, asked, eventType, data, nil)
}

// Encode returns the data of the answer to a call of that type. The error is sdk.CodeContractViolation.
func (r Reply) Encode(callType string) (json.RawMessage, error) {
	bad := func(why string) (json.RawMessage, error) {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "%s", why)
	}
	turn := callType == sdk.TypeConversationTurn
	switch {
	case len(r.Data) > 0 && (r.Text != "" || r.End):
		return bad("an answer is a text or data, not both")
	case len(r.Data) > 0 && callType == sdk.TypeQuestion:
		return r.question()
	case len(r.Data) > 0:
		return wire.Canonicalize(r.Data)
	case !turn && callType != sdk.TypeQuestion:
		return bad(callType + " wants data")
	case r.End && !turn:
		return bad("only a conversation has an end")
	case strings.TrimSpace(r.Text) == "" && !r.End:
		return bad("the answer is empty")
	case turn:
		return json.Marshal(map[string]any{"message": r.Text, "end": r.End})
	}
	return json.Marshal(map[string]string{memberAnswer: r.Text})
}

// Members of the data of an answer to a question.
const (
	memberAnswer  = "answer"
	memberContent = "content"
)

// question is Data as the data of an answer to a question.
func (r Reply) question() (json.RawMessage, error) {
	data, err := wire.Canonicalize(r.Data)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &members) != nil {
		return data, err
	}
	for _, known := range []string{memberAnswer, "action", memberContent} {
		if _, there := members[known]; there {
			delete(members, known)
			if len(members) == 0 {
				return data, nil
			}
		}
	}
	return json.Marshal(map[string]any{memberAnswer: string(data), memberContent: data})
}

// Decide decides an open permission request of a run, and waits a moment for what becomes of it. Without an ArgsHash the
// decision is on the arguments as they are now; with one both must be equal, else it is refused with sdk.CodeDecisionRefused. On a
// request for several calls it names those that it is about in d.Calls, or sets d.All. Who may decide is the run's to say: its
// journal has the refusal.
func (c *Client) Decide(ctx context.Context, run Run, request string, d sdk.PermissionDecision) (Outcome, error) {
	asked, err := c.open(ctx, run, request, func(w wire.WaitingCall) bool { return sdk.AsksPermission(w.Type) })
	if err != nil {
		return Outcome{}, err
	}
	var r sdk.PermissionRequest
	if err := json.Unmarshal(asked.Asked, &r); err != nil {
		return Outcome{}, fmt.Errorf("read permission request %s: %w", asked.Call, err)
	}
	if d, err = d.On(&r); err != nil {
		return Outcome{}, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode the decision: %w", err)
	}
	return c.Publish(ctx, asked, sdk.TypePermissionDecided, data, nil)
}

// open finds the open call with that id, or the only one there is when the id is empty, among those that can be meant.
func (c *Client) open(ctx context.Context, run Run, id string, meant func(wire.WaitingCall) bool) (Call, error) {
	status, err := c.Status(ctx, run)
	if err != nil {
		return Call{}, err
	}
	var calls []Call
	for _, w := range status.Waiting {
		if meant(w) && (id == "" || id == w.Call || id == w.Event) {
			calls = append(calls, Call{Run: run, WaitingCall: w})
		}
	}
	switch {
	case len(calls) == 1:
		return calls[0], nil
	case id != "":
		return Call{}, sdk.Errorf(sdk.CodeUnknownRun, "run %s does not wait for an answer to %s, or no longer", run.Name, shortened(id))
	case len(calls) == 0:
		return Call{}, sdk.Errorf(sdk.CodeUnknownRun, "run %s does not wait for an answer", run.Name)
	}
	return Call{}, sdk.Errorf(sdk.CodeUnknownRun, "run %s waits for %d answers; name the call", run.Name, len(calls))
}

// Publish publishes an answer of any type to an open call, and waits a moment for what becomes of it. Unlike a service's, its id
// is new each time: a person may answer again after a refusal. refusals tells why the answer with an id was refused, where the
// caller reads dead letters; nil relies on what the run itself records.
func (c *Client) Publish(
	ctx context.Context, call Call, eventType string, data json.RawMessage, refusals func(event string) (why <-chan string, forget func()),
) (Outcome, error) {
	if err := call.Run.check(); err != nil {
		return Outcome{}, err
	}
	if call.Event == "" {
		return Outcome{}, badRequest("an answer to no call of run %s", call.Run.Name)
	}
	address := wire.CallAddress{
		Domain: wire.DomainToken(call.Domain), Type: wire.NameToken(call.Type), Agent: wire.NameToken(call.Run.Agent), Run: call.Run.key(), Call: call.Event,
	}
	reply := c.conn.Subjects().Reply(address)
	event := wire.Event{
		ID: call.Event + "-" + newID("answer"), Source: c.source, Type: eventType, Subject: call.Run.Name, Time: time.Now(),
		DataContentType: wire.ContentTypeJSON, DataSchema: call.Schema, Data: data, To: reply, ParentID: call.Event,
		AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}
	if c.signer != nil && eventType == sdk.TypePermissionDecided {
		var err error
		if event, err = c.signer.Sign(event); err != nil {
			return Outcome{}, err
		}
	}
	w, err := c.await(call, event.ID, refusals)
	if err != nil {
		return Outcome{}, err
	}
	defer w.stop()
	if c.as != "" {
		reply += "." + c.as
	}
	if err := coded(ctx, c.conn.Reply(ctx, reply, event)); err != nil {
		return Outcome{}, fmt.Errorf("answer %s: %w", call.Event, err)
	}
	outcome := w.wait(ctx)
	outcome.Event, outcome.Who = event.ID, c.as
	return outcome, nil
}

// As is the same client as another principal. The broker must let its user be that principal.
func (c *Client) As(principal string) *Client {
	other := *c
	other.as = principal
	return &other
}
