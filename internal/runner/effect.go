package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/core"
	"agentd/sdk"
)

// announce sends an entry's milestones to whoever watches.
func (a *activation) announce(e *core.Entry) {
	for _, m := range core.Milestones(e) {
		a.Publisher.Live(m)
	}
}

// carryOut carries out effects of a durable entry. It may be repeated: events are created only if absent, with bytes
// that depend on nothing but the journal.
func (a *activation) carryOut(ctx context.Context, e *core.Entry, effects []core.Effect) error {
	for _, f := range effects {
		var err error
		switch f.Kind {
		case core.EffectCall:
			err = a.publishCall(ctx, e, f)
		case core.EffectVoid:
			err = a.publishVoid(ctx, e, f)
		case core.EffectTimer:
			err = a.Publisher.ArmTimer(ctx, e.Head.Agent, a.key, f.Due)
		case core.EffectTerminal:
			err = a.publishTerminal(ctx, e)
		case core.EffectGrant:
			err = a.recordGrant(ctx, e, f)
		case core.EffectCleanup:
			err = a.cleanUp(ctx, e)
		case core.EffectRunEnd:
			err = a.runEnd(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("%s of entry %d of run %s: %w", f.Kind, e.Rev, a.key, err)
		}
		a.progress()
	}
	return nil
}

// publish creates an event. Other bytes on its subject mean that a history was rolled back or forged: that is reported
// and left alone, because the one that is there may have been acted upon.
func (a *activation) publish(ctx context.Context, subject string, ev wire.Event) error {
	err := a.Publisher.Publish(ctx, subject, ev)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		a.Logger.ErrorContext(ctx, "another event is already on the subject", "run", a.head.Run, "subject", subject, "error", err)
		return nil
	}
	return err
}

// address is where the call's event for one domain lives; the first domain's has the bare call id.
func (a *activation) address(e *core.Entry, f core.Effect, i int) wire.CallAddress {
	ref := wire.CallRef{ID: f.Call, Attempt: max(f.Attempt, 1)}
	if i > 0 {
		ref.Domain = wire.DomainToken(f.Lanes()[i])
	}
	return wire.CallAddress{
		Domain: wire.DomainToken(f.Lanes()[i]), Type: wire.NameToken(f.Type), Agent: wire.NameToken(e.Head.Agent),
		Run: a.key, Call: ref.EventID(),
	}
}

func (a *activation) publishCall(ctx context.Context, e *core.Entry, f core.Effect) error {
	opening, err := a.opening(ctx, e, f)
	if err != nil {
		return err
	}
	data, err := callData(opening, f)
	if err != nil {
		return err
	}
	for i, domain := range f.Lanes() {
		at := a.address(e, f, i)
		reply := a.Subjects.Reply(at)
		ev := a.event(e)
		ev.ID, ev.Type, ev.To, ev.Domain, ev.DataSchema, ev.Data = at.Call, f.Type, f.Type, domain, f.Schema, data
		// Worker that only copy CloudEvents attributes answer to redirectto, and errors to source.
		ev.Source, ev.RedirectTo = reply, reply
		ev.ParentID = e.Cause.EventID
		ev.TraceParent = wire.EventTrace(ev.TraceParent, ev.ID)
		ev.Extensions = expiry(e, f.Call)
		if budget := reserved(e, f.Call); budget > 0 {
			ev.Extensions[wire.TokenBudget] = strconv.FormatInt(budget, 10)
		}
		if who := e.Head.Init.Who; who != "" {
			ev.Extensions[wire.Initiator] = who
		}
		if err := a.publish(ctx, a.Subjects.Call(at), ev); err != nil {
			return err
		}
	}
	return nil
}

