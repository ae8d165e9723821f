package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/core"
	"agentd/internal/excerpt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// starts reports whether the message begins a run.
func (m *Message) starts() bool {
	return m.Address.Kind == wire.KindStart || m.Address.Kind == wire.KindOut && !m.asks()
}

// asks reports whether an agent that the run has called asks it something.
func (m *Message) asks() bool { return core.IsQuestion(m.Address, m.Event) }

// input turns the message into what the core understands. problem is set when the message is refused.
func (a *activation) input(ctx context.Context) (ev core.Event, problem *sdk.Error, err error) {
	if a.covered() {
		return core.TakenOver{}, nil, nil
	}
	if a.msg.asks() {
		ev, problem = a.asked()
		return ev, problem, nil
	}
	switch a.msg.Address.Kind {
	case wire.KindStart, wire.KindOut:
		return a.started(ctx)
	case wire.KindIn:
		return a.answered(ctx)
	case wire.KindFire:
		return core.Fired{Now: a.msg.Received, Due: a.msg.Due}, nil, nil
	case wire.KindCtl:
		return a.controlled(ctx)
	case wire.KindVoid:
		return core.CancelAsked{Message: messageVoided}, nil, nil
	default:
	}
	return nil, sdk.Errorf(sdk.CodeInvalidEvent, "a run does not understand %s messages", a.msg.Address.Kind), nil
}

// controlled is what a control message asks of the run.
func (a *activation) controlled(ctx context.Context) (ev core.Event, problem *sdk.Error, err error) {
	switch verb := a.msg.Address.Verb; verb {
	case wire.ControlCancel:
		ev, problem = a.cancelled()
	case wire.ControlCancelCall:
		ev, problem = a.callCancelled()
	case wire.ControlMessage:
		ev, problem = a.steered()
	case wire.ControlRetry:
		return a.retried(ctx)
	case wire.ControlUndo:
		return a.undoAsked(ctx)
	default:
		ev, problem = a.held()
	}
	return ev, problem, nil
}

// held is what an operator, and nobody else, wants of a run: that it does not go on, or does again, or has other tags.
func (a *activation) held() (core.Event, *sdk.Error) {
	verb := a.msg.Address.Verb
	if who := a.msg.Address.Who; who != "" {
		return nil, sdk.Errorf(sdk.CodePermissionDenied, "%s may not %s the run: operators may", who, verb)
	}
	switch verb {
	case wire.ControlPause:
		return core.PauseAsked{Reason: reasonOf(a.msg.Event), Received: a.msg.Received}, nil
	case wire.ControlResume:
		return core.ResumeAsked{Received: a.msg.Received}, nil
	case wire.ControlTag:
		return a.tagAsked()
	case wire.ControlUnpark:
		return core.Unparked{Key: a.unparks(), Received: a.msg.Received}, nil
	default:
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "a run does not understand %s messages", verb)
	}
}

// tagAsked is how an operator wants the run to be found.
func (a *activation) tagAsked() (core.Event, *sdk.Error) {
	var data struct {
		Tags map[string]*string `json:"tags"`
	}
	if err := json.Unmarshal(a.msg.Event.Data, &data); err != nil || len(data.Tags) == 0 {
		return nil, sdk.Errorf(sdk.CodeContractViolation, `tags of a run have the data {"tags": {KEY: VALUE}}; null takes one away`)
	}
	ev := core.TagAsked{ID: core.NoteID(a.msg.Event.Source, a.msg.Event.ID)}
	for _, key := range slices.Sorted(maps.Keys(data.Tags)) {
		ev.Tags = append(ev.Tags, core.TagChange{Key: key, Value: data.Tags[key]})
	}
	return ev, nil
}

// unparks is the key of the parked runs that the message is for; empty is whatever the run waits for.
func (a *activation) unparks() string {
	var data struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(a.msg.Event.Data, &data); err != nil {
		return ""
	}
	return data.Key
}

// covered reports whether the message that covers the run was delivered again: its former driver's lease has ended.
func (a *activation) covered() bool {
	return a.head.Status == core.StatusRunning && a.head.Driver.Covers(a.msg.Cause)
}

