package core

import (
	"agentd/internal/clip"
	"agentd/sdk"
)

// misread tells the model that its reply has a call which cannot be understood. None of its calls is made, so it counts as a
// reply without a call; and two of them in a row with faults of one class have failed in the same way.
func (t *transition) misread(reply sdk.ModelReply) {
	h := &t.Head
	h.Misread++
	t.Misread = clip.Text(reply.Fault.Class, maxToolName)
	if t.spec.NoToolCall.Remind {
		h.Progress.Reminders++
	}
	if t.spec.Stop.SameError > 0 {
		h.Progress.failedBy("reply " + t.Misread)
	}
	t.correct(reply.Text, reply.Fault.Message)
}

// failedBy counts a failure, named so that equal ones have equal names.
func (p *Progress) failedBy(fault string) {
	if fault != p.Fault {
		p.Same, p.Fault = 0, fault
	}
	p.Same++
}
