package runner

import (
	"container/list"
	"sync"

	"agentd/sdk/wire"

	"agentd/internal/core"
)

// cache keeps the state of runs that this worker drove and that wait, so that the next activation reads only what is new. A
// state is taken out while it is used: core.Apply takes over the state it is given.
type cache struct {
	mu sync.Mutex
	// limit and used are in bytes.
	limit, used int
	order       *list.List
	runs        map[wire.RunKey]*list.Element
}

// cached is a state at a point of its journal.
type cached struct {
	run   wire.RunKey
	at    point
	state *core.State
	// size is about how many bytes it takes, once it is in the cache.
	size int
}

const (
	// defaultCache is how many bytes of states a worker keeps: more than a thousand runs of a few turns. Were there fewer than wait for
	// services at a time, each step would read its run's whole journal.
	defaultCache = 16 << 20
	// stateBase is about how many bytes a state takes beside its conversation.
	stateBase = 4 << 10
)

// unread is a run whose journal is to be read from the beginning.
func unread() cached { return cached{state: &core.State{}} }

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), runs: map[wire.RunKey]*list.Element{}}
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

// put stores the state of a run that goes on; the least recently used ones make room. The largest there may be is kept, alone.
func (c *cache) put(s cached) {
	s.size = stateBase + s.state.Size()
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.runs[s.run]; ok {
		c.remove(e)
	}
	if c.limit <= 0 || s.state.Status == core.StatusDone {
		return
	}
	c.runs[s.run] = c.order.PushFront(s)
	c.used += s.size
	for c.used > c.limit && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// remove takes a state out; the caller holds the lock.
func (c *cache) remove(e *list.Element) cached {
	s := c.order.Remove(e).(cached)
	delete(c.runs, s.run)
	c.used -= s.size
	return s
}
