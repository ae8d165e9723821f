package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/expression"
	"agentd/internal/requests"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Source is what the desk calls itself in events.
const Source = "agentd.desk"

// Decide publishes a decision on an open permission request, as who, and waits a moment for what becomes of it. id is what
// Find takes. The arguments' hash is the request's unless d has one: then both must be equal. Of a request for several calls the
// decision names those that it is about, or all. What could never count is
// not published; who may decide is the run's to say, so that its journal has the refusal.
func (d *Desk) Decide(ctx context.Context, id, who string, p sdk.PermissionDecision) (client.Outcome, error) {
	detail, err := d.toAnswer(ctx, id)
	if err != nil {
		return client.Outcome{}, err
	}
	if detail.Kind != requests.KindPermission {
		return client.Outcome{}, refused("%s is a %s, not a permission request; answer it", detail.ID, detail.Kind)
	}
	if p, err = p.On(detail.Request); err != nil {
		return client.Outcome{}, err
	}
	if detail.Request.Signed && d.o.SigningKey == nil {
		return client.Outcome{}, refused("this request wants a signed decision: name the key to sign with (approvals.key)")
	}
	if p, err = checkCalls(detail.Request, p, d.now().UnixMilli()); err != nil {
		return client.Outcome{}, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return client.Outcome{}, fmt.Errorf("encode decision: %w", err)
	}
	return d.publish(ctx, detail, who, sdk.TypePermissionDecided, data)
}

func refused(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeDecisionRefused, format, args...)
}

// checkCalls is checkDecision for each call that the decision names.
func checkCalls(r *sdk.PermissionRequest, p sdk.PermissionDecision, now int64) (sdk.PermissionDecision, error) {
	if len(p.Calls) == 0 {
		if p.All && len(p.Args)+len(p.Result) > 0 {
			return p, refused("arguments and results are of one call; name it")
		}
		return checkDecision(r, p, now)
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		one, _ := r.Of(c.Call) // On has seen it
		checked, err := checkDecision(&one, p.Of(*c), now)
		if err != nil {
			return p, err
		}
		c.Args = checked.Args
	}
	return p, nil
}

// checkDecision reports what keeps a decision from ever counting, and returns it in its canonical form.
func checkDecision(r *sdk.PermissionRequest, p sdk.PermissionDecision, now int64) (sdk.PermissionDecision, error) {
	wider := p.Scope != "" && p.Scope != sdk.ScopeCall
	switch p.Decision {
	case sdk.DecisionAllow, sdk.DecisionDeny:
	case sdk.DecisionResult:
		if !r.Results {
			return p, refused("the request does not offer to give the call's result; allow the call, or deny it")
		}
		if wider {
			return p, refused("a result is that of this one call; the scope %s is wider", p.Scope)
		}
		if canonical, err := wire.Canonicalize(p.Result); err != nil || canonical[0] != '{' {
			return p, refused("a result is an object, as JSON")
		}
	case sdk.DecisionAsk:
		if strings.TrimSpace(p.Reason) == "" {
			return p, refused("asking back needs a question")
		}
	default:
		return p, refused("%q is not a decision: want allow, deny, ask or result", p.Decision)
	}
	switch {
	case wider && !slices.Contains(r.Scopes, p.Scope):
		return p, refused("the scope %q was not offered; offered: %s", p.Scope, joinScopes(r.Scopes))
	case p.Scope == sdk.ScopeToolPattern && p.Pattern == "":
		return p, refused("the scope %s needs a pattern, such as: args.amount < 100", sdk.ScopeToolPattern)
	case p.Pattern != "" && p.Scope != sdk.ScopeToolPattern:
		return p, refused("a pattern goes with the scope %s", sdk.ScopeToolPattern)
	case (p.Uses != 0 || p.ExpiresMillis != 0) && !wider:
		return p, refused("uses and expiry bound a scope wider than the call; offered: %s", joinScopes(r.Scopes))
	case p.Uses < 0, p.ExpiresMillis != 0 && p.ExpiresMillis <= now:
		return p, refused("a grant needs uses of at least 1, and an expiry in the future")
	}
	if p.Pattern != "" {
		if err := expression.CheckPattern(p.Pattern); err != nil {
			return p, err
		}
	}
	return checkEdit(r, p)
}

func joinScopes(scopes []sdk.GrantScope) string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// CheckEdit holds edited arguments to the request, and returns the approval with them in canonical form.
func CheckEdit(r *sdk.PermissionRequest, args json.RawMessage) (sdk.PermissionDecision, error) {
	return checkEdit(r, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: r.ArgsHash, Args: args})
}

// checkEdit holds the arguments of an approver to the schema of the model's, and fills in its defaults as the run does.
func checkEdit(r *sdk.PermissionRequest, p sdk.PermissionDecision) (sdk.PermissionDecision, error) {
	switch {
	case len(p.Args) == 0:
		return p, nil
	case p.Decision != sdk.DecisionAllow:
		return p, refused("only an approval can have other arguments")
	case r.Mode != sdk.PermissionHold:
		return p, refused("the arguments cannot be edited: the model makes the call itself (mode %s). Ask it for other ones", r.Mode)
	case r.Quorum > 1:
		return p, refused("the arguments cannot be edited: %d people must allow the same call", r.Quorum)
	case p.Scope != "" && p.Scope != sdk.ScopeCall:
		return p, refused("edited arguments are for this one call; the scope %s is wider", p.Scope)
	}
	canonical, err := wire.Canonicalize(p.Args)
	if err != nil {
		e := sdk.AsError(err)
		return p, &sdk.Error{Code: e.Code, Message: "the edited arguments cannot be read", Faults: e.Faults}
	}
	p.Args = canonical
	if len(r.Parameters) == 0 {
		return p, nil
	}
	schema, err := schema.Compile(r.Parameters)
	if err != nil {
		return p, fmt.Errorf("read the schema of the arguments: %w", err)
	}
	filled, faults := schema.Admit(canonical)
	if len(faults) > 0 {
		return p, &sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the edited arguments do not fit the tool " + r.Tool, Faults: faults,
		}
	}
	p.Args = filled
	return p, nil
}

