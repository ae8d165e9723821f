package outbox

import (
	"encoding/json"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Answer is the answer that the effect f of entry e gives to an agent that the run has called. The error says that the journal does not hold
// together.
func Answer(s wire.Subjects, e *core.Entry, f core.Effect) (Message, error) {
	var result json.RawMessage
	for i := range e.Results {
		if e.Results[i].Call == f.Call {
			result = e.Results[i].Data
		}
	}
	if f.Question == nil {
		return Message{}, fmt.Errorf("call %s in entry %d answers nothing", f.Call, e.Rev)
	}
	var given struct {
		Answer string `json:"answer"`
	}
	if err := json.Unmarshal(result, &given); err != nil {
		return Message{}, fmt.Errorf("the answer of call %s in entry %d: %w", f.Call, e.Rev, err)
	}
	data, err := core.EncodeJSON(given)
	if err != nil {
		return Message{}, fmt.Errorf("encode the answer of call %s: %w", f.Call, err)
	}
	h, reply := &e.Head, s.Reply(f.Question.At)
	return Message{reply, wire.Event{
		ID: f.Call, Source: f.Type, Type: sdk.TypeParentAnswered, Subject: f.Question.Run, ParentID: f.Question.At.Call,
		DataContentType: wire.ContentTypeJSON, DataSchema: wire.CallerQuestionSchema, Data: data, Time: entryTime(e), To: reply,
		Agent: h.Agent, AccessControl: h.Init.AccessControl,
		TraceParent: wire.EventTrace(h.Init.TraceParent, f.Call), TraceState: h.Init.TraceState,
	}}, nil
}
