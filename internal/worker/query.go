package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// queryTimeout bounds the work for one query.
const queryTimeout = 10 * time.Second

// answerSize bounds the milestones in one answer, in bytes of their data, so that it fits in a message. One is always told.
const answerSize = 256 << 10

// offer shows each agent as a NATS service, which answers queries about its runs and with its contract.
func (w *Worker) offer() (stop func() error, err error) {
	var services []broker.Service
	for _, a := range w.Agents {
		s, err := w.Conn.ContractService(a.Spec.Contract)
		if err != nil {
			return nil, err
		}
		s.Version, s.Metadata["agent"] = a.Spec.Version, a.Spec.Name
		if a.Spec.Description != "" {
			s.Description = a.Spec.Description
		}
		s.Stats = func() any { return w.vital() }
		all, own := w.Conn.Subjects().Get(a.Spec.Name), w.Conn.Subjects().GetAs(a.Spec.Name, "*")
		answer := func(subject string, request []byte) (broker.Answer, error) {
			ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
			defer cancel()
			who, _ := strings.CutPrefix(subject, all)
			status, err := w.query(ctx, a.Spec.Name, strings.TrimPrefix(who, "."), request)
			if err != nil {
				return nil, err
			}
			return broker.JSON(status)
		}
		s.Endpoints = append(s.Endpoints, broker.Endpoint{Subject: all, Name: "get", Answer: answer},
			broker.Endpoint{Subject: own, Name: "get-own", Answer: answer})
		services = append(services, s)
	}
	return w.Conn.Serve(append(services, w.Conn.Reader())...)
}

// query answers who, which the broker enforced: nobody in particular may see all runs, a principal those that it started.
func (w *Worker) query(ctx context.Context, agent, who string, request []byte) (any, error) {
	var q wire.Query
	if err := json.Unmarshal(request, &q); err != nil || (q.Run == "") == (q.List == nil) {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, `want {"run": "<subject of the run>", "after": {"rev": n, "i": n}} or {"list": {}}`)
	}
	if q.List != nil {
		return w.list(ctx, agent, who, *q.List)
	}
	entries, err := w.runner.Journal(ctx, wire.NewRunKey(q.Run))
	if errors.Is(err, core.ErrLaterLayout) {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "another worker must tell of run %q: %s", q.Run, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if len(entries) == 0 || entries[0].Head.Agent != agent {
		return nil, sdk.Errorf(sdk.CodeUnknownRun, "agent %s has no run %q", agent, q.Run)
	}
	if initiator := entries[0].Head.Init.Who; who != "" && who != initiator {
		return nil, sdk.Errorf(sdk.CodePermissionDenied, "%s may not see run %q: somebody else started it", who, q.Run)
	}
	status := statusOf(entries, q.After)
	w.markUnserved(ctx, &entries[len(entries)-1].Head, status.Waiting)
	status.Undoable, err = w.runner.Undoable(ctx, entries)
	return status, err
}

// markUnserved says of the calls that were sent to services whether somebody is there. Where that cannot be seen, it is not said.
func (w *Worker) markUnserved(ctx context.Context, h *core.Head, waiting []wire.WaitingCall) {
	for i := range waiting {
		call := &waiting[i]
		if c := h.Call(call.Call); c == nil || !c.WithService() {
			continue
		}
		unserved, err := w.Conn.Unserved(ctx, call.Domain, call.Type)
		if err != nil {
			w.Logger.DebugContext(ctx, "whether a service is there is unknown", "type", call.Type, "error", err)
		}
		call.Unserved = unserved
	}
}

// listPage is how many runs of the store, whosever they are, are read for one page of a list.
const listPage = 500

// list reads one page of the store and returns the agent's runs in it.
func (w *Worker) list(ctx context.Context, agent, who string, q wire.ListQuery) (wire.RunList, error) {
	stored, next, err := w.Store.Runs(ctx, q.Cursor, listPage)
	if err != nil {
		return wire.RunList{}, fmt.Errorf("list runs: %w", err)
	}
	page := wire.RunList{Runs: []wire.RunStatus{}, Next: next}
	for _, s := range stored {
		e, err := core.DecodeEntry(s.Last.Data)
		if err != nil {
			continue // a run of a newer version: its own workers list it
		}
		if e.Head.Agent == agent && (q.Status == "" || e.Head.Status == q.Status) && (who == "" || e.Head.Init.Who == who) {
			page.Runs = append(page.Runs, summaryOf(&e))
		}
	}
	return page, nil
}

// summaryOf is what the last entry of a run tells of it.
func summaryOf(last *core.Entry) wire.RunStatus {
	h := &last.Head
	s := wire.RunStatus{
		Run: h.Run, Agent: h.Agent, Status: h.Status, Reason: h.Reason, Code: h.ReasonCode, Revision: last.Rev, Turns: h.Turns,
		Usage: h.Usage, Units: h.Units, Init: h.Generation().Token, Called: h.Init.Reply != nil, Initiator: h.Init.Who, Updated: last.At,
		Deadline: h.Deadline, Parked: h.Parked, Paused: h.Paused,
	}
	s.Tags, _ = wire.ParseTags(h.Tags) // the head has none that cannot be read
	if p := h.Purged; p != nil {
		s.Purged, s.Revision = p.At, p.Rev
	}
	for i := range h.Calls {
		// A call that is held is not made before its permission request, a call beside it, is decided.
		if c := &h.Calls[i]; !c.Closed() && c.Held == "" && h.Answering(c.Event()) == c {
			s.Waiting = append(s.Waiting, waitingCall(h, c))
		}
	}
	return s
}

func waitingCall(h *core.Head, c *core.Call) wire.WaitingCall {
	w := wire.WaitingCall{Call: c.Event(), Tool: c.Tool, Type: c.Type, Due: c.Due, Event: c.Addresses(h)[0].Call}
	if len(c.Domains) > 0 {
		w.Domain = c.Domains[0]
	}
	return w
}

// describe adds what the history tells of a call: the event's dataschema, and what a person is asked.
func describe(w *wire.WaitingCall, entries []core.Entry) {
	var opened *core.Entry
	for i := range entries {
		f := entries[i].Effect(core.EffectCall, w.Call)
		if f.Call == "" {
			continue
		}
		w.Schema = f.Schema
		switch w.Type {
		case sdk.TypePermissionRequest, sdk.TypePlanReview, sdk.TypeQuestion, sdk.TypeConversationTurn:
			if opened == nil {
				opened = &entries[i]
			}
			w.Asked, _ = opened.CallData(f, &entries[i].Head)
		}
	}
}

// statusOf summarises a journal.
func statusOf(entries []core.Entry, after wire.Mark) wire.RunStatus {
	last := &entries[len(entries)-1]
	s := summaryOf(last)
	s.Started, s.Terminal, s.Heard = entries[0].At, last.Terminal, last.Head.Heard
	for i := range s.Waiting {
		describe(&s.Waiting[i], entries)
	}
	size := 0
	for i := range entries {
		for _, l := range milestone.Of(&entries[i]) {
			if !after.Before(l) {
				continue
			}
			if size += len(l.Data); size > answerSize && len(s.Milestones) > 0 {
				s.More, s.Terminal = true, nil
				return s
			}
			s.Milestones = append(s.Milestones, l)
		}
	}
	return s
}
