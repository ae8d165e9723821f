package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/sdk"
)

// logEvent says what a record of the log is of.
type logEvent string

// The steps.
const (
	LogRequested logEvent = "requested"
	LogDecided   logEvent = "decided"
	LogViewed    logEvent = "viewed"    // somebody was shown the request, for the first time
	LogRefused   logEvent = "refused"   // a decision that does not count
	LogGranted   logEvent = "granted"   // an earlier decision covers the call
	LogEdited    logEvent = "edited"    // an approver changed the arguments
	LogMade      logEvent = "made"      // the call went out, or began
	LogReturned  logEvent = "returned"  // the call has its result
	LogEscalated logEvent = "escalated" // nobody decided in time, so another domain is asked
	LogRetried   logEvent = "retried"   // somebody retried the run
	LogUndoing   logEvent = "undoing"   // somebody has calls of the run undone
	LogCalled    logEvent = "called"    // the model asked for the call; only in audit trails
)

// LogRecord is one step of the chain from a request to its call's result.
type LogRecord struct {
	// At is in Unix milliseconds, Revision the journal entry, and Entry its SHA-256 as the
	// next entry repeats it: empty for the last one.
	At       int64    `json:"at"`
	Run      string   `json:"run"`
	Agent    string   `json:"agent"`
	Revision uint64   `json:"rev"`
	Entry    string   `json:"entry"`
	Event    logEvent `json:"event"`
	Request  string   `json:"request,omitempty"`
	Call     string   `json:"call"`
	// Letter is the dead letter that a refused decision became, which the journal does not have.
	Letter uint64 `json:"letter,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Args are exact: those asked for, edited, or made.
	Args     json.RawMessage `json:"args,omitempty"`
	ArgsHash string          `json:"args_sha256,omitempty"`
	Decision sdk.Decision    `json:"decision,omitempty"`
	Scope    sdk.GrantScope  `json:"scope,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	// Who is the principal that the broker enforced; empty is anonymous. Source is a claim.
	Who    string `json:"who,omitempty"`
	Source string `json:"source,omitempty"`
	// Policy is the digest of the agent spec whose policy asked, Rule its rule, Schema the contract's version.
	Policy string          `json:"policy,omitempty"`
	Rule   string          `json:"rule,omitempty"`
	Schema string          `json:"schema,omitempty"`
	Kind   core.ResultKind `json:"kind,omitempty"`
	Error  bool            `json:"error,omitempty"`
}

// Log is the log of one run while its entries are read.
type Log struct {
	Records []LogRecord
	// asked are the requests by their id, calls the same by the call that they are about.
	asked, calls map[string]sdk.PermissionRequest
	// tools are those of all calls by their id, where the log is of all calls; nil where it is of permissions.
	Tools map[string]string
}

// NewLog is an empty log.
func NewLog() *Log {
	return &Log{asked: map[string]sdk.PermissionRequest{}, calls: map[string]sdk.PermissionRequest{}}
}

// LogOf is the log of one run.
func LogOf(entries []core.Entry) ([]LogRecord, error) {
	l := NewLog()
	for i := range entries {
		e := &entries[i]
		at := LogRecord{At: e.At, Run: e.Head.Run, Agent: e.Head.Agent, Revision: e.Rev}
		if i+1 < len(entries) {
			at.Entry = entries[i+1].Prev
		}
		if err := l.Entry(at, e); err != nil {
			return nil, err
		}
	}
	return l.Records, nil
}

