package core

import (
	"encoding/json"

	"agentd/sdk"
)

// CallData is what the call of an effect is made with, as the entry has it that the effect names as Opened: a permission
// request, a question, an approver's arguments, the model's, or what it says to a person. ok is false when the entry has
// nothing of the call. All attempts and domains share it; what differs between them is added where their events are made. sent is the
// head of the entry that has the effect: an event asks for what is open then.
func (e *Entry) CallData(f Effect, sent *Head) (data json.RawMessage, ok bool) {
	if data, ok := e.batched(f.Call, sent); ok {
		return data, true
	}
	for i := range e.Requests {
		if e.Requests[i].ID == f.Call {
			return e.Requests[i].Data, true
		}
	}
	for i := range e.Asks {
		if e.Asks[i].ID == f.Call {
			return e.Asks[i].Data, true
		}
	}
	for i := range e.Inquiries {
		if e.Inquiries[i].ID == f.Call {
			return e.Inquiries[i].Data, true
		}
	}
	for i := range e.Edits {
		if e.Edits[i].Call == f.Call {
			return e.Edits[i].Args, true
		}
	}
	said := ""
	for _, m := range e.Messages {
		for _, c := range m.Content {
			switch {
			case c.Kind == sdk.ContentToolUse && c.CallID == f.Call:
				return c.Args, true
			case c.Kind == sdk.ContentText && m.Role == sdk.RoleAssistant:
				said = c.Text
			}
		}
	}
	if said == "" || f.Type != sdk.TypeConversationTurn {
		return nil, false
	}
	data, err := turnData(said)
	return data, err == nil
}
