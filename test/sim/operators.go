package sim

import (
	"encoding/json"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// mostPause is how long after its end a run is retried at most, in milliseconds.
const mostPause = 5 * minute

// takeUp is what operators do about an entry that ends a run: they retry that, at once or later, one of them or two, and now and then
// though it cannot be retried.
func (s *simulation) takeUp(e *core.Entry) {
	h := &e.Head
	if h.Status != core.StatusDone || h.CheckRetry() != nil && s.pick(8) > 0 || !s.strikes(retried) {
		return
	}
	generation := len(h.Generations())
	for range s.times(duplicate) {
		id := fmt.Sprintf("retry-%s-%d", h.Run, generation) // whoever asks for the same gets the same
		if s.pick(3) == 0 {
			id = fmt.Sprintf("retry-%d", s.rng.Uint32())
		}
		at := int64(s.pick(mostPause))
		if s.pick(2) == 0 {
			at = int64(s.pick(2 * together))
		}
		s.later(at, func() { s.retry(h.Agent, h.Run, id) })
	}
}

// undo is what operators do about what a run that has ended did: they have it undone, all or in part, one of them or two, and now and then
// what cannot be.
func (s *simulation) undo(e *core.Entry) {
	h := &e.Head
	for _, m := range e.Messages {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse {
				s.made[h.Key()] = append(s.made[h.Key()], c.CallID)
			}
		}
	}
	if h.Status != core.StatusDone || !s.strikes(undone) {
		return
	}
	for range s.times(duplicate) {
		data := `{}`
		switch s.pick(8) {
		case 0:
			data = fmt.Sprintf(`{"calls":[%q]}`, wire.CallID(h.Key(), "", 1+s.pick(3), 0, "forged", nil))
		case 1, 2:
			if made := s.made[h.Key()]; len(made) > 0 {
				data = fmt.Sprintf(`{"calls":[%q]}`, made[s.pick(len(made))])
			}
		}
		ev := wire.Event{
			ID: fmt.Sprintf("undo-%s-%d", h.Run, len(h.Generations())), Source: "operator", Type: wire.TypeUndo, Data: json.RawMessage(data),
		}
		if s.pick(3) == 0 {
			ev.ID = fmt.Sprintf("undo-%d", s.rng.Uint32())
		}
		at := int64(s.pick(mostPause))
		if s.pick(2) == 0 {
			at = int64(s.pick(2 * together))
		}
		s.later(at, func() { s.operator(wire.ControlUndo, h.Agent, h.Run, ev) })
	}
}

// cancelCalls is what operators do about the calls of an entry: they cancel one, at once or later, now and then one that cannot be
// cancelled by itself, or is none.
func (s *simulation) cancelCalls(e *core.Entry) {
	h := &e.Head
	if len(h.Calls) == 0 || !s.strikes(callCancelled) {
		return
	}
	call := h.Calls[s.pick(len(h.Calls))].ID
	if s.pick(16) == 0 {
		call = wire.CallID(h.Key(), "", 1+s.pick(3), 0, "forged", nil)
	}
	at := int64(s.pick(minute))
	if s.pick(2) == 0 {
		at = int64(s.pick(2 * together))
	}
	s.later(at, func() { s.control(wire.ControlCancelCall, h.Agent, h.Key(), fmt.Sprintf(`{"call":%q}`, call)) })
}

// retry retries a run, now and then twice.
func (s *simulation) retry(agent, name, id string) {
	s.operator(wire.ControlRetry, agent, name, wire.Event{ID: id, Source: "operator", Type: wire.TypeRetry})
}

// operator sends an operator's message to a run, now and then twice.
func (s *simulation) operator(verb wire.ControlVerb, agent, name string, ev wire.Event) {
	for range s.times(duplicate) {
		s.broker.send(subjects.Control(verb, agent, wire.NewRunKey(name))+"."+principals[s.pick(len(principals))], ev)
	}
}
