package core_test

import (
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// wrongAnswer comes from elsewhere, answers something else, or is too late.
func (x *explorer) wrongAnswer() {
	open := x.open()
	if len(open) == 0 {
		if len(x.sent) > 0 {
			late := x.sent[x.pick(len(x.sent), "late")]
			x.refuse(x.rig.deliver("late", x.rig.answer(late, 0, `{"late":true}`)), core.ErrStale)
		}
		return
	}
	ev := x.anAnswer(open)
	if x.lateAnswer(ev) {
		return
	}
	switch x.pick(6, "wrong") {
	case 0:
		ev.Address.Domain = "elsewhere"
	case 1:
		ev.Address.Type = "shop_other"
	case 2:
		ev.ParentID = "something"
	case 3:
		ev.ParentID = ev.Ref.ID[:len(ev.Ref.ID)-1] + "2"
	case 4: // asked in the future of a history that was rolled back
		ev.Ref.Step = x.rig.state.Round + 1
		ev.Ref.ID = wire.CallID(x.rig.state.Key(), "", ev.Ref.Step, 0, "lookup", nil)
	case 5: // asked with other arguments, or a tool that waits for the person who was asked
		ev.Ref.ID = wire.CallID(x.rig.state.Key(), "", ev.Ref.Step, ev.Ref.Index, "lookup", nil)
		if !x.rig.state.RoundOpen() || ev.Ref.Step < x.rig.state.Round {
			x.refuse(x.rig.deliver("wrong", ev), core.ErrStale) // of a round that is complete, as far as the head knows
			return
		}
	}
	x.refuse(x.rig.deliver("wrong", ev), core.ErrOrphan)
}

// duplicate is an event that was accepted before, in a new message or the same.
func (x *explorer) duplicate() {
	in := x.accepted[x.pick(len(x.accepted), "duplicate")]
	again := x.pick(2, "new message") == 0
	if again {
		in = x.rig.deliver(in.Cause.EventID, in.Event)
	}
	if _, ok := in.Event.(core.Started); ok && x.pick(2, "other init") == 0 {
		other := started("order 7", "me too")
		other.Init.Token = wire.InitToken("shop.web", "init-2")
		x.refuse(x.rig.deliver("init-2", other), &sdk.Error{Code: sdk.CodeRunExists})
		return
	}
	if x.retries > 0 {
		switch in.Event.(type) {
		case core.CancelAsked, core.CallCancelAsked:
			return // whoever delivers messages knows that this one was for a generation before
		}
	}
	if again && x.undecided(in.Event) { // it ended the run, and what else its event asked for is asked again
		x.refuse(in, &sdk.Error{Code: sdk.CodeDecisionRefused})
		return
	}
	x.refuse(in, core.ErrStale)
}

// fire lets the timer fire: never early, often late.
func (x *explorer) fire() {
	r := x.rig
	if r.state.Timer == 0 {
		return
	}
	r.now = max(r.now, r.state.Timer) + int64(x.pick(3, "late"))*20*second
	x.accept(r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
}

// release hands the run back, any number of times, and another activation goes on.
func (x *explorer) release() {
	d := x.rig.state.Driver
	if d == nil {
		return
	}
	takeovers := d.Takeovers
	x.rig.causes[""] = x.rig.causes[d.Owner]
	x.accept(x.rig.drive(core.Released{}))
	x.takeOver()
	if d := x.rig.state.Driver; d.Takeovers != takeovers {
		x.Fatalf("handing the run back counts: %d takeovers after %d", d.Takeovers, takeovers)
	}
}

func (x *explorer) takeOver() {
	r := x.rig
	if r.state.Driver == nil {
		x.refuse(r.input("zombie", r.causes["w1"], core.TakenOver{}), core.ErrStale)
		return
	}
	x.accept(r.redelivery())
}

// formerOwner is an activation that does not know that it lost the run.
func (x *explorer) formerOwner() {
	owner := "nobody"
	if n := x.pick(len(x.owners)+1, "owner"); n < len(x.owners) {
		owner = x.owners[n]
	}
	if d := x.rig.state.Driver; d == nil || d.Owner != owner {
		x.refuse(x.rig.work(owner, x.anyWork()), core.ErrFenced)
	}
}

func (x *explorer) anyWork() core.Event {
	return []core.Event{
		x.reply(),
		core.Began{},
		core.Returned{},
		core.Reviewed{},
		core.Parked{Why: core.ParkModel, Key: "model"},
		x.built(),
		core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeModel, Message: "no"}},
	}[x.pick(7, "work")]
}