// opening is the entry that has the arguments of the call of an effect of e: e itself, or for a later attempt the one
// that f names.
func (a *activation) opening(ctx context.Context, e *core.Entry, f core.Effect) (*core.Entry, error) {
	if f.Opened == 0 || f.Opened == e.Rev {
		return e, nil
	}
	if uint64(len(a.entries)) < f.Opened {
		var err error
		if a.entries, err = a.durable(ctx); err != nil {
			return nil, err
		}
	}
	if uint64(len(a.entries)) < f.Opened {
		return nil, fmt.Errorf("run %s: entry %d is gone, because the run is done", a.key, f.Opened)
	}
	return a.entries[f.Opened-1], nil
}

// expiry tells the service how long somebody waits for an answer: as long as the call may take, and no longer than the
// run.
func expiry(e *core.Entry, call string) map[string]any {
	due := e.Head.Deadline
	for _, c := range e.Head.Calls {
		if c.ID == call && c.Due > 0 {
			due = min(due, c.Due)
		}
	}
	return map[string]any{wire.ExpiryTime: time.UnixMilli(due).UTC().Format("2006-01-02T15:04:05.000Z07:00")}
}

// reserved are the tokens that the agent which is called may use.
func reserved(e *core.Entry, call string) int64 {
	for _, c := range e.Head.Calls {
		if c.ID == call {
			return c.Reserved
		}
	}
	return 0
}

// event has the attributes that all events of a run share.
func (a *activation) event(e *core.Entry) wire.Event {
	h := &e.Head
	return wire.Event{
		Subject: h.Run, Time: time.UnixMilli(e.At).UTC(), DataContentType: wire.ContentTypeJSON, Agent: h.Agent,
		AccessControl: h.Init.AccessControl, ExecutionUnits: h.Units,
		TraceParent: h.Init.TraceParent, TraceState: h.Init.TraceState,
	}
}

// callData is what a call is made with: the arguments in the entry's assistant message or of an approver, the text of a
// turn, a permission request, a tool's question, or one for context.
func callData(e *core.Entry, f core.Effect) (json.RawMessage, error) {
	for _, r := range e.Requests {
		if r.ID == f.Call {
			return requestData(r, f)
		}
	}
	for _, a := range e.Asks {
		if a.ID == f.Call {
			return a.Data, nil
		}
	}
	for _, q := range e.Inquiries {
		if q.ID == f.Call && f.ParentSubject {
			return withParentSubject(q.Data, e.Head.Run)
		}
		if q.ID == f.Call {
			return q.Data, nil
		}
	}
	for _, edit := range e.Edits {
		if edit.Call == f.Call && f.ParentSubject {
			return withParentSubject(edit.Args, e.Head.Run)
		}
		if edit.Call == f.Call {
			return edit.Args, nil
		}
	}
	said := ""
	for _, m := range e.Messages {
		for _, c := range m.Content {
			switch {
			case c.Kind == sdk.ContentToolUse && c.CallID == f.Call && f.ParentSubject:
				return withParentSubject(c.Args, e.Head.Run)
			case c.Kind == sdk.ContentToolUse && c.CallID == f.Call:
				return c.Args, nil
			case c.Kind == sdk.ContentText && m.Role == sdk.RoleAssistant:
				said = c.Text
			}
		}
	}
	if said != "" && f.Type == sdk.TypeConversationTurn {
		return core.TurnData(said)
	}
	return nil, fmt.Errorf("%w: entry %d has no arguments of call %s", ErrCorrupt, e.Rev, f.Call)
}

func withParentSubject(args json.RawMessage, run string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(args, &fields); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	subject, err := core.EncodeJSON(run)
	if err != nil {
		return nil, err
	}
	fields[sdk.ParentSubjectField] = subject
	return core.EncodeJSON(fields) // sorts the keys
}

func (a *activation) publishVoid(ctx context.Context, e *core.Entry, f core.Effect) error {
	for i, domain := range f.Lanes() {
		at := a.address(e, f, i)
		ev := a.event(e)
		ev.ID, ev.Source, ev.Type, ev.Domain = at.Call+"-void", a.Subjects.Reply(at), wire.VoidType(f.Type), domain
		ev.ParentID, ev.Data = at.Call, json.RawMessage("{}")
		if err := a.publish(ctx, a.Subjects.Void(at), ev); err != nil {
			return err
		}
	}
	return nil
}

