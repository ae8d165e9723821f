package runner

import (
	"errors"
	"sync"

	"agentd/internal/core"
	"agentd/sdk"
)

// costs are what model calls have cost since the run's last entry.
type costs struct {
	// lost is of those that came to nothing: the next entry counts it. Whoever dies before it has not told what they paid.
	lost sdk.ModelReply
	// told says that the entry which was made last may be in the store.
	told bool

	mu sync.Mutex
	// used is of all of them.
	used sdk.Usage
}

// errNoTokens keeps a model from being consulted for a run that has used up its tokens.
var errNoTokens = errors.New("no tokens are left for the model")

// spent is the run's head with what model calls have used since. It must not be modified.
func (a *activation) spent() *core.Head {
	a.costs.mu.Lock()
	defer a.costs.mu.Unlock()
	if a.costs.used == (sdk.Usage{}) {
		return &a.state.Head
	}
	head := a.state.Head
	head.Usage.Add(a.costs.used)
	return &head
}

// tokensLeft is how many tokens the run has left for the next model call; 0 or less is also that of a run without a budget.
func (a *activation) tokensLeft() int64 { return a.spent().TokensLeft() }

// outOfTokens reports whether the run may not ask a model again.
func (a *activation) outOfTokens() bool { return a.state.Budget > 0 && a.tokensLeft() <= 0 }

// use notes what a model call has used. It may be called concurrently.
func (a *activation) use(reply *sdk.ModelReply) {
	a.costs.mu.Lock()
	defer a.costs.mu.Unlock()
	a.costs.used.Add(reply.Usage)
}

// lose has the next entry count what model calls cost that came to nothing.
func (a *activation) lose(cost sdk.ModelReply) { addCost(&a.costs.lost, &cost) }

// accounted has the next entry count what a reply cost, also where it is not of the reply: a hook failed, for example.
func (a *activation) accounted(reply *sdk.ModelReply, event core.Event, err error) (core.Event, error) {
	switch event.(type) {
	case core.Replied, core.Planned, core.Routed:
	default:
		a.lose(*reply)
	}
	return event, err
}

// asDriver is what the run's driver tells the core: in, with what was lost.
func (a *activation) asDriver(event core.Event) core.Input {
	in := a.in(event)
	in.Spent = a.costs.lost
	return in
}

// counted says that an entry was to have the costs, and those of an event. It has them, or may have; else the next one is to.
func (a *activation) counted(event core.Event) {
	if !a.costs.told {
		a.lose(core.Cost(event))
		return
	}
	a.costs.lost = sdk.ModelReply{}
	a.costs.mu.Lock()
	defer a.costs.mu.Unlock()
	a.costs.used = sdk.Usage{}
}

func addCost(cost, reply *sdk.ModelReply) {
	cost.Units.Add(reply.Units)
	cost.Usage.Add(reply.Usage)
}