// Entry adds what an entry says.
func (l *Log) Entry(at LogRecord, e *core.Entry) error {
	for _, part := range e.Parts() {
		at.At = part.At
		if err := l.entry(at, part); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) entry(at LogRecord, e *core.Entry) error {
	taken := map[string]logEvent{core.KindRetried: LogRetried, core.KindUndoAsked: LogUndoing}
	if event, ok := taken[e.Kind]; ok {
		r := l.add(at, event, "", "")
		r.Who, r.Source = e.Head.Retry.Who, e.Head.Retry.Source
	}
	if l.Tools != nil {
		l.called(at, e)
	}
	for _, r := range e.Requests {
		if err := l.requested(at, r); err != nil {
			return err
		}
	}
	l.decided(at, e)
	l.executed(at, e)
	return nil
}

// called notes every call that the model asks for.
func (l *Log) called(at LogRecord, e *core.Entry) {
	for _, m := range e.Messages {
		for _, use := range m.Content {
			if use.Kind == sdk.ContentToolUse {
				l.Tools[use.CallID] = use.Tool
				r := l.add(at, LogCalled, "", use.CallID)
				r.Args, r.ArgsHash = use.Args, sdk.ArgsHash(use.Args)
			}
		}
	}
}

func (l *Log) add(at LogRecord, event logEvent, request, call string) *LogRecord {
	at.Event, at.Request, at.Call, at.Tool = event, request, call, cmp.Or(l.calls[call].Tool, l.Tools[call])
	l.Records = append(l.Records, at)
	return &l.Records[len(l.Records)-1]
}

func (l *Log) requested(at LogRecord, r core.Request) error {
	var p sdk.PermissionRequest
	if err := json.Unmarshal(r.Data, &p); err != nil {
		return fmt.Errorf("read permission request %s of run %s: %w", r.ID, at.Run, err)
	}
	l.asked[r.ID], l.calls[p.Call] = p, p
	record := l.add(at, LogRequested, r.ID, p.Call)
	record.Args, record.ArgsHash, record.Reason = p.Args, p.ArgsHash, p.Reason
	record.Policy, record.Rule, record.Schema = p.Policy, p.Rule, p.Schema
	return nil
}

func (l *Log) decided(at LogRecord, e *core.Entry) {
	for _, d := range e.Decisions {
		event := LogDecided
		switch {
		case d.Refused != "":
			event = LogRefused
		case d.Decision == sdk.DecisionViewed:
			event = LogViewed
		case d.Grant != "":
			event = LogGranted
		}
		asked := l.asked[d.Request]
		r := l.add(at, event, cmp.Or(d.Request, d.Grant), d.Call)
		r.Decision, r.Scope, r.ArgsHash, r.Reason = d.Decision, d.Scope, d.ArgsHash, cmp.Or(d.Refused, d.Reason)
		r.Who, r.Source, r.Policy, r.Schema = d.Who, d.Source, asked.Policy, asked.Schema
		r.Rule = cmp.Or(d.Rule, asked.Rule)
	}
	for _, edit := range e.Edits {
		l.add(at, LogEdited, "", edit.Call).Args = edit.Args
	}
}

// executed notes what became of calls that were asked for. Others are not the log's business.
func (l *Log) executed(at LogRecord, e *core.Entry) {
	for _, f := range e.Effects {
		if asked, ok := l.asked[f.Call]; ok && f.Kind == core.EffectCall && f.Attempt > 1 {
			r := l.add(at, LogEscalated, f.Call, asked.Call)
			r.Reason, r.Policy, r.Rule, r.ArgsHash = "nobody decided in time; "+strings.Join(f.Domains, ", ")+" is asked", asked.Policy, asked.Rule, asked.ArgsHash
		}
		if asked, ok := l.calls[f.Call]; (ok || l.Tools[f.Call] != "") && f.Kind == core.EffectCall {
			l.add(at, LogMade, "", f.Call).Schema = cmp.Or(asked.Schema, f.Schema)
		}
	}
	for _, result := range e.Results {
		_, ok := l.calls[result.Call]
		if l.Tools[result.Call] != "" || ok && result.Kind != core.ResultDenied {
			r := l.add(at, LogReturned, "", result.Call)
			r.Kind, r.Error, r.Who, r.Source = result.Kind, result.Error, result.Who, result.Source
		}
	}
}

// Of fills in what the records have of the request that a refused decision is on.
func (r LogRecord) Of(records []LogRecord) LogRecord {
	for i := range records {
		if asked := &records[i]; asked.Event == LogRequested && asked.Request == r.Request && asked.Run == r.Run {
			r.Call, r.Tool, r.Policy, r.Rule, r.Schema = asked.Call, asked.Tool, asked.Policy, asked.Rule, asked.Schema
		}
	}
	return r
}
