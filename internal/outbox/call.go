package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Message is an event and the subject that it is published on.
type Message struct {
	Subject string
	Event   wire.Event
}

// Calls are the events of an attempt at a call, the effect f of entry e: one for each domain. opened is the entry that has
// the call's data: the one that f names as Opened, else e itself. The error says that the journal does not hold together.
func Calls(s wire.Subjects, e *core.Entry, f core.Effect, opened *core.Entry) ([]Message, error) {
	data, err := callData(opened, f, &e.Head)
	if err != nil {
		return nil, fmt.Errorf("call %s in entry %d: %w", f.Call, opened.Rev, err)
	}
	messages := make([]Message, len(f.Lanes()))
	for i, at := range f.Addresses(&e.Head) {
		ev := envelope(&e.Head, f, i, at)
		ev.To, ev.DataSchema, ev.Data = f.Type, f.Schema, data
		ev.Time, ev.ExecutionUnits, ev.ParentID = entryTime(e), e.Head.Units, e.Cause.EventID
		// Workers that only copy CloudEvents attributes answer to redirectto, and errors to source.
		ev.Source = s.Reply(at)
		ev.RedirectTo = ev.Source
		ev.Extensions = extensions(&e.Head, f.Call)
		if f.Caller != "" {
			ev.Extensions[wire.CallerType] = f.Caller
		}
		messages[i] = Message{s.Call(at), ev}
	}
	return messages, nil
}

// Voids are the counterparts of the events that Calls made of an attempt at a call, which the effect f of entry e gives up.
func Voids(s wire.Subjects, e *core.Entry, f core.Effect) []Message {
	messages := make([]Message, len(f.Lanes()))
	for i, at := range f.Addresses(&e.Head) {
		m := Void(s, at, envelope(&e.Head, f, i, at))
		// An effect that says what opened the call is of a version whose voids had the time and the cost of the entry: they have
		// the same bytes for ever.
		if f.Opened > 0 {
			m.Event.Time, m.Event.ExecutionUnits, m.Event.TraceParent = entryTime(e), e.Head.Units, e.Head.Init.TraceParent
		}
		messages[i] = m
	}
	return messages
}

// Void is the counterpart of the call at that address. It is made of nothing but what the call says of itself and every entry
// of its run says too, so that it has the same bytes whether the run or somebody without the run's journal makes it.
func Void(s wire.Subjects, at wire.CallAddress, call wire.Event) Message {
	return Message{s.Void(at), wire.Event{
		ID: call.ID + "-void", Source: s.Reply(at), Type: wire.VoidType(call.Type), Subject: call.Subject, ParentID: call.ID,
		DataContentType: wire.ContentTypeJSON, Data: json.RawMessage("{}"), AccessControl: call.AccessControl,
		Domain: call.Domain, Agent: call.Agent, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}}
}

// envelope has the attributes of the i-th event of an attempt at a call that are the same in every entry of the run.
func envelope(h *core.Head, f core.Effect, i int, at wire.CallAddress) wire.Event {
	return wire.Event{
		ID: at.Call, Type: f.Type, Subject: h.Run, DataContentType: wire.ContentTypeJSON, AccessControl: h.Init.AccessControl,
		Domain: f.Lanes()[i], Agent: h.Agent, TraceParent: wire.EventTrace(h.Init.TraceParent, at.Call),
		TraceState: h.Init.TraceState,
	}
}

// entryTime is the time of the events that an entry publishes.
func entryTime(e *core.Entry) time.Time { return time.UnixMilli(e.At).UTC() }

// expiryLayout is RFC 3339 in UTC with milliseconds.
const expiryLayout = "2006-01-02T15:04:05.000Z07:00"

// extensions tell the service how long somebody waits for an answer (as long as the call may take, and no longer than the
// run), for whom, and an agent how many tokens it may use.
func extensions(h *core.Head, call string) map[string]any {
	due, budget := h.Deadline, int64(0)
	if c := h.Answering(call); c != nil {
		budget = c.Reserved
		if c.Due > 0 {
			due = min(due, c.Due)
		}
	}
	x := map[string]any{wire.ExpiryTime: time.UnixMilli(due).UTC().Format(expiryLayout)}
	if budget > 0 {
		x[wire.TokenBudget] = strconv.FormatInt(budget, 10)
	}
	if h.Init.Who != "" {
		x[wire.Initiator] = h.Init.Who
	}
	return x
}

// callData is the data of the events of an attempt at a call.
func callData(opened *core.Entry, f core.Effect, sent *core.Head) (json.RawMessage, error) {
	data, ok := opened.CallData(f, sent)
	switch {
	case !ok:
		return nil, errors.New("the entry has no data of it")
	case f.ParentSubject:
		return withMember(data, sdk.ParentSubjectField, sent.Run)
	case sdk.AsksPermission(f.Type) && f.Attempt > 1:
		return atStage(data, f.Attempt-1-f.Repeated)
	}
	return data, nil
}

// atStage is a permission request as those are asked who come after the first ones.
func atStage(data json.RawMessage, stage int) (json.RawMessage, error) {
	var request sdk.PermissionRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, fmt.Errorf("permission request: %w", err)
	}
	request.Stage = stage
	encoded, err := core.EncodeJSON(request)
	if err != nil {
		return nil, fmt.Errorf("permission request: %w", err)
	}
	return wire.Canonicalize(encoded)
}

// withMember is an object with one more member. Its members come sorted.
func withMember(object json.RawMessage, name string, value any) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf("put %s into an object: %w", name, err)
	}
	encoded, err := core.EncodeJSON(value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	members[name] = encoded
	return core.EncodeJSON(members)
}