// steered is a message that somebody sends into the run. One that is sent twice with the same source and id counts once.
func (a *activation) steered() (core.Event, *sdk.Error) {
	ev := a.msg.Event
	var data struct {
		Message string `json:"message"`
		Urgent  bool   `json:"urgent"`
	}
	if err := json.Unmarshal(ev.Data, &data); err != nil || data.Message == "" {
		return nil, sdk.Errorf(sdk.CodeContractViolation, `a message into a run has the data {"message": TEXT}, or {"message": TEXT, "urgent": true}`)
	}
	if problem := a.unnamed(); problem != nil {
		return nil, problem
	}
	return core.Steered{Note: core.Note{
		ID: core.NoteID(ev.Source, ev.ID), Text: data.Message, Event: ev.ID, Source: ev.Source, Who: a.msg.Address.Who,
		Urgent: data.Urgent,
	}}, nil
}

// asked is a question of an agent that the run has called. Its subject says whose it is: workers publish in the name of their own agents alone.
func (a *activation) asked() (core.Event, *sdk.Error) {
	ev, at := a.msg.Event, a.msg.Address.Call
	var data struct {
		Question string `json:"question"`
	}
	_, call, called := core.Caller(ev.Subject)
	if err := json.Unmarshal(ev.Data, &data); err != nil || data.Question == "" || !called || at.Run != wire.NewRunKey(ev.Subject) {
		return nil, sdk.Errorf(sdk.CodeContractViolation, `a question of an agent to its caller has the data {"question": TEXT} and is of the agent's own run`)
	}
	return core.Steered{
		Note:     core.Note{ID: core.NoteID(ev.Source, ev.ID), Text: data.Question, Event: ev.ID, Source: ev.Source},
		Question: &core.Question{Call: call, Run: ev.Subject, At: at},
	}, nil
}

// unnamed refuses a control message of nobody knows whom, where the agent requires to know.
func (a *activation) unnamed() *sdk.Error {
	if !a.agent.Identity || a.msg.Address.Who != "" {
		return nil
	}
	return sdk.Errorf(sdk.CodeIdentityRequired, "the subject of the message names no principal, which this agent requires"+nameOneself)
}

// decimal reads an attribute whose value is a number in decimal digits: a text, or an integer of CloudEvents.
func decimal(value any) (int64, bool) {
	if n, ok := value.(json.Number); ok {
		value = n.String()
	}
	text, _ := value.(string)
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}

// budget is how many tokens an init event lets the run use; 0 is any number. What cannot be read is refused: whoever wrote it relies on it.
func budget(ev wire.Event) (int64, *sdk.Error) {
	value := ev.Extensions[wire.TokenBudget]
	if value == nil {
		return 0, nil
	}
	n, ok := decimal(value)
	if !ok || n == 0 {
		return 0, sdk.Errorf(sdk.CodeInvalidEvent, "the attribute %s must be a positive number in decimal digits, such as 50000; it is %.40q",
			wire.TokenBudget, fmt.Sprint(value))
	}
	return n, nil
}

// nameOneself says how a subject gets a principal.
const nameOneself = "; connect as a NATS user (nats://USER:PASSWORD@HOST in NATS_URL, NATS_CREDS or NATS_NKEY), whose name agentd and its " +
	"clients put at the end of the subject"

// cancelled is a request to end the run.
func (a *activation) cancelled() (core.Event, *sdk.Error) {
	if problem := a.notTheirs("cancel the run"); problem != nil {
		return nil, problem
	}
	return core.CancelAsked{Message: reasonOf(a.msg.Event)}, nil
}

// callCancelled is a request to give up one call.
func (a *activation) callCancelled() (core.Event, *sdk.Error) {
	if problem := a.notTheirs("cancel calls of the run"); problem != nil {
		return nil, problem
	}
	var data struct {
		Call string `json:"call"`
	}
	err := json.Unmarshal(a.msg.Event.Data, &data)
	ref, ok := wire.ParseCallRef(data.Call)
	if err != nil || !ok {
		return nil, sdk.Errorf(sdk.CodeContractViolation, `a request to cancel a call has the data {"call": ID}, with the id of the call`)
	}
	return core.CallCancelAsked{Call: ref.ID, Message: reasonOf(a.msg.Event)}, nil
}

// notTheirs refuses what is up to whoever started the run, and to operators, who are nobody in particular.
func (a *activation) notTheirs(what string) *sdk.Error {
	if who := a.msg.Address.Who; who != "" && a.head.Status != "" && who != a.head.Init.Who {
		return sdk.Errorf(sdk.CodePermissionDenied, "%s may not %s: somebody else started it", who, what)
	}
	return nil
}

