package sim

import (
	"encoding/json"
	"fmt"

	"agentd/sdk"
)

// called is a service that received a call: it answers now and then more than once, late, wrongly, or never.
func (s *simulation) called(call sdk.CallAddress, ev sdk.Event) {
	human := ev.Type == sdk.TypeConversationTurn
	if s.chance(s.mix.broken / 2) {
		return // it never answers
	}
	for range s.once(s.mix.duplicate) {
		delay := int64(s.pick(20_000))
		if s.chance(s.mix.slow) {
			delay = int64(s.pick(10 * minute))
		}
		answer := s.answer(call, ev, human)
		s.later(delay, func() {
			for range s.once(s.mix.duplicate) {
				s.broker.send(subjects.Reply(call), answer)
			}
		})
	}
	if s.chance(s.mix.mischief) {
		s.later(int64(s.pick(20_000)), func() { s.mislead(call, ev) })
	}
}

// answer makes one answer; every one differs from all others.
func (s *simulation) answer(call sdk.CallAddress, ev sdk.Event, human bool) sdk.Event {
	n := s.rng.Uint32()
	a := sdk.Event{
		ID: fmt.Sprintf("a-%d", n), Source: "service", Type: ev.Type + ".done", Subject: ev.Subject, ParentID: ev.ID,
		Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
	}
	if s.chance(0.3) {
		a.ParentID = "" // Arvo sends none
	}
	switch {
	case human && s.chance(s.mix.broken/3):
		a.Data = json.RawMessage(`{"message":""}`) // refused; the person tries again
		s.later(int64(s.pick(minute)), func() { s.broker.send(subjects.Reply(call), s.answer(call, ev, human)) })
	case human:
		a.Data = json.RawMessage(fmt.Sprintf(`{"message":"m%d","end":%t}`, n, s.chance(0.3)))
	}
	if s.chance(s.mix.broken / 3) {
		a.Type = sdk.ErrorType(ev.Type)
		if !human && s.chance(0.5) {
			a.Data = json.RawMessage(fmt.Sprintf(`{"later":%d}`, n))
		}
	}
	return a
}

// mislead sends an answer that must not count: to another call, from another place, or for another event.
func (s *simulation) mislead(call sdk.CallAddress, ev sdk.Event) {
	a := s.answer(call, ev, false)
	a.Data = json.RawMessage(`{"forged":true}`)
	switch s.pick(5) {
	case 0:
		a.ParentID = "somebody-else"
	case 1:
		call.Type = "shop_other"
	case 2:
		call.Domain = "elsewhere"
	case 3:
		call.Call = sdk.CallID(call.Run, "", 1+s.pick(3), 0, "forged", nil)
	case 4:
		call.Agent = childAgent
		if ev.Agent == childAgent {
			call.Agent = deskAgent
		}
	}
	s.broker.send(subjects.Reply(call), a)
}

// clients plans what those who start and stop runs do.
func (s *simulation) clients() {
	for i := range 1 + s.pick(2) {
		name := fmt.Sprintf("run-%d", i)
		if s.chance(0.1) {
			name = "" // the run is named after the event
		}
		s.begin(deskAgent, name, fmt.Sprintf("init-%d", i), `{"q":"<hello>"}`)
		if s.chance(s.mix.mischief) {
			s.disturbStart(name, i)
		}
		if s.chance(s.mix.cancel) {
			key := sdk.NewRunKey(name)
			s.later(int64(s.pick(minute)), func() {
				ev := sdk.Event{ID: fmt.Sprintf("cancel-%d", i), Source: "client", Type: "cancel", Data: json.RawMessage(`{"reason":"enough"}`)}
				for range s.once(s.mix.duplicate) {
					s.broker.send(subjects.Control(sdk.ControlCancel, deskAgent, key), ev)
				}
			})
		}
	}
}

// begin plans an init event, now and then a few times.
func (s *simulation) begin(agent, name, id, data string) {
	ev := sdk.Event{ID: id, Source: "client", Type: serviceType(agent), Subject: name, Data: json.RawMessage(data)}
	for range s.once(s.mix.duplicate) {
		s.later(int64(s.pick(20_000)), func() { s.broker.send(subjects.Start(agent), ev) })
	}
}

// disturbStart plans an init event that is refused.
func (s *simulation) disturbStart(name string, i int) {
	rival := fmt.Sprintf("rival-%d", i)
	switch s.pick(5) {
	case 0:
		s.begin(deskAgent, name, rival, `{}`)
	case 1:
		s.begin(childAgent, name, rival, `{}`)
	case 2:
		s.begin(deskAgent, "other", rival, `{"bad":1}`)
	case 3:
		s.later(int64(s.pick(20_000)), func() { s.broker.sendRaw(subjects.Start(deskAgent), []byte(`{"id":1}`), nil) })
	case 4:
		// Nobody may start this agent by name alone: the event is for nobody.
		key := sdk.NewRunKey("nobody")
		ev := sdk.Event{ID: rival, Source: "client", Type: "cancel"}
		s.later(int64(s.pick(20_000)), func() { s.broker.send(subjects.Control(sdk.ControlCancel, deskAgent, key), ev) })
	}
}
