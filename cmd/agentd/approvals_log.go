package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"agentd/sdk/wire"

	"github.com/spf13/cobra"

	"agentd/internal/core"
	"agentd/internal/desk"
	"agentd/internal/runner"
	"agentd/sdk"
)

// logEvent says what a record of the log is of.
type logEvent string

const (
	logRequested logEvent = "requested"
	logDecided   logEvent = "decided"
	logViewed    logEvent = "viewed"    // somebody was shown the request, for the first time
	logRefused   logEvent = "refused"   // a decision that does not count
	logGranted   logEvent = "granted"   // an earlier decision covers the call
	logEdited    logEvent = "edited"    // an approver changed the arguments
	logMade      logEvent = "made"      // the call went out, or began
	logReturned  logEvent = "returned"  // the call has its result
	logEscalated logEvent = "escalated" // nobody decided in time, so another domain is asked
	logCalled    logEvent = "called"    // the model asked for the call; only in audit trails
)

// logRecord is one step of the chain from a request to its call's result.
type logRecord struct {
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

func (a *app) approvalsLogCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "log [RUN]",
		Short: "Show who decided what, when, and what became of it, from the journals of runs",
		Long: "log prints every permission request of a run, or of all runs, with the decisions on it, those that were refused\n" +
			"too, and the execution of its call. With -o json each record has everything: exact arguments, the principal, the\n" +
			"digest of the policy, the contract's version, and the hash of its journal entry. It reads the store of runs.",
		Example: "  agentd approvals log trip-7\n  agentd approvals log -o json | jq 'map(select(.event == \"decided\"))'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.withRun(cmd.Context(), args[0], func(c *client, store runner.Store, last core.Entry) error {
					return a.printLog(cmd.Context(), c, store, []wire.RunKey{last.Head.Key()})
				})
			}
			return a.logAll(cmd.Context())
		},
	}
}

func (a *app) logAll(ctx context.Context) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	rows, err := c.rows(ctx, listFlags{})
	if err != nil {
		return c.close(err)
	}
	store, err := c.openStore(ctx)
	if err != nil {
		return c.close(err)
	}
	keys := make([]wire.RunKey, 0, len(rows))
	for _, r := range rows {
		if r.Status == unreadable {
			fmt.Fprintf(a.err, "agentd: run %s cannot be read, and is left out\n", r.Run)
			continue
		}
		keys = append(keys, wire.NewRunKey(r.Run))
	}
	return c.close(also(a.printLog(ctx, c, store, keys), store.Close()))
}

func (a *app) printLog(ctx context.Context, c *client, store runner.Store, keys []wire.RunKey) error {
	records := []logRecord{}
	var refused refusals
	for _, key := range keys {
		entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, key)
		if err != nil {
			return err
		}
		of, err := logOf(entries)
		if err != nil {
			return err
		}
		records = append(records, of...)
		refused.of(entries)
	}
	err := refused.read(ctx, c, func(r logRecord) error {
		records = append(records, r.of(records))
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(x, y logRecord) int { return cmp.Compare(x.At, y.At) })
	return a.print(records, func(w io.Writer) error { return writeLog(w, records, len(keys) != 1) })
}

// runLog is the log of one run while its entries are read.
type runLog struct {
	records []logRecord
	// asked are the requests by their id, calls the same by the call that they are about.
	asked, calls map[string]sdk.PermissionRequest
	// tools are those of all calls by their id, where the log is of all calls; nil where it is of permissions.
	tools map[string]string
}

// logOf is the log of one run.
func logOf(entries []core.Entry) ([]logRecord, error) {
	l := runLog{asked: map[string]sdk.PermissionRequest{}, calls: map[string]sdk.PermissionRequest{}}
	for i := range entries {
		e := &entries[i]
		at := logRecord{At: e.At, Run: e.Head.Run, Agent: e.Head.Agent, Revision: e.Rev}
		if i+1 < len(entries) {
			at.Entry = entries[i+1].Prev
		}
		if err := l.entry(at, e); err != nil {
			return nil, err
		}
	}
	return l.records, nil
}