func reasonOf(ev wire.Event) string {
	var data struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(ev.Data, &data); err != nil {
		return ""
	}
	return data.Reason
}

// started builds the conversation of a new run. A run that exists needs none: the core decides between a duplicate and
// a conflict.
func (a *activation) started(ctx context.Context) (core.Event, *sdk.Error, error) {
	init := a.init()
	if a.head.Status != "" {
		return core.Started{Run: a.msg.Run, Init: init}, nil, nil
	}
	if a.agent.Identity && init.Who == "" {
		return nil, sdk.Errorf(sdk.CodeIdentityRequired, "the subject of the event names no principal, which this agent requires"+nameOneself), nil
	}
	data, problem := a.agent.CheckInput(a.msg.Event)
	if problem == nil {
		problem = checkName(a.msg.Run)
	}
	if _, err := core.ParentSubject(a.msg.Event); problem == nil && err != nil {
		problem = sdk.AsError(err)
	}
	var require []string
	if problem == nil {
		require, problem = required(a.msg.Event)
	}
	tags := ""
	if problem == nil {
		tags, problem = a.tagged(data, init.Who)
	}
	var own *sdk.Constraints
	if problem == nil {
		own, problem = a.constrained()
	}
	most := int64(0)
	if problem == nil {
		most, problem = budget(a.msg.Event)
	}
	if problem != nil {
		return nil, problem, nil
	}
	beginning, err := a.prepare(ctx, a.msg.Run, data, &init, require)
	if err != nil {
		return nil, nil, err
	}
	if err := a.putSpec(ctx); err != nil {
		return nil, nil, err
	}
	return core.Started{
		Run: a.msg.Run, Init: init, Data: data, Beginning: beginning, Budget: most, Tags: tags,
		Constraints: own,
	}, nil, nil
}

// constrained are the constraints that an init event gives the run; nil is none. What cannot be read, or would not count, is refused: whoever
// wrote it relies on it.
func (a *activation) constrained() (*sdk.Constraints, *sdk.Error) {
	value, given := a.msg.Event.Extensions[wire.RunConstraints]
	if !given {
		return nil, nil
	}
	refused := func(format string, args ...any) (*sdk.Constraints, *sdk.Error) {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "the attribute %s: "+format, append([]any{wire.RunConstraints}, args...)...)
	}
	text, _ := value.(string)
	var own sdk.Constraints
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&own); err != nil || d.More() {
		return refused(`want the constraints as JSON text, such as {"deny":["files_delete"],"read_only":true}`)
	}
	if a.agent.CheckConstraints == nil {
		return refused("the agent holds no run to constraints; it needs some of its own, constraints: {read_only: false} at least")
	}
	if faults := a.agent.CheckConstraints(&own); len(faults) > 0 {
		return refused("%s", strings.Join(faults, "; "))
	}
	return &own, nil
}

// tagged are the tags of a run that begins, as the head has them: those of its init event, and for other keys those of its agent.
func (a *activation) tagged(input json.RawMessage, initiator string) (string, *sdk.Error) {
	value, given := a.msg.Event.Extensions[wire.TagsAttribute]
	text, ok := value.(string)
	if given && !ok {
		return "", sdk.Errorf(sdk.CodeInvalidEvent, "the attribute %s must be a text such as tenant=acme,order=7", wire.TagsAttribute)
	}
	tags, err := wire.ParseTags(text)
	if err != nil {
		return "", sdk.AsError(err)
	}
	if a.agent.Tags == nil {
		return wire.FormatTags(tags), nil
	}
	all := a.agent.Tags(input, a.msg.Run, initiator)
	for key := range tags {
		delete(all, key)
	}
	for _, key := range slices.Sorted(maps.Keys(all))[max(0, min(len(all), wire.MaxTags-len(tags))):] {
		delete(all, key) // a run has so many, and whoever started it comes first
	}
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, tags)
	return wire.FormatTags(all), nil
}

