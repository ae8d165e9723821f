package runner

import (
	"encoding/json"
	"fmt"

	"agentd/sdk"
)

// RefuseUnknown is the terminal event, and its subject, of an init event for an agent that nobody serves. agent is the
// subject's token. Its bytes depend only on the event, so that any worker publishes the same.
func RefuseUnknown(subjects sdk.Subjects, agent string, init sdk.Event) (subject string, terminal sdk.Event, err error) {
	data, err := json.Marshal(sdk.NewProblem(sdk.Errorf(sdk.CodeUnknownAgent, "no agent %q is served here", agent)))
	if err != nil {
		return "", sdk.Event{}, fmt.Errorf("encode refusal: %w", err)
	}
	token := sdk.InitToken(init.Source, init.ID)
	run := init.Subject
	if run == "" {
		run = sdk.DefaultSubject(token)
	}
	key := sdk.NewRunKey(run)
	terminal = sdk.Event{
		ID: sdk.TerminalID(key, token), Source: subjects.Start(agent), Type: sdk.ErrorType(agent), Subject: run,
		Time: init.Time, DataContentType: sdk.ContentTypeJSON, DataSchema: sdk.SchemaRef("#/agent/"+agent, "0.0.0"),
		Data: data, To: init.RedirectTo, AccessControl: init.AccessControl, ParentID: init.ID, Agent: agent,
		TraceParent: init.TraceParent, TraceState: init.TraceState,
	}
	if terminal.To == "" {
		terminal.To = init.Source
	}
	return subjects.Done(agent, key, token), terminal, nil
}
