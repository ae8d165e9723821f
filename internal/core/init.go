package core

import (
	"bytes"
	"cmp"
	"encoding/json"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// RunName is the name of the run that an init event, or a call of an agent, starts, or that a question is for. address is where it was
// delivered.
func RunName(address wire.Address, ev wire.Event) string {
	if address.Kind == wire.KindStart {
		return cmp.Or(ev.Subject, wire.DefaultSubject(wire.InitToken(ev.Source, ev.ID)))
	}
	if caller, _, ok := Caller(ev.Subject); ok && IsQuestion(address, ev) {
		return caller
	}
	ref, _ := wire.ParseCallRef(address.Call.Call) // a call without a proper id starts nothing
	return ev.Subject + "/" + ref.ID
}

// NewInit is what a run keeps of the event that starts it: an init event, or a call of the agent. address is where it was
// delivered.
func NewInit(address wire.Address, ev wire.Event) Init {
	init := Init{
		ID: ev.ID, Source: ev.Source, Token: wire.InitToken(ev.Source, ev.ID), AccessControl: ev.AccessControl,
		RedirectTo: ev.RedirectTo, TraceParent: ev.TraceParent, TraceState: ev.TraceState,
	}
	parent, _ := ParentSubject(ev)
	if address.Kind != wire.KindOut {
		init.Who, init.ReplySubject = address.Who, parent
		return init
	}
	call := address.Call
	init.Reply = &call
	init.ReplySubject = cmp.Or(parent, ev.Subject)
	ref, _ := wire.ParseCallRef(call.Call) // a call without a proper id starts nothing
	// All attempts at one call are one init.
	init.Token = wire.InitToken("", ref.ID)
	init.DelegatedBy = &sdk.Delegation{Agent: ev.Agent, Run: ev.Subject, Call: ref.ID}
	// Only workers publish calls, and each names the principal that the broker enforced where the first run was started.
	init.Who, _ = ev.Extensions[wire.Initiator].(string)
	init.Caller, _ = ev.Extensions[wire.CallerType].(string)
	return init
}

// ParentSubject is the CloudEvents subject that whoever starts a run wants to be answered under; empty is none. The error says that no
// event can have it.
func ParentSubject(ev wire.Event) (string, error) {
	if !mayName(ev.Data, sdk.ParentSubjectField) {
		return "", nil
	}
	var data map[string]json.RawMessage
	var subject string
	if json.Unmarshal(ev.Data, &data) != nil || json.Unmarshal(data[sdk.ParentSubjectField], &subject) != nil {
		return "", nil //nolint:nilerr // what is not a text there wants nothing
	}
	if err := wire.CheckAttribute(`$.data["`+sdk.ParentSubjectField+`"]`, subject); err != nil {
		return "", err
	}
	return subject, nil
}

// mayName reports whether JSON may have a member of that name, as it is written or with escapes.
func mayName(data []byte, name string) bool {
	return bytes.Contains(data, []byte(name)) || bytes.IndexByte(data, '\\') >= 0
}
