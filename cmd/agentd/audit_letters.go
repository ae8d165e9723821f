package main

import (
	"context"
	"encoding/json"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
)

// refusals are what people said of permission requests that their runs had no place for: too late, anonymous, or no decision at
// all. Such messages are dead letters, and stay there for as long as dead letters do, or until an operator settles them.
type refusals struct {
	// last are the last entries of the runs, since when their first was made, in Unix milliseconds.
	last  map[wire.RunKey]*core.Entry
	since int64
}

// of adds a run by its journal.
func (r *refusals) of(entries []core.Entry) {
	if len(entries) == 0 {
		return
	}
	if r.last == nil {
		r.last = map[wire.RunKey]*core.Entry{}
	}
	last := &entries[len(entries)-1]
	r.last[last.Head.Key()] = last
	if first := entries[0].At; r.since == 0 || first < r.since {
		r.since = first
	}
}

// read calls each with a record of every such message, the oldest first.
func (r *refusals) read(ctx context.Context, c *client, each func(logRecord) error) error {
	if r.last == nil {
		return nil
	}
	err := c.Letters(ctx, broker.LetterFilter{Since: time.UnixMilli(r.since)}, func(l broker.Letter) (bool, error) {
		address, err := c.Subjects().Parse(l.Subject)
		if err != nil || address.Kind != wire.KindIn || address.Call.Type != wire.NameToken(sdk.TypePermissionRequest) {
			return true, nil //nolint:nilerr // it is about no permission
		}
		if last := r.last[address.Run]; last != nil {
			return true, each(refusedLetter(l, address, last))
		}
		return true, nil
	})
	return explainDLQ(err)
}

// of fills in what the records have of the request that a refused decision is on.
func (r logRecord) of(records []logRecord) logRecord {
	for i := range records {
		if asked := &records[i]; asked.Event == logRequested && asked.Request == r.Request && asked.Run == r.Run {
			r.Call, r.Tool, r.Policy, r.Rule, r.Schema = asked.Call, asked.Tool, asked.Policy, asked.Rule, asked.Schema
		}
	}
	return r
}

func refusedLetter(l broker.Letter, address wire.Address, last *core.Entry) logRecord {
	ref, _ := wire.ParseCallRef(address.Call.Call) // of another form of id nothing is known
	record := logRecord{
		At: l.At, Run: last.Head.Run, Agent: last.Head.Agent, Event: logRefused, Request: ref.ID, Letter: l.Sequence,
		Reason: l.Detail, Who: address.Who,
	}
	event, err := wire.DecodeEvent(l.Headers, l.Data)
	if err != nil {
		return record
	}
	record.Source = event.Source
	var d sdk.PermissionDecision
	if json.Unmarshal(event.Data, &d) == nil {
		record.Decision, record.Scope, record.ArgsHash = d.Decision, d.Scope, d.ArgsHash
	}
	if event.Type == sdk.TypePermissionViewed {
		record.Decision = sdk.DecisionViewed
	}
	return record
}
