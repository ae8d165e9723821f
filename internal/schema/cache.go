package schema

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
)

// cache keeps the most recently used schemas by content, so that none is compiled twice. What does not compile is kept
// too.
type cache struct {
	// limit bounds the schemas, maxBytes what they were compiled from.
	limit, maxBytes int

	mu    sync.Mutex
	bytes int
	// recent has the entries, the most recently used first.
	recent *list.List
	byHash map[[sha256.Size]byte]*list.Element
}

type cached struct {
	hash  [sha256.Size]byte
	bytes int
	// compile compiles once, whoever asks first.
	compile func() (*Schema, error)
}

func newCache(limit, maxBytes int) *cache {
	return &cache{limit: limit, maxBytes: maxBytes, recent: list.New(), byHash: map[[sha256.Size]byte]*list.Element{}}
}

func (c *cache) get(raw json.RawMessage) (*Schema, error) {
	return c.entry(raw).compile() // outside the lock: others need not wait for it
}

func (c *cache) entry(raw json.RawMessage) *cached {
	hash := sha256.Sum256(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHash[hash]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*cached)
	}
	own := slices.Clone(raw)
	entry := &cached{hash: hash, bytes: len(own), compile: sync.OnceValues(func() (*Schema, error) { return compile(own) })}
	c.byHash[hash] = c.recent.PushFront(entry)
	c.bytes += entry.bytes
	for c.recent.Len() > c.limit || c.bytes > c.maxBytes && c.recent.Len() > 1 {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.byHash, oldest.hash)
		c.bytes -= oldest.bytes
	}
	return entry
}
