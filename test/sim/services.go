package sim

import (
	"encoding/json"
	"fmt"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// called is a service that received a call: it answers now and then more than once, late, wrongly, or never.
func (s *simulation) called(call wire.CallAddress, ev wire.Event) {
	if s.strikes(serviceForged) {
		s.later(int64(s.pick(20_000)), func() { s.forge(call, ev) })
	}
	s.gatedService(ev.Agent, ev.Type, call.Call)
	if sdk.AsksPermission(ev.Type) {
		s.asked(call, ev)
		return
	}
	if s.strikes(serviceSilent) {
		return
	}
	for range s.times(serviceTwice) {
		delay := int64(s.pick(20_000))
		if s.strikes(serviceLate) {
			delay = int64(s.pick(10 * minute))
		}
		answer := s.answer(call, ev)
		s.later(delay, func() {
			for range s.times(duplicate) {
				s.broker.send(subjects.Reply(call), answer)
			}
		})
	}
}

// answer makes one answer; every one differs from all others.
func (s *simulation) answer(call wire.CallAddress, ev wire.Event) wire.Event {
	n := s.rng.Uint32()
	question := ev.Type == sdk.TypeQuestion
	human := question || ev.Type == sdk.TypeConversationTurn
	a := wire.Event{
		ID: fmt.Sprintf("a-%d", n), Source: "service", Type: ev.Type + ".done", Subject: ev.Subject, ParentID: ev.ID,
		Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
	}
	if s.pick(3) == 0 {
		a.ParentID = "" // Arvo sends none
	}
	switch {
	case human && s.strikes(personWrong): // refused; the person tries again
		a.Data = json.RawMessage(`{"message":""}`)
		s.later(int64(s.pick(minute)), func() { s.broker.send(subjects.Reply(call), s.answer(call, ev)) })
	case question:
		a.Data = json.RawMessage(fmt.Sprintf(`{"answer":"a%d"}`, n))
	case human:
		a.Data = json.RawMessage(fmt.Sprintf(`{"message":"m%d","end":%t}`, n, s.pick(3) == 0))
	}
	if s.strikes(serviceFails) {
		a.Type = wire.ErrorType(ev.Type)
		if !human && s.pick(2) == 0 {
			a.Data = json.RawMessage(fmt.Sprintf(`{"later":%d}`, n)) // another attempt may succeed
		}
	}
	return a
}

// forge sends an answer that must not count: to another call, from another place, or for another event.
func (s *simulation) forge(call wire.CallAddress, ev wire.Event) {
	a := wire.Event{
		ID: fmt.Sprintf("f-%d", s.rng.Uint32()), Source: "service", Type: ev.Type + ".done", Subject: ev.Subject,
		ParentID: ev.ID, Data: json.RawMessage(`{"forged":true}`),
	}
	switch s.pick(5) {
	case 0:
		a.ParentID = "somebody-else"
	case 1:
		call.Type = "shop_other"
	case 2:
		call.Domain = "elsewhere"
	case 3:
		call.Call = wire.CallID(call.Run, "", 1+s.pick(3), 0, "forged", nil)
	case 4:
		call.Agent = clerkAgent
		if ev.Agent == clerkAgent {
			call.Agent = deskAgent
		}
	}
	s.broker.send(subjects.Reply(call), a)
}

// clients plans what those who start and stop runs do.
func (s *simulation) clients() {
	n := [...]int{1, 1, 1, 1, 1, 2, 2, 3}[s.pick(8)]
	if s.strikes(poison) {
		n = 3
		s.poison = wire.NewRunKey("run-0")
	}
	if s.plan.clients > 0 {
		n = min(n, s.plan.clients)
	}
	for i := range n {
		name := fmt.Sprintf("run-%d", i)
		if s.pick(10) == 0 {
			name = "" // the run is named after the event
		}
		at := int64(s.pick(10_000))
		begins := at
		if s.strikes(begunLate) {
			begins += int64(s.pick(3 * minute))
		}
		s.begin(deskAgent, name, fmt.Sprintf("init-%d", i), `{"q":"<hello>"}`, begins)
		if s.strikes(disturbed) {
			if s.pick(2) == 0 {
				at = int64(s.pick(20_000))
			}
			s.disturbStart(name, i, at)
		}
		if s.strikes(spoken) {
			s.speak(name, i, at)
		}
		if s.strikes(pausedRun) {
			s.operate(name, at)
		}
		for n := 0; n < mostCancels && s.strikes(cancelled); n++ {
			s.later(s.soon(at), func() { s.cancel(name, i) })
		}
		if s.strikes(retried) {
			s.later(s.soon(at), func() { s.retry(deskAgent, name, fmt.Sprintf("retry-%d", i)) })
		}
	}
}

// mostCancels is how often a client cancels a run.
const mostCancels = 4

// soon is when a client wants something of a run that it starts at that time: now and then before the run is known.
func (s *simulation) soon(start int64) int64 {
	if s.pick(2) == 0 {
		return max(0, start+int64(s.pick(together))-together/2)
	}
	return int64(s.pick(minute))
}

func (s *simulation) cancel(name string, i int) {
	ev := wire.Event{
		ID: fmt.Sprintf("cancel-%d", i), Source: "client", Type: "cancel", Data: json.RawMessage(`{"reason":"enough"}`),
	}
	for range s.times(duplicate) {
		s.broker.send(subjects.Control(wire.ControlCancel, deskAgent, wire.NewRunKey(name)), ev)
	}
}

// begin plans an init event, now and then twice.
func (s *simulation) begin(agent, name, id, data string, at int64) {
	ev := wire.Event{ID: id, Source: "client", Type: serviceType(agent), Subject: name, Data: json.RawMessage(data)}
	for range s.times(duplicate) {
		s.later(at, func() { s.broker.send(subjects.Start(agent)+"."+principals[0], ev) })
	}
}

// disturbStart plans a message that is refused: an init event for a run that exists, or what nobody understands.
func (s *simulation) disturbStart(name string, i int, at int64) {
	rival := fmt.Sprintf("rival-%d", i)
	switch s.pick(5) {
	case 0:
		s.begin(deskAgent, name, rival, `{}`, at)
	case 1:
		s.begin(clerkAgent, name, rival, `{}`, at)
	case 2:
		s.begin(deskAgent, "other", rival, `{"bad":1}`, at)
	case 3:
		s.later(at, func() { s.broker.sendRaw(subjects.Start(deskAgent), []byte(`{"id":1}`), nil) })
	case 4:
		s.later(at, func() { s.cancel("nobody", i) })
	}
}
