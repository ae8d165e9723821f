package deadletter

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"agentd/internal/runner"
	"agentd/internal/show"
)

// Row is the letter as it is listed.
func (l *Letter) Row() show.Letter {
	return show.Letter{
		Sequence: l.Sequence, At: l.At, Reason: l.Reason, Detail: l.Detail, Agent: l.Address.Agent, Run: l.Run,
		Event: l.Event.ID, Type: l.Event.Type, Subject: l.Subject, Stream: l.Stream, Origin: l.Origin, Redrives: l.Redrives,
	}
}

// Describe is the letter in full, with what can be done about it; secrets leaves what looks like one as it is.
func (l *Letter) Describe(ctx context.Context, store runner.Store, secrets bool) show.LetterDetail {
	described := *l
	if !secrets {
		described = l.Redacted()
	}
	d := show.LetterDetail{
		Letter: described.Row(), Who: l.Address.Who, Status: l.RunStatus(ctx, store), Headers: described.Headers, Omitted: l.Omitted,
		Advice: Advice(l.Reason), Source: l.Event.Source, ParentID: l.Event.ParentID, DataSchema: l.Event.DataSchema, Size: len(l.Data),
	}
	switch data := described.Data; {
	case json.Valid(data):
		d.Body = data
	case utf8.Valid(data) && len(data) > 0:
		d.Body, _ = json.Marshal(string(data)) // a text always encodes
	default:
		d.Binary = data
	}
	if l.Undecodable != nil && !l.Omitted {
		d.Undecodable = l.Undecodable.Error()
	}
	if err := l.Redrivable(ctx, store); err != nil {
		d.Refusal = show.Problem(err)
	}
	return d
}
