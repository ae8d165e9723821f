package runner

import (
	"encoding/json"
	"fmt"
	"sync"

	"agentd/internal/core"
)

// EntryCache keeps decoded journal entries by the digest of their bytes. Duplicates, takeovers and answers read the same
// entries again and again, and decoding them costs more than all else that they do. Its entries are shared: they must not
// be modified. Safe for concurrent use.
type EntryCache struct {
	mu    sync.Mutex
	limit int
	// size is the sum of the encoded sizes, in bytes.
	size    int
	entries map[string]core.Entry
}

// defaultEntryBytes is the limit of a runner's own EntryCache.
const defaultEntryBytes = 32 << 20

// NewEntryCache returns a cache of entries that have up to limit bytes together in the journal.
func NewEntryCache(limit int) *EntryCache {
	return &EntryCache{limit: limit, entries: map[string]core.Entry{}}
}

// Decode is core.DecodeEntry, and returns the digest of data too. Sections that are stored as blobs are missing. The error
// is ErrCorrupt, except for an entry of a later version: a worker of that version can go on with its run.
func (c *EntryCache) Decode(data []byte) (e core.Entry, digest string, err error) {
	digest = core.Digest(data)
	c.mu.Lock()
	e, ok := c.entries[digest]
	c.mu.Unlock()
	if ok {
		return e, digest, nil
	}
	if e, err = core.DecodeEntry(data); err != nil {
		var layout struct{ V int }
		if json.Unmarshal(data, &layout) == nil && layout.V > core.LayoutVersion {
			return core.Entry{}, digest, err
		}
		return core.Entry{}, digest, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size += len(data); c.size > c.limit { // what is needed again comes back
		clear(c.entries)
		c.size = len(data)
	}
	c.entries[digest] = e
	return e, digest, nil
}
