package runner

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"agentd/internal/core"
)

// EntryCache keeps decoded journal entries by their bytes. Duplicates, takeovers and answers read the same entries again
// and again, and to decode and to hash them costs more than all else that they do. Its entries are shared: they must not
// be modified. Safe for concurrent use.
type EntryCache struct {
	mu    sync.Mutex
	limit int
	// size is the sum of the encoded sizes, in bytes.
	size int
	seed maphash.Seed
	// entries are found by a hash that is cheap and proves nothing: their bytes are compared as well.
	entries map[uint64]decodedEntry
}

// decodedEntry is what the cache knows of data.
type decodedEntry struct {
	data   []byte
	digest string
	entry  *core.Entry
}

// defaultEntryBytes is the limit of a runner's own EntryCache. Decoded, entries take several times as much memory.
const defaultEntryBytes = 4 << 20

// NewEntryCache returns a cache of entries that have up to limit bytes together in the journal.
func NewEntryCache(limit int) *EntryCache {
	return &EntryCache{limit: limit, seed: maphash.MakeSeed(), entries: map[uint64]decodedEntry{}}
}

// Decode is core.DecodeEntry, and returns the digest of data too. Sections that are stored as blobs are missing. The cache
// keeps data: it must not be modified. The error is ErrCorrupt or core.ErrLaterLayout.
func (c *EntryCache) Decode(data []byte) (e *core.Entry, digest string, err error) {
	hash := maphash.Bytes(c.seed, data)
	c.mu.Lock()
	known, ok := c.entries[hash]
	c.mu.Unlock()
	if ok && bytes.Equal(known.data, data) {
		return known.entry, known.digest, nil
	}
	digest = core.Digest(data)
	e = &core.Entry{}
	if err := e.Decode(data); err != nil {
		if errors.Is(err, core.ErrLaterLayout) {
			return nil, digest, err
		}
		return nil, digest, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.size += len(data); c.size > c.limit { // what is needed again comes back
		clear(c.entries)
		c.size = len(data)
	}
	c.entries[hash] = decodedEntry{data: data, digest: digest, entry: e}
	return e, digest, nil
}
