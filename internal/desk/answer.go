package desk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/approval"
	"agentd/internal/contracts"
	"agentd/internal/core"
	"agentd/sdk"
)

// Source is what the desk calls itself in events.
const Source = "agentd.desk"

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
	// Open says that the item still waits, for further approvers or for a better answer.
	Open bool `json:"open,omitempty"`
	// Allowed and Quorum are set when an approval counts and further ones are needed.
	Allowed int `json:"allowed,omitempty"`
	Quorum  int `json:"quorum,omitempty"`
	// Queued says that the call is allowed and waits for its turn in the round; Undecided are the requests of the round that
	// were open then.
	Queued    bool `json:"queued,omitempty"`
	Undecided int  `json:"undecided,omitempty"`
}

var principal = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// CheckPrincipal reports whether a name can be that of a principal: it becomes a subject token. Empty is anonymous.
func CheckPrincipal(who string) error {
	if who != "" && !principal.MatchString(who) {
		return sdk.Errorf(sdk.CodeConfig, "%q cannot be a principal: want 1 to 128 letters, digits, _ and -", who)
	}
	return nil
}

// Decide publishes a decision on an open permission request, as who, and waits a moment for what becomes of it. id is what
// Find takes. The arguments' hash is the request's unless d has one: then both must be equal. What could never count is
// not published; who may decide is the run's to say, so that its journal has the refusal.
func (d *Desk) Decide(ctx context.Context, id, who string, p sdk.PermissionDecision) (Outcome, error) {
	detail, err := d.toAnswer(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	if detail.Kind != KindPermission {
		return Outcome{}, refused("%s is a %s, not a permission request; answer it", detail.ID, detail.Kind)
	}
	if p.ArgsHash != "" && p.ArgsHash != detail.Request.ArgsHash {
		return Outcome{}, refused("the decision is on other arguments than the request's")
	}
	p.ArgsHash = detail.Request.ArgsHash
	if detail.Request.Signed && d.o.Signer == nil {
		return Outcome{}, refused("this request wants a signed decision, and there is no key to sign with (approvals.key)")
	}
	if p, err = checkDecision(detail.Request, p, d.now().UnixMilli()); err != nil {
		return Outcome{}, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode decision: %w", err)
	}
	return d.publish(ctx, detail, who, sdk.TypePermissionDecided, data)
}

func refused(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeDecisionRefused, format, args...)
}

// checkDecision reports what keeps a decision from ever counting, and returns it in its canonical form.
func checkDecision(r *sdk.PermissionRequest, p sdk.PermissionDecision, now int64) (sdk.PermissionDecision, error) {
	switch p.Decision {
	case sdk.DecisionAllow, sdk.DecisionDeny:
	case sdk.DecisionAsk:
		if strings.TrimSpace(p.Reason) == "" {
			return p, refused("asking back needs a question")
		}
	default:
		return p, refused("%q is no decision: want allow, deny or ask", p.Decision)
	}
	wider := p.Scope != "" && p.Scope != sdk.ScopeCall
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
		if err := approval.CheckPattern(p.Pattern); err != nil {
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

// checkEdit holds the arguments of an approver to the schema of the model's.
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
	schema, err := contracts.Compile(r.Parameters)
	if err != nil {
		return p, fmt.Errorf("read the schema of the arguments: %w", err)
	}
	if faults := schema.Validate(canonical); len(faults) > 0 {
		return p, &sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the edited arguments do not fit the tool " + r.Tool, Faults: faults,
		}
	}
	return p, nil
}