// entry adds what an entry says.
func (l *runLog) entry(at logRecord, e *core.Entry) error {
	if l.tools != nil {
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
func (l *runLog) called(at logRecord, e *core.Entry) {
	for _, m := range e.Messages {
		for _, use := range m.Content {
			if use.Kind == sdk.ContentToolUse {
				l.tools[use.CallID] = use.Tool
				r := l.add(at, logCalled, "", use.CallID)
				r.Args, r.ArgsHash = use.Args, sdk.ArgsHash(use.Args)
			}
		}
	}
}

func (l *runLog) add(at logRecord, event logEvent, request, call string) *logRecord {
	at.Event, at.Request, at.Call, at.Tool = event, request, call, cmp.Or(l.calls[call].Tool, l.tools[call])
	l.records = append(l.records, at)
	return &l.records[len(l.records)-1]
}

func (l *runLog) requested(at logRecord, r core.Request) error {
	var p sdk.PermissionRequest
	if err := json.Unmarshal(r.Data, &p); err != nil {
		return fmt.Errorf("read permission request %s of run %s: %w", r.ID, at.Run, err)
	}
	l.asked[r.ID], l.calls[p.Call] = p, p
	record := l.add(at, logRequested, r.ID, p.Call)
	record.Args, record.ArgsHash, record.Reason = p.Args, p.ArgsHash, p.Reason
	record.Policy, record.Rule, record.Schema = p.Policy, p.Rule, p.Schema
	return nil
}

func (l *runLog) decided(at logRecord, e *core.Entry) {
	for _, d := range e.Decisions {
		event := logDecided
		switch {
		case d.Refused != "":
			event = logRefused
		case d.Decision == sdk.DecisionViewed:
			event = logViewed
		case d.Grant != "":
			event = logGranted
		}
		asked := l.asked[d.Request]
		r := l.add(at, event, cmp.Or(d.Request, d.Grant), d.Call)
		r.Decision, r.Scope, r.ArgsHash, r.Reason = d.Decision, d.Scope, d.ArgsHash, cmp.Or(d.Refused, d.Reason)
		r.Who, r.Source, r.Policy, r.Schema = d.Who, d.Source, asked.Policy, asked.Schema
		r.Rule = cmp.Or(d.Rule, asked.Rule)
	}
	for _, edit := range e.Edits {
		l.add(at, logEdited, "", edit.Call).Args = edit.Args
	}
}

// executed notes what became of calls that were asked for. Others are not the log's business.
func (l *runLog) executed(at logRecord, e *core.Entry) {
	for _, f := range e.Effects {
		if asked, ok := l.asked[f.Call]; ok && f.Kind == core.EffectCall && f.Attempt > 1 {
			r := l.add(at, logEscalated, f.Call, asked.Call)
			r.Reason, r.Policy, r.Rule, r.ArgsHash = "nobody decided in time; "+strings.Join(f.Domains, ", ")+" is asked", asked.Policy, asked.Rule, asked.ArgsHash
		}
		if asked, ok := l.calls[f.Call]; (ok || l.tools[f.Call] != "") && f.Kind == core.EffectCall {
			l.add(at, logMade, "", f.Call).Schema = cmp.Or(asked.Schema, f.Schema)
		}
	}
	for _, result := range e.Results {
		_, ok := l.calls[result.Call]
		if l.tools[result.Call] != "" || ok && result.Kind != core.ResultDenied {
			r := l.add(at, logReturned, "", result.Call)
			r.Kind, r.Error, r.Who, r.Source = result.Kind, result.Error, result.Who, result.Source
		}
	}
}

func writeLog(w io.Writer, records []logRecord, many bool) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(w, "nobody was asked for permission")
		return err
	}
	for _, r := range records {
		run := ""
		if many {
			run = fmt.Sprintf("%-18s  ", oneLine(r.Run, 18))
		}
		fmt.Fprintf(w, "%s  %s%-9s  %s  %s\n", time.UnixMilli(r.At).Format("2006-01-02 15:04:05.000"), run, r.Event,
			oneLine(cmp.Or(r.Tool, r.Call), 28), r.text())
	}
	return nil
}

// text is what a person wants to know of the record.
func (r *logRecord) text() string {
	who := cmp.Or(r.Who, "somebody anonymous")
	because := ""
	if r.Reason != "" {
		because = ": " + r.Reason
	}
	text := ""
	switch r.Event {
	case logRequested:
		text = string(r.Args) + because + " (rule " + r.Rule + ", policy " + clip(r.Policy, 12) + ")"
	case logDecided:
		text = who + ": " + string(r.Decision) + " " + string(r.Scope) + because
		if r.Source == "" && r.Who == "" {
			text = string(r.Decision) + because // nobody did
		}
	case logRefused:
		if r.Decision == "" {
			r.Decision = "an answer"
		}
		text = who + ": " + string(r.Decision) + ", which does not count" + because
	case logViewed:
		text = who
	case logGranted:
		text = string(r.Decision) + ", as decided on " + r.Request
	case logEdited:
		text = string(r.Args)
	case logEscalated:
		text = r.Reason
	case logMade:
		text = cmp.Or(r.Schema, r.Call)
	case logCalled:
		text = string(r.Args)
	case logReturned:
		text = string(r.Kind)
		if r.Error {
			text += ", an error"
		}
	}
	return desk.Visible(text, false)
}
