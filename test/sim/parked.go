package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"agentd/sdk/wire"
)

// parkedRun is a run of which word was left that it waits for something.
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
	for n, p := range o.broker.parked[key] {
		if !o.strikes(unparkLost) {
			o.later(int64(n*50+o.pick(1000)), func() { o.unpark(p, fmt.Sprintf(`{"key":%q}`, key)) })
		}
	}
	delete(o.broker.parked, key)
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

// operate plans what an operator does to a run: pauses, most of which end, and tries of what is parked.
func (s *simulation) operate(name string, start int64) {
	run := wire.NewRunKey(name)
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