// Answer publishes an answer to an open question, turn or task, as who, and waits a moment for what becomes of it.
func (d *Desk) Answer(ctx context.Context, id, who string, r client.Reply) (client.Outcome, error) {
	detail, err := d.toAnswer(ctx, id)
	if err != nil {
		return client.Outcome{}, err
	}
	eventType, answer, err := d.AnswerSchema(detail, r.Type)
	if err != nil {
		return client.Outcome{}, err
	}
	data, err := r.Encode(detail.Type)
	if err != nil {
		return client.Outcome{}, err
	}
	if answer != nil {
		compiled, err := schema.Compile(answer)
		if err != nil {
			return client.Outcome{}, fmt.Errorf("read the schema of the answer: %w", err)
		}
		if faults := compiled.Validate(data); len(faults) > 0 {
			return client.Outcome{}, unfit(faults)
		}
	}
	if faults := formFaults(detail.Form(), data); len(faults) > 0 {
		return client.Outcome{}, unfit(faults)
	}
	return d.publish(ctx, detail, who, eventType, data)
}

func unfit(faults []sdk.Fault) error {
	return &sdk.Error{Code: sdk.CodeContractViolation, Message: "the answer does not fit what was asked", Faults: faults}
}

// formFaults holds an object that answers a question to the form that it asks for, if it does. Other texts are for the tool to understand.
func formFaults(asked, answer json.RawMessage) []sdk.Fault {
	var given struct {
		Answer  string          `json:"answer"`
		Content json.RawMessage `json:"content"`
	}
	if len(asked) == 0 || json.Unmarshal(answer, &given) != nil {
		return nil
	}
	if len(given.Content) == 0 {
		given.Content = json.RawMessage(given.Answer)
	}
	form, err := schema.Compile(asked)
	if err != nil {
		return nil // whoever asked says what it can use
	}
	content, err := form.ApplyDefaults(given.Content)
	if err != nil || !bytes.HasPrefix(content, []byte("{")) {
		return nil
	}
	return form.Validate(content)
}

// AnswerSchema returns the event type and the JSON Schema of the answer to an item. Of a task whose contract is not known
// the caller must name the type, and nothing is held to a schema.
func (d *Desk) AnswerSchema(detail requests.Detail, want string) (eventType string, schema json.RawMessage, err error) {
	if detail.Kind == requests.KindPermission {
		return "", nil, refused("%s is a permission request; approve or deny it", detail.ID)
	}
	contract := d.contractOf(detail.Type)
	if contract == nil {
		if want == "" {
			return "", nil, sdk.Errorf(sdk.CodeContractMissing,
				"the contract of %s is not known here; name the type of the answer, or the contract in the configuration", detail.Type)
		}
		return want, nil, nil
	}
	version := strings.TrimPrefix(wire.AbsoluteURI(detail.Event.DataSchema), wire.AbsoluteURI(contract.URI)+"/")
	emits := contract.Versions[version].Emits
	var types []string
	for t := range emits {
		types = append(types, t)
	}
	slices.Sort(types)
	switch {
	case len(types) == 0:
		return "", nil, sdk.Errorf(sdk.CodeContractMissing, "version %q of the contract of %s is not known here", version, detail.Type)
	case want == "" && len(types) == 1:
		want = types[0]
	case want == "":
		return "", nil, sdk.Errorf(sdk.CodeContractViolation, "name the type of the answer: %s", strings.Join(types, ", "))
	case !slices.Contains(types, want):
		return "", nil, sdk.Errorf(sdk.CodeContractViolation, "%q is not an answer to %s: want %s", want, detail.Type, strings.Join(types, ", "))
	}
	return want, emits[want], nil
}

// publish publishes an answer and waits for what becomes of it.
func (d *Desk) publish(ctx context.Context, detail requests.Detail, who, eventType string, data json.RawMessage) (client.Outcome, error) {
	if err := wire.CheckPrincipal(who); err != nil {
		return client.Outcome{}, err
	}
	call, err := d.call(detail)
	if err != nil {
		return client.Outcome{}, err
	}
	outcome, err := d.client.As(who).Publish(ctx, call, eventType, data, d.inbox.await)
	if outcome.State == client.OutcomeRefused {
		open, _ := d.inbox.stillOpen(detail.Subject)
		outcome.Open = outcome.Open || open
	}
	return outcome, err
}

// call is an item as the client answers it: its subject says what it is, which the broker enforced.
func (d *Desk) call(detail requests.Detail) (client.Call, error) {
	address, err := d.o.Conn.Subjects().Parse(detail.Subject)
	if err != nil {
		return client.Call{}, err
	}
	ref, _ := wire.ParseCallRef(detail.ID) // nothing lives under an id of another form
	event := detail.Event
	return client.Call{
		Run: client.Run{Agent: address.Agent, Name: detail.Run},
		WaitingCall: wire.WaitingCall{
			Call: ref.ID, Type: detail.Type, Domain: address.Call.Domain, Event: detail.ID, Schema: event.DataSchema,
		},
		AccessControl: event.AccessControl, TraceParent: event.TraceParent, TraceState: event.TraceState,
	}, nil
}
