// Package answers says how long the broker has to keep the answers to calls, and what else comes for runs. It is pure.
package answers

import (
	"cmp"
	"fmt"
	"time"

	"agentd/internal/approval"
	"agentd/sdk"
)

// Redelivered is how long a message may still be delivered that no call waits for: one that only later workers understand waits a day
// for them, and reconcile takes what nobody has acknowledged for handled after a day.
const Redelivered = 48 * time.Hour

// handled is the second of these days: a pass of reconcile that comes after it delivers an answer again that a store has lost.
const handled = 24 * time.Hour

// Need is how long messages have to be kept, and what for.
type Need struct {
	For time.Duration
	// Why says what for, as long as For.
	Why string
}

// longer is the longer of two.
func (n Need) longer(other Need) Need {
	if other.For > n.For {
		return other
	}
	return n
}

// Needed is what agents need: a call is open until its answer is read, however often it is looked for, so an answer must not go before
// the call has expired. Desks, which store nothing, would show again what somebody has answered; a service that gets a call again would
// not find that it has been answered, and do it twice.
func Needed(agents []sdk.AgentSpec) Need {
	n := Need{Redelivered, "messages may be delivered again as late"}
	for i := range agents {
		n = n.longer(needed(&agents[i]))
	}
	return n
}

func needed(a *sdk.AgentSpec) Need {
	waits := func(millis int64, otherwise time.Duration, format string, args ...any) Need {
		return Need{
			time.Duration(cmp.Or(millis, otherwise.Milliseconds())) * time.Millisecond,
			fmt.Sprintf("agent %s may wait as long for ", a.Name) + fmt.Sprintf(format, args...),
		}
	}
	n := waits(a.Limits.QuestionTimeoutMillis, sdk.DefaultQuestionTimeout, "the answer to a question (limits.question_timeout)")
	for i := range a.Services {
		s := &a.Services[i]
		n = n.longer(waits(s.TimeoutMillis, sdk.DefaultCallTimeout, "the answer of %s (timeout)", s.Contract.Type))
	}
	if stage := approval.LongestStage(a.Permissions, a.Plan); stage > 0 {
		n = n.longer(waits(stage.Milliseconds(), 0, "a decision (expires)"))
	}
	// No call outlives its run.
	n.For = min(n.For, time.Duration(cmp.Or(a.Limits.DeadlineMillis, sdk.DefaultRunDeadline.Milliseconds()))*time.Millisecond)
	return n
}

// WithEarly is the need where workers keep decisions for as long whose requests have not come.
func (n Need) WithEarly(early time.Duration) Need {
	return n.longer(Need{early, "decisions whose request has not come are kept as long (approvals.early)"})
}

// WithReconcile is the need where passes of reconcile are made as often, of what is as old; every 0 is never.
func (n Need) WithReconcile(every, olderThan time.Duration) Need {
	if every == 0 {
		return n
	}
	return n.longer(Need{handled + every + olderThan, "reconcile may find as late that an answer was lost (reconcile.interval)"})
}