// prepare builds the conversation of a run that begins and shows it to hooks. require are the tools that whoever started the run puts
// under permission.
func (a *activation) prepare(
	ctx context.Context, run string, data json.RawMessage, init *core.Init, require []string,
) (core.Beginning, error) {
	in := sdk.ContextInput{
		Lifecycle: sdk.LifecycleInit, Run: run, Input: data, Tools: a.agent.Definitions,
		AccessControl: init.AccessControl, DelegatedBy: init.DelegatedBy,
	}
	built, problem, err := a.buildContext(ctx, in)
	b := core.Beginning{System: built.System, Messages: built.Messages, Require: require}
	for _, pattern := range built.Require {
		if !slices.Contains(b.Require, pattern) {
			b.Require = append(slices.Clip(b.Require), pattern)
		}
	}
	failed := func(code sdk.Code, message, detail string, cause error) {
		a.Logger.ErrorContext(ctx, "run ends at its beginning", "agent", a.agent.Core.Name, "run", run, "error", cause)
		b.Fails = &core.Ending{Reason: core.ReasonError, Code: code, Message: message, Detail: detail}
	}
	if err == nil && problem != nil {
		failed(problem.Code, problem.Message, "context", problem)
		b.Messages, err = defaultMessages(data)
	}
	if err == nil {
		b.Tokens = a.agent.Estimate(b.Messages)
	}
	if err != nil || b.Fails != nil {
		return b, err
	}
	b.Hooks, err = a.runStart(ctx, in, built)
	if errors.Is(err, errHook) {
		failed(sdk.CodeInternal, "a hook of the agent failed", "hook", err)
		return b, nil
	}
	return b, err
}

// maxDelegation is how many calls may lie between a run and the init event that a client sent: agents that call each
// other in a circle would else go on until somebody pays.
const maxDelegation = 8

// checkName refuses a run by its name, which grows with every call of an agent by an agent.
func checkName(run string) *sdk.Error {
	if len(run) > wire.MaxAttribute {
		return sdk.Errorf(sdk.CodeTooLarge, "the run's name would have %d bytes, more than %d", len(run), wire.MaxAttribute)
	}
	depth := 0
	for rest := run; ; depth++ {
		i := strings.LastIndexByte(rest, '/')
		if _, call := wire.ParseCallRef(rest[i+1:]); i < 0 || !call {
			break
		}
		rest = rest[:i]
	}
	if depth > maxDelegation {
		return sdk.Errorf(sdk.CodeQuotaExhausted, "agents call agents at most %d levels deep", maxDelegation)
	}
	return nil
}

// init is what a run that the message starts keeps of it.
func (a *activation) init() core.Init {
	init := core.NewInit(a.msg.Address, a.msg.Event)
	init.TraceParent = cmp.Or(init.TraceParent, a.trace)
	return init
}

// answered checks a response against the contract that was called. A service's bad answer is the call's result, for the
// model to see; a person's bad answer is refused, so that they can answer again.
func (a *activation) answered(ctx context.Context) (core.Event, *sdk.Error, error) {
	ev, address := a.msg.Event, a.msg.Address
	ref, ok := wire.ParseCallRef(address.Call.Call)
	if !ok {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, "%q is not a call id", address.Call.Call), nil
	}
	used, _ := decimal(ev.Extensions[wire.TokensUsed])
	answer := core.Answered{
		Ref: ref, Address: address.Call, ParentID: ev.ParentID, EventID: ev.ID, Source: ev.Source, Who: address.Who,
		Data: ev.Data, Received: a.msg.Received, Tokens: used,
	}
	c := a.head.Answering(ref.ID)
	if c == nil || c.Closed() {
		return answer, nil, nil
	}
	checked, problem := a.agent.CheckAnswer(*c, ev, address.Who)
	if problem != nil {
		return nil, problem, nil
	}
	answer.Data, answer.Error, answer.Retryable = checked.Data, checked.Error, checked.Retryable
	if c.Kind == core.CallService {
		answer.Data, answer.Media = excerpt.SplitMedia(checked.Data)
	}
	answer.Decision, answer.Key, answer.Refused = checked.Decision, checked.Key, checked.Refused
	if c.Kind == core.CallPermission && a.agent.Identity && answer.Who == "" {
		return nil, sdk.Errorf(sdk.CodeIdentityRequired, "the subject of the decision names no principal, which this agent requires"+nameOneself), nil
	}
	if checked.Decision == nil {
		return answer, nil, nil
	}
	var err error
	answer.Rulings, err = a.rulingsOf(ctx, c, ref.Attempt, checked.Decision)
	return answer, nil, err
}