// illegal is work of the driver that cannot follow.
func (x *explorer) illegal() {
	h := &x.rig.state.Head
	if h.Driver == nil || h.Cancel != nil {
		return
	}
	events := []core.Event{core.Began{Calls: []string{"c999-9-nothing"}}, core.Returned{Results: []core.Result{{Call: "c9"}}}}
	if h.Stop == "" {
		events = append(events, x.built())
	}
	if h.RoundOpen() || h.Stop != "" {
		events = append(events, x.reply())
	}
	for _, c := range h.Calls {
		if c.Status != core.CallCancelled && (c.Closed() || c.Kind == core.CallService && c.Status != core.CallResuming) {
			events = append(events, core.Began{Calls: []string{c.ID}}, core.Returned{Results: []core.Result{{Call: c.ID}}})
		}
	}
	x.refuse(x.rig.drive(events[x.pick(len(events), "illegal")]), core.ErrIllegal)
}

func (x *explorer) cancel() {
	ev := core.CancelAsked{Message: "enough"}
	if x.rig.state.Cancel != nil {
		x.refuse(x.rig.deliver("cancel", ev), core.ErrStale)
		return
	}
	x.accept(x.rig.deliver("cancel", ev))
}

// cancelCall gives up one call of the round, also while its tool is at work.
func (x *explorer) cancelCall() {
	r := x.rig
	if len(r.state.Calls) == 0 {
		return
	}
	c := r.state.Calls[x.pick(len(r.state.Calls), "cancelled call")]
	in := r.deliver("cancel-call", core.CallCancelAsked{Call: c.ID, Message: "enough"})
	switch {
	case c.Closed() || r.state.Cancel != nil:
		x.refuse(in, core.ErrStale)
	case c.Kind != core.CallService && c.Kind != core.CallInline:
		x.refuse(in, &sdk.Error{Code: sdk.CodeCancelRefused})
	default:
		x.accept(in)
		if x.results[c.ID].Kind != core.ResultCancelled {
			x.Fatalf("call %s was cancelled, and its result is %+v", c.ID, x.results[c.ID])
		}
		x.refuse(r.deliver("cancel-call", in.Event), core.ErrStale)
	}
}

// crashLoop lets drivers die one after the other, and somebody else look at the run after that.
func (x *explorer) crashLoop() {
	if next, ok := x.rig.next().(core.RunTools); ok && len(next.Begin) > 0 {
		x.accept(x.rig.drive(x.tools(next)))
	}
	x.rig.alone = true
	defer func() { x.rig.alone = false }()
	for range core.MaxDeaths + 1 {
		if x.rig.state.Status == core.StatusRunning {
			x.takeOver()
		}
	}
	if x.rig.state.Status != core.StatusRunning {
		return
	}
	x.rig.now += x.rig.spec.StaleAfter + 1
	switch x.pick(5, "rescue") {
	case 4:
		x.steer()
	case 0, 1:
		x.fire()
	case 2:
		x.cancel()
	case 3:
		x.takeOver()
	}
}

// used is the id of the model's call at a place; one of no call, where there is none.
func (s *script) used(place string) string {
	for _, m := range s.state.History {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse && wire.CallPlace(c.CallID) == place {
				return c.CallID
			}
		}
	}
	return place + "-aaaaaaaaaaaaaaaaaaaaaaaaaa"
}
