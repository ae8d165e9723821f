package runner

import (
	"errors"
	"sync/atomic"

	"agentd/internal/core"
	"agentd/sdk"
)

// costs are what model calls have cost since the run's last entry.
type costs struct {
	// lost is of those that came to nothing: the next entry counts it. Whoever dies before it has not told what they paid.
	lost sdk.ModelReply
	// tokens are those of all consultations.
	tokens atomic.Int64
}

// errNoTokens keeps a model from being consulted for a run that has used up its tokens.
var errNoTokens = errors.New("no tokens are left for the model")

// tokensLeft is how many tokens the run has left for the next model call; 0 or less is also that of a run without a budget.
func (a *activation) tokensLeft() int64 { return a.state.TokensLeft() - a.costs.tokens.Load() }

// outOfTokens reports whether the run may not ask a model again.
func (a *activation) outOfTokens() bool { return a.state.Budget > 0 && a.tokensLeft() <= 0 }

// pay adds what a consultation cost. It may be called concurrently, for costs that are not the same.
func (a *activation) pay(cost, reply *sdk.ModelReply) {
	addCost(cost, reply)
	a.costs.tokens.Add(reply.Usage.Prompt + reply.Usage.Completion)
}

// lose has the next entry count what model calls cost that came to nothing.
func (a *activation) lose(cost *sdk.ModelReply) { addCost(&a.costs.lost, cost) }

// accounted has the next entry count what a reply cost, also where it is not of the reply: a hook failed, for example.
func (a *activation) accounted(reply *sdk.ModelReply, event core.Event, err error) (core.Event, error) {
	switch event.(type) {
	case core.Replied, core.Planned, core.Routed:
	default:
		a.lose(reply)
	}
	return event, err
}

// asDriver is what the run's driver tells the core: in, with what was lost.
func (a *activation) asDriver(event core.Event) core.Input {
	in := a.in(event)
	in.Spent = a.costs.lost
	return in
}

// counted says that an entry has the costs, or may have.
func (a *activation) counted() {
	a.costs.lost = sdk.ModelReply{}
	a.costs.tokens.Store(0)
}

func addCost(cost, reply *sdk.ModelReply) {
	cost.Units += reply.Units
	cost.Usage.Add(reply.Usage)
}