// Reply is an answer to a question, a turn or a task: Data, or Text and End.
type Reply struct {
	Text string `json:"text,omitempty"`
	// End ends a conversation after Text, which may then be empty.
	End  bool            `json:"end,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Type is the event type of the answer, for contracts that emit several.
	Type string `json:"type,omitempty"`
}

// Answer publishes an answer to an open question, turn or task, as who, and waits a moment for what becomes of it.
func (d *Desk) Answer(ctx context.Context, id, who string, r Reply) (Outcome, error) {
	detail, err := d.toAnswer(ctx, id)
	if err != nil {
		return Outcome{}, err
	}
	eventType, schema, err := d.AnswerSchema(detail, r.Type)
	if err != nil {
		return Outcome{}, err
	}
	data, err := r.data(detail)
	if err != nil {
		return Outcome{}, err
	}
	if schema != nil {
		compiled, err := contracts.Compile(schema)
		if err != nil {
			return Outcome{}, fmt.Errorf("read the schema of the answer: %w", err)
		}
		if faults := compiled.Validate(data); len(faults) > 0 {
			return Outcome{}, &sdk.Error{Code: sdk.CodeContractViolation, Message: "the answer does not fit what was asked", Faults: faults}
		}
	}
	return d.publish(ctx, detail, who, eventType, data)
}

// AnswerSchema returns the event type and the JSON Schema of the answer to an item. Of a task whose contract is not known
// the caller must name the type, and there is no schema.
func (d *Desk) AnswerSchema(detail Detail, want string) (eventType string, schema json.RawMessage, err error) {
	if detail.Kind == KindPermission {
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
	version := strings.TrimPrefix(detail.Event.DataSchema, contract.URI+"/")
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
		return "", nil, sdk.Errorf(sdk.CodeContractViolation, "%q is no answer to %s: want %s", want, detail.Type, strings.Join(types, ", "))
	}
	return want, emits[want], nil
}

// data is the answer's data.
func (r Reply) data(detail Detail) (json.RawMessage, error) {
	if len(r.Data) > 0 {
		if r.Text != "" || r.End {
			return nil, sdk.Errorf(sdk.CodeContractViolation, "an answer is a text or data, not both")
		}
		return wire.Canonicalize(r.Data)
	}
	switch {
	case detail.Kind == KindTask:
		return nil, sdk.Errorf(sdk.CodeContractViolation, "%s wants data", detail.Type)
	case r.End && detail.Kind != KindTurn:
		return nil, sdk.Errorf(sdk.CodeContractViolation, "only a conversation has an end")
	case strings.TrimSpace(r.Text) == "" && !r.End:
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the answer is empty")
	}
	if detail.Kind == KindTurn {
		return json.Marshal(core.TurnAnswer{Message: r.Text, End: r.End})
	}
	return json.Marshal(map[string]string{"answer": r.Text})
}

// publish publishes an answer and waits for what becomes of it.
func (d *Desk) publish(ctx context.Context, detail Detail, who, eventType string, data json.RawMessage) (Outcome, error) {
	if err := CheckPrincipal(who); err != nil {
		return Outcome{}, err
	}
	call := detail.Event
	reply, err := replySubject(d.o.Conn, detail.subject, who)
	if err != nil {
		return Outcome{}, err
	}
	event := wire.Event{
		// Unlike a service's answer it is new each time: a person may answer again after a refusal.
		ID: call.ID + "-" + strings.ToLower(rand.Text()), Source: Source, Type: eventType, Subject: call.Subject, Time: d.now(),
		DataContentType: wire.ContentTypeJSON, DataSchema: call.DataSchema, Data: data, To: call.RedirectTo, ParentID: call.ID,
		AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}
	if d.o.Signer != nil && eventType == sdk.TypePermissionDecided {
		if event, err = d.o.Signer.Sign(event); err != nil {
			return Outcome{}, err
		}
	}
	w, err := d.watch(detail.Item, event.ID)
	if err != nil {
		return Outcome{}, err
	}
	defer w.stop()
	if err := d.o.Conn.Reply(ctx, reply, event); err != nil {
		return Outcome{}, err
	}
	outcome := w.wait(ctx, d.o.Patience)
	outcome.Event, outcome.Who = event.ID, who
	return outcome, nil
}

// fate waits for what becomes of one answer.
type fate struct {
	d     *Desk
	item  Item
	event string
	// call is the id of the call without attempt and domain.
	call   string
	live   chan wire.Live
	letter <-chan string
	stop   func()
}

// watch listens before an answer is published, so that nothing is missed.
func (d *Desk) watch(i Item, event string) (*fate, error) {
	address, err := d.o.Conn.Subjects().Parse(i.subject)
	if err != nil {
		return nil, err
	}
	ref, _ := wire.ParseCallRef(i.ID) // nothing lives under an id of another form
	f := &fate{d: d, item: i, event: event, call: ref.ID, live: make(chan wire.Live, 64)}
	unsubscribe, err := d.o.Conn.WatchLive(d.o.Conn.Subjects().Live(address.Agent, address.Run), func(l wire.Live) {
		select {
		case f.live <- l:
		default: // the run's history is asked in the end
		}
	})
	if err != nil {
		return nil, err
	}
	letter, forget := d.inbox.await(event)
	f.letter = letter
	f.stop = func() {
		forget()
		if err := unsubscribe(); err != nil {
			d.o.Logger.Debug("subscription could not be ended", "error", err)
		}
	}
	return f, nil
}

func (f *fate) wait(ctx context.Context, patience time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		select {
		case l := <-f.live:
			if o, ok := f.told(l); ok {
				return o
			}
		case why := <-f.letter:
			open, _ := f.d.inbox.stillOpen(f.item.subject)
			return Outcome{State: OutcomeRefused, Refused: why, Open: open}
		case <-ctx.Done():
			return f.look(context.WithoutCancel(ctx))
		}
	}
}

// told is what a live event tells of the answer.
func (f *fate) told(l wire.Live) (Outcome, bool) {
	if decided, ok := decidedIn(l); ok {
		switch {
		case decided.Decision.Event != f.event:
			return Outcome{}, false
		case decided.Decision.Refused != "":
			return Outcome{State: OutcomeRefused, Refused: decided.Decision.Refused, Open: true}, true
		}
		return Outcome{
			State: OutcomeCounted, Open: decided.Quorum > 0, Allowed: decided.Allowed, Quorum: decided.Quorum,
			Queued: decided.Queued, Undecided: decided.Undecided,
		}, true
	}
	var result struct {
		Call string `json:"call"`
	}
	switch {
	case f.item.Kind == KindPermission:
	case l.Type == core.MilestoneAnswer && f.item.Kind == KindTurn:
		return Outcome{State: OutcomeCounted}, true
	case l.Type == core.MilestoneResult && json.Unmarshal(l.Data, &result) == nil && result.Call == f.call:
		return Outcome{State: OutcomeCounted}, true
	}
	return Outcome{}, false
}

// look asks the run, when nothing was heard: live events are lossy.
func (f *fate) look(ctx context.Context) Outcome {
	outcome := Outcome{State: OutcomeSent}
	err := f.d.milestones(ctx, f.item, func(m wire.Live) bool {
		if f.item.Kind == KindTurn && m.Type == core.MilestoneAnswer {
			return true // it may be the answer to an earlier turn
		}
		o, ok := f.told(m)
		if ok {
			outcome = o
		}
		return !ok
	})
	if err != nil {
		f.d.o.Logger.Debug("nobody tells what became of an answer", "request", f.item.ID, "error", err)
	}
	return outcome
}
