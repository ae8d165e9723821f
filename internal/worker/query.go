package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
)

// Query asks about a run; see docs/wire.md, "Asking about a run".
type Query struct {
	// Run is the run's subject.
	Run string `json:"run"`
	// After is the last milestone that the client has seen; the zero Mark is before all.
	After Mark `json:"after,omitzero"`
}

// Mark is a milestone's number.
type Mark struct {
	Revision uint64 `json:"rev"`
	Index    int    `json:"i"`
}

// before reports whether the milestone comes after the mark.
func (m Mark) before(l wire.Live) bool {
	return l.Revision > m.Revision || (l.Revision == m.Revision && l.Index > m.Index)
}

// RunStatus answers a Query.
type RunStatus struct {
	Run          string      `json:"run"`
	Agent        string      `json:"agent"`
	Status       core.Status `json:"status"`
	Reason       core.Reason `json:"reason,omitempty"`
	Revision     uint64      `json:"rev"`
	Interactions int         `json:"interactions"`
	Usage        sdk.Usage   `json:"usage"`
	// Waiting are the calls that the run waits for.
	Waiting    []WaitingCall `json:"waiting,omitempty"`
	Milestones []wire.Live   `json:"milestones,omitempty"`
	// Heard are the ids of the last messages that came into the run (core.NoteID).
	Heard []string `json:"heard,omitempty"`
	// More says that there are further milestones, to be asked for with the mark of the last one.
	More     bool           `json:"more,omitempty"`
	Terminal *core.Terminal `json:"terminal,omitempty"`
	// Purged is when the run's history was removed, in Unix milliseconds: then there are no milestones, nor a terminal.
	Purged int64 `json:"purged,omitempty"`
}

// WaitingCall is a call without an answer yet. Due is in Unix milliseconds.
type WaitingCall struct {
	Call string `json:"call"`
	Tool string `json:"tool,omitempty"`
	Type string `json:"type"`
	Due  int64  `json:"due,omitempty"`
}

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
		s.Endpoints = append(s.Endpoints, broker.Endpoint{
			Subject: w.Conn.Subjects().Get(a.Spec.Name), Name: "get",
			Answer: func(request []byte) (any, error) {
				ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
				defer cancel()
				return w.query(ctx, a.Spec.Name, request)
			},
		})
		services = append(services, s)
	}
	return w.Conn.Serve(services...)
}

func (w *Worker) query(ctx context.Context, agent string, request []byte) (any, error) {
	var q Query
	if err := json.Unmarshal(request, &q); err != nil || q.Run == "" {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent, `want {"run": "<subject of the run>", "after": {"rev": n, "i": n}}`)
	}
	entries, err := w.runner.Journal(ctx, wire.NewRunKey(q.Run))
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if len(entries) == 0 || entries[0].Head.Agent != agent {
		return nil, sdk.Errorf(sdk.CodeUnknownRun, "agent %s has no run %q", agent, q.Run)
	}
	return statusOf(entries, q.After), nil
}

// statusOf summarises a journal.
func statusOf(entries []core.Entry, after Mark) RunStatus {
	last := entries[len(entries)-1]
	h := last.Head
	s := RunStatus{
		Run: h.Run, Agent: h.Agent, Status: h.Status, Reason: h.Reason, Revision: last.Rev,
		Interactions: h.Interactions, Usage: h.Usage, Terminal: last.Terminal,
		Heard: h.Heard,
	}
	if p := h.Purged; p != nil {
		s.Purged, s.Revision = p.At, p.Rev
	}
	for _, c := range h.Calls {
		if !c.Closed() {
			s.Waiting = append(s.Waiting, WaitingCall{Call: c.ID, Tool: c.Tool, Type: c.Type, Due: c.Due})
		}
	}
	size := 0
	for i := range entries {
		for _, l := range core.Milestones(&entries[i]) {
			if !after.before(l) {
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