// publishTerminal publishes the run's one terminal event: to the call that the run answers, else to its done subject.
func (a *activation) publishTerminal(ctx context.Context, e *core.Entry) error {
	if e.Terminal == nil {
		return fmt.Errorf("%w: entry %d ends run %s without a terminal event", ErrCorrupt, e.Rev, a.key)
	}
	data := e.Terminal.Data
	if a.agent.History && e.Terminal.Type == a.agent.Core.OutputType {
		var err error
		if data, err = a.withHistory(ctx, e); err != nil {
			return err
		}
	}
	ev := a.event(e)
	ev.Type, ev.DataSchema, ev.Data = e.Terminal.Type, e.Terminal.Schema, data
	// A journal without a code was ended by a version that published neither: its event has the same bytes for ever.
	if h := &e.Head; h.ReasonCode != "" {
		ev.Extensions = map[string]any{wire.TerminationReason: terminationReason(h)}
		if h.Init.Reply != nil {
			ev.Extensions[wire.TokensUsed] = strconv.FormatInt(h.TokensUsed(), 10)
		}
	}
	return a.publishEnd(ctx, e.Head.Init, ev)
}

// publishEnd addresses a terminal event.
func (a *activation) publishEnd(ctx context.Context, init core.Init, ev wire.Event) error {
	ev.ID = wire.TerminalID(a.key, init.Token)
	ev.Source = a.agent.Core.Type
	ev.ParentID = init.ID
	ev.To = init.RedirectTo
	if ev.To == "" {
		ev.To = init.Source
	}
	if init.Reply == nil {
		return a.publish(ctx, a.Subjects.Done(a.agent.Core.Name, a.key, init.Token), ev)
	}
	ev.Subject = init.ReplySubject
	return a.publish(ctx, a.Subjects.Reply(*init.Reply), ev)
}

// withHistory puts the conversation beside the output (seed 001), unless no event could hold both.
func (a *activation) withHistory(ctx context.Context, e *core.Entry) (json.RawMessage, error) {
	entries, err := a.durable(ctx)
	if err != nil {
		return nil, err
	}
	var state core.State
	for _, o := range entries {
		if state, err = core.Apply(state, o); err != nil {
			return nil, err
		}
		if o.Rev == e.Rev {
			break
		}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(e.Terminal.Data, &fields); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	messages, err := core.EncodeJSON(state.Messages())
	if err != nil {
		return nil, err
	}
	fields["messages"] = messages
	whole, err := core.EncodeJSON(fields)
	if err != nil {
		return nil, err
	}
	if err := wire.CheckData(whole); err != nil {
		a.Logger.WarnContext(ctx, "the conversation is left out of the terminal event", "run", a.head.Run, "error", err)
		return e.Terminal.Data, nil
	}
	return whole, nil
}

// publishRefusal answers an init event that did not start a run. Its bytes, the time too, depend only on the event, so
// that a redelivery and a double of the event publish the same.
func (a *activation) publishRefusal(ctx context.Context, problem *sdk.Error) error {
	data, err := json.Marshal(wire.NewProblem(problem))
	if err != nil {
		return fmt.Errorf("encode refusal: %w", err)
	}
	init := a.init()
	ev := wire.Event{
		Subject: a.msg.Run, Time: a.msg.Event.Time, DataContentType: wire.ContentTypeJSON,
		Agent: a.agent.Core.Name, AccessControl: init.AccessControl, TraceParent: a.msg.Event.TraceParent,
		TraceState: init.TraceState, Type: wire.ErrorType(a.agent.Core.Type), DataSchema: a.agent.Core.ErrorSchema, Data: data,
	}
	return a.publishEnd(ctx, init, ev)
}
