package live

import (
	"context"
	"encoding/json"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Refusals are what people said of permission requests that their runs had no place for: too late, anonymous, or no decision at
// all. Such messages are dead letters, and stay there for as long as dead letters do, or until an operator settles them.
type Refusals struct {
	// last are the last entries of the runs, since when their first was made, in Unix milliseconds.
	last  map[wire.RunKey]*core.Entry
	since int64
}

// Of adds a run by its journal.
func (r *Refusals) Of(entries []core.Entry) {
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

// Read calls each with a record of every such message, the oldest first.
func (r *Refusals) Read(ctx context.Context, conn *broker.Conn, each func(audit.LogRecord) error) error {
	if r.last == nil {
		return nil
	}
	return conn.Letters(ctx, broker.LetterFilter{Since: time.UnixMilli(r.since)}, func(l broker.Letter) (bool, error) {
		address, err := conn.Subjects().Parse(l.Subject)
		if err != nil || !core.Decides(address) {
			return true, nil //nolint:nilerr // it is about no permission
		}
		if last := r.last[address.Run]; last != nil {
			return true, each(refusedLetter(l, address, last))
		}
		return true, nil
	})
}

func refusedLetter(l broker.Letter, address wire.Address, last *core.Entry) audit.LogRecord {
	ref, _ := wire.ParseCallRef(address.Call.Call) // of another form of id nothing is known
	record := audit.LogRecord{
		At: l.At, Run: last.Head.Run, Agent: last.Head.Agent, Event: audit.LogRefused, Request: ref.ID, Letter: l.Sequence,
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
