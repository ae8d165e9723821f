package runner

import (
	"encoding/json"
	"fmt"

	"agentd/sdk/wire"

	"agentd/sdk"
)

// RefuseUnknown is the terminal event, and its subject, of an init event for an agent that nobody serves. agent is the
// subject's token. Its bytes depend only on the event, so that any worker publishes the same.
func RefuseUnknown(subjects wire.Subjects, agent string, init wire.Event) (subject string, terminal wire.Event, err error) {
	data, err := json.Marshal(wire.NewProblem(sdk.Errorf(sdk.CodeUnknownAgent, "no agent %q is served here", agent)))
	if err != nil {
		return "", wire.Event{}, fmt.Errorf("encode refusal: %w", err)
	}
	token := wire.InitToken(init.Source, init.ID)
	run := init.Subject
	if run == "" {
		run = wire.DefaultSubject(token)
	}
	key := wire.NewRunKey(run)
	terminal = wire.Event{
		ID: wire.TerminalID(key, token), Source: subjects.Start(agent), Type: wire.ErrorType(agent), Subject: run,
		Time: init.Time, DataContentType: wire.ContentTypeJSON, DataSchema: sdk.SchemaRef("#/agent/"+agent, "0.0.0"),
		Data: data, To: init.RedirectTo, AccessControl: init.AccessControl, ParentID: init.ID, Agent: agent,
		TraceParent: init.TraceParent, TraceState: init.TraceState,
	}
	if terminal.To == "" {
		terminal.To = init.Source
	}
	return subjects.Done(agent, key, token), terminal, nil
}
