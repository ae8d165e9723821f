package outbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Terminal is the terminal event of the run that entry e ends. spec is the agent's. The error says that the journal does not
// hold together.
//
// A conversation, unless it is nil, is put beside the output. Where no event could hold both it is left out, and
// omitted says why.
func Terminal(s wire.Subjects, spec *core.Spec, e *core.Entry, conversation []sdk.Message) (m Message, omitted, err error) {
	if e.Terminal == nil {
		return Message{}, nil, fmt.Errorf("entry %d ends run %s without a terminal event", e.Rev, e.Head.Run)
	}
	h := &e.Head
	ev := wire.Event{
		Type: e.Terminal.Type, DataSchema: e.Terminal.Schema, Data: e.Terminal.Data, Time: entryTime(e), ExecutionUnits: h.Units,
	}
	if conversation != nil {
		whole, err := withMember(ev.Data, "messages", conversation)
		if err == nil {
			err = wire.CheckData(whole)
		}
		if omitted = err; omitted == nil {
			ev.Data = whole
		}
	}
	// A journal without a code was ended by a version that published neither: its event has the same bytes for ever.
	if h.ReasonCode != "" {
		ev.Extensions = map[string]any{wire.TerminationReason: h.Termination()}
		if h.Init.Reply != nil {
			ev.Extensions[wire.TokensUsed] = strconv.FormatInt(h.TokensUsed(), 10)
		}
		if of := h.RetryOf(); of != "" {
			ev.Extensions[wire.RetryOf] = of
		}
	}
	generation := h.Generation()
	return end(s, spec, h.Run, &generation, ev), omitted, nil
}

// Refusal is the terminal event of an init event, or of a call of the agent, that starts no run. address is where it was
// delivered. The bytes, the time too, depend only on the event, so that a redelivery and a double of it publish the same.
func Refusal(s wire.Subjects, spec *core.Spec, address wire.Address, ev wire.Event, problem *sdk.Error) (Message, error) {
	data, err := problemData(problem)
	if err != nil {
		return Message{}, err
	}
	init := core.NewInit(address, ev)
	return end(s, spec, core.RunName(address, ev), &init, wire.Event{
		Type: wire.ErrorType(spec.Type), DataSchema: spec.ErrorSchema, Data: data, Time: ev.Time,
	}), nil
}

// RefusalUnknown is the Refusal of an init event for an agent that nobody serves.
func RefusalUnknown(s wire.Subjects, address wire.Address, ev wire.Event) (Message, error) {
	agent := address.Agent
	unknown := &core.Spec{Name: agent, Type: agent, ErrorSchema: sdk.SchemaRef(wire.AgentURI(agent), "0.0.0")}
	m, err := Refusal(s, unknown, address, ev, sdk.Errorf(sdk.CodeUnknownAgent, "no agent %q is served here", agent))
	m.Event.Source = s.Start(agent) // no contract could answer
	return m, err
}

// Withdrawn is the error that ends an open call of a contract's version that was removed, from the event of the call alone.
// at is the call's address, errorSchema the dataschema of the contract's errors, source who removed it.
func Withdrawn(s wire.Subjects, at wire.CallAddress, call wire.Event, errorSchema, source string) (Message, error) {
	data, err := problemData(sdk.Errorf(sdk.CodeContractMissing,
		"%s was removed from the registry of contracts while the call was open; whether it was carried out is not known",
		call.DataSchema))
	if err != nil {
		return Message{}, err
	}
	return Message{s.Reply(at), wire.Event{
		ID: call.ID + "-removed", Source: source, Type: wire.ErrorType(call.Type), Subject: call.Subject, Time: call.Time,
		DataContentType: wire.ContentTypeJSON, DataSchema: errorSchema, Data: data, To: call.RedirectTo, ParentID: call.ID,
		AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}}, nil
}

// end addresses the terminal event of a run, or of an init event that starts none.
func end(s wire.Subjects, spec *core.Spec, run string, init *core.Init, ev wire.Event) Message {
	key := wire.NewRunKey(run)
	ev.ID, ev.Source, ev.Subject, ev.ParentID = wire.TerminalID(key, init.Token), spec.Type, run, init.ID
	ev.To, ev.DataContentType, ev.Agent = cmp.Or(init.RedirectTo, init.Source), wire.ContentTypeJSON, spec.Name
	ev.AccessControl, ev.TraceParent, ev.TraceState = init.AccessControl, init.TraceParent, init.TraceState
	if init.Reply != nil || init.ReplySubject != "" {
		ev.Subject = init.ReplySubject
	}
	return Message{TerminalSubject(s, spec.Name, key, init), ev}
}

// TerminalSubject is where the terminal event of a run belongs: on the reply subject of the call that the run answers, else
// on its done subject.
func TerminalSubject(s wire.Subjects, agent string, run wire.RunKey, init *core.Init) string {
	if init.Reply != nil {
		return s.Reply(*init.Reply)
	}
	return s.Done(agent, run, init.Token)
}

func problemData(problem *sdk.Error) (json.RawMessage, error) {
	data, err := json.Marshal(wire.NewProblem(problem))
	if err != nil {
		return nil, fmt.Errorf("encode a problem: %w", err)
	}
	return data, nil
}
