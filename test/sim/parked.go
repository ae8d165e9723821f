package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"agentd/sdk/wire"
)

// parkedRun is a run that is marked as waiting for something.
type parkedRun struct {
	agent string
	run   wire.RunKey
}

// outages implements runner.Outages: what a worker knows of models that are away is random, because it is never more than a hint.
type outages struct{ *worker }

// Ask implements runner.Outages. A run that has waited finds now and then that another one asks.
func (o outages) Ask(_ context.Context, _ string, waited bool) bool {
	return !waited || o.calmSince > 0 || o.pick(4) > 0
}

// Away implements runner.Outages.
func (o outages) Away(string, time.Duration) {}

// Back implements runner.Outages: the runs that wait are unparked one after the other.
func (o outages) Back(key string, waited bool) {
	if !waited && o.pick(4) > 0 {
		return // nobody knew here that it was away
	}
	o.unparkAll(key)
}

// unparkAll unparks the runs that wait for key, unless who does it dies.
func (s *simulation) unparkAll(key string) {
	for n, p := range s.broker.parked[key] {
		if !s.strikes(unparkLost) {
			s.later(int64(n*50+s.pick(1000)), func() { s.unpark(p, fmt.Sprintf(`{"key":%q}`, key)) })
		}
	}
	delete(s.broker.parked, key)
}

// Paused implements runner.Outages. A worker hears of a pause a little late.
func (o outages) Paused(_ context.Context, agent string) time.Duration {
	since, paused := o.agentsPaused[agent]
	o.running.agentPaused = paused && o.now >= since+int64(o.pick(2000))
	if !o.running.agentPaused {
		return 0
	}
	return time.Minute
}

// Park implements runner.Outages.
func (o outages) Park(ctx context.Context, key, agent string, run wire.RunKey, _ time.Duration) error {
	if err := o.enter(ctx, atArm); err != nil {
		return err
	}
	if o.now < o.brokerAway || o.strikes(publishLost) {
		return errBroker
	}
	if p := (parkedRun{agent, run}); !slices.Contains(o.broker.parked[key], p) {
		o.broker.parked[key] = append(o.broker.parked[key], p)
	}
	o.pause(atArmed)
	if _, paused := o.agentsPaused[agent]; key == wire.KeyAgentPaused && !paused { // who resumed the agent may not have seen the mark
		o.unparkAll(key)
	}
	if o.strikes(publishUnsure) {
		return errBroker
	}
	return nil
}

// Unmark implements runner.Outages.
func (o outages) Unmark(ctx context.Context, key, agent string, run wire.RunKey) error {
	if err := o.enter(ctx, atArm); err != nil {
		return err
	}
	if o.now < o.brokerAway || o.strikes(publishLost) {
		return errBroker
	}
	o.broker.parked[key] = slices.DeleteFunc(o.broker.parked[key], func(p parkedRun) bool { return p == parkedRun{agent, run} })
	o.pause(atArmed)
	if o.strikes(publishUnsure) {
		return errBroker
	}
	return nil
}

func (s *simulation) unpark(p parkedRun, data string) {
	s.control(wire.ControlUnpark, p.agent, p.run, data)
}

// control sends a control message that differs from all others, now and then twice.
func (s *simulation) control(verb wire.ControlVerb, agent string, run wire.RunKey, data string) {
	ev := wire.Event{
		ID: fmt.Sprintf("%s-%d", verb, s.rng.Uint32()), Source: "operator", Type: string(verb), Data: json.RawMessage(data),
	}
	for range s.times(duplicate) {
		s.broker.send(subjects.Control(verb, agent, run), ev)
	}
}

// operate plans what an operator does to a run: pauses, most of which end, tries of what is parked, and pauses of its agent.
func (s *simulation) operate(name string, start int64) {
	run := wire.NewRunKey(name)
	if s.pick(3) == 0 {
		at := s.soon(start)
		s.later(at, func() { s.agentsPaused[deskAgent] = s.now })
		s.later(at+int64(s.pick(3*minute)), func() {
			delete(s.agentsPaused, deskAgent)
			s.unparkAll(wire.KeyAgentPaused)
		})
	}
	for range 1 + s.pick(3) {
		at := s.soon(start)
		s.later(at, func() { s.control(wire.ControlPause, deskAgent, run, `{}`) })
		if s.pick(8) > 0 {
			s.later(at+int64(s.pick(3*minute)), func() { s.control(wire.ControlResume, deskAgent, run, `{}`) })
		}
		if s.pick(3) == 0 {
			s.later(at+int64(s.pick(3*minute)), func() { s.control(wire.ControlUnpark, deskAgent, run, `{}`) })
		}
	}
}
