package runner

import (
	"container/list"
	"sync"

	"agentd/sdk/wire"

	"agentd/internal/core"
)

// cache keeps the state of recently driven runs, so that the next activation on this worker reads only what is new. A
// state is taken out while it is used: core.Apply takes over the state it is given.
type cache struct {
	mu    sync.Mutex
	limit int
	order *list.List
	runs  map[wire.RunKey]*list.Element
}

// cached is a state at a point of its journal.
type cached struct {
	run   wire.RunKey
	at    point
	state core.State
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), runs: map[wire.RunKey]*list.Element{}}
}

// take removes and returns the run's state, if it is there.
func (c *cache) take(run wire.RunKey) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.runs[run]
	if !ok {
		return cached{}, false
	}
	delete(c.runs, run)
	return c.order.Remove(e).(cached), true
}

// put stores a state; the least recently used one makes room.
func (c *cache) put(s cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit <= 0 {
		return
	}
	if e, ok := c.runs[s.run]; ok {
		c.order.Remove(e)
	}
	c.runs[s.run] = c.order.PushFront(s)
	for c.order.Len() > c.limit {
		oldest := c.order.Remove(c.order.Back()).(cached)
		delete(c.runs, oldest.run)
	}
}
