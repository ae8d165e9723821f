package runner

import (
	"cmp"
	"time"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// lastChance is how long before its time is over a request takes what came for it, whatever is away: several deliveries of a message that
// is given back.
const lastChance = 30 * time.Second

// awaited refuses a message that makes a call whose toolset is away: what a person has allowed or answered, and what an
// activation that died was about to do, is done when the toolset answers, or when the time of what they were asked is about to be over. It
// says nothing of a run that is to end, or whose own time is over.
func (a *activation) awaited() error {
	if a.head.Cancel != nil || a.Env.Now() >= a.head.Deadline {
		return nil
	}
	for i := range a.head.Calls {
		c := &a.head.Calls[i]
		if c.Kind != core.CallInline || c.Closed() {
			continue
		}
		away := a.agent.Core.Away(c.Tool)
		if away != nil && (a.covered() && c.Status != core.CallSuspended || a.lets(c)) {
			return away
		}
	}
	return nil
}

// lets reports whether the message is an answer that lets a call be made, and need not be taken at once.
func (a *activation) lets(c *core.Call) bool {
	answered, ok := wire.ParseCallRef(a.msg.Address.Call.Call)
	if !ok || !a.head.Asks(c, answered.ID) {
		return false
	}
	request := a.head.Answering(answered.ID)
	if request.Closed() || a.Env.Now() >= min(cmp.Or(request.Due, a.head.Deadline), a.head.Deadline)-lastChance.Milliseconds() {
		return false
	}
	checked, problem := a.agent.CheckAnswer(*request, a.msg.Event, a.msg.Address.Who)
	return problem == nil && a.head.Lets(c, request, answered.Attempt, checked.Decision)
}
