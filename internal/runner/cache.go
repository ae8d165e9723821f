package runner

import (
	"container/list"
	"sync"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// cache keeps the state of runs that this worker drove and that wait, so that the next activation reads only what is new. A
// state is taken out while it is used: core.Apply takes over the state it is given.
type cache struct {
	mu   sync.Mutex
	runs map[wire.RunKey]*list.Element
	// calling are the runs that wait for services, agents among them, which mostly go on soon, and resting all others: people may take days,
	// and however many wait for them, they cost a worker little memory and the runs that go on no read of their journals.
	calling, resting shelf
}

// shelf is a part of the cache, whose least recently used states make room for others.
type shelf struct {
	// limit and used are in bytes.
	limit, used int
	order       *list.List
}

// cached is a state at a point of its journal.
type cached struct {
	run   wire.RunKey
	at    point
	state *core.State
	// size is about how many bytes it takes, and on what it is, once it is in the cache.
	size int
	on   *shelf
}

const (
	// defaultCache is how many bytes of states a worker keeps of runs that wait for services. Were there fewer than wait at a time, each step
	// would read its run's whole journal, and a worker that reads many at once takes more memory than this.
	defaultCache = 64 << 20
	// restingShare is the part of that, one of so many, which runs have besides that wait for anything else.
	restingShare = 4
	// stateBase is about how many bytes a state takes beside its conversation.
	stateBase = 4 << 10
	// messageBase is about how many bytes a message takes beside its text.
	messageBase = 256
)

// unread is a run whose journal is to be read from the beginning.
func unread() cached { return cached{state: &core.State{}} }

func newCache(limit int) *cache {
	return &cache{
		runs:    map[wire.RunKey]*list.Element{},
		calling: shelf{limit: limit, order: list.New()},
		resting: shelf{limit: limit / restingShare, order: list.New()},
	}
}

// take removes and returns the run's state, if it is there; else the run is unread.
func (c *cache) take(run wire.RunKey) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.runs[run]
	if !ok {
		return unread(), false
	}
	return c.remove(e), true
}

// put stores the state of a run that goes on. The largest there may be is kept, alone on its shelf.
func (c *cache) put(s cached) {
	s.size, s.on = stateBase+len(s.state.History)*messageBase+s.state.Size(), &c.resting
	if s.state.AwaitsService() {
		s.on = &c.calling
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.runs[s.run]; ok {
		c.remove(e)
	}
	if s.on.limit <= 0 || s.state.Status == core.StatusDone {
		return
	}
	c.runs[s.run] = s.on.order.PushFront(s)
	s.on.used += s.size
	for s.on.used > s.on.limit && s.on.order.Len() > 1 {
		c.remove(s.on.order.Back())
	}
}

// remove takes a state out; the caller holds the lock.
func (c *cache) remove(e *list.Element) cached {
	s := e.Value.(cached)
	s.on.order.Remove(e)
	s.on.used -= s.size
	delete(c.runs, s.run)
	return s
}
