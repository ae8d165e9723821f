package runner

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

	"agentd/internal/core"
	"agentd/internal/memo"
)

// EntryCache keeps decoded journal entries by their bytes. Duplicates, takeovers and answers read the same entries again
// and again, and to decode and to hash them costs more than all else that they do. Its entries are shared: they must not
// be modified. Safe for concurrent use.
type EntryCache struct {
	seed maphash.Seed
	// entries are found by a hash that is cheap and proves nothing: their bytes are compared as well. Their sizes are the encoded ones, in bytes.
	entries *memo.Memo[uint64, decodedEntry]
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
	return &EntryCache{seed: maphash.MakeSeed(), entries: memo.New[uint64, decodedEntry](limit)}
}

// Decode is core.DecodeEntry, and returns the digest of data too. Sections that are stored as blobs are missing. The cache
// keeps data: it must not be modified. The error is ErrCorrupt or core.ErrLaterLayout.
func (c *EntryCache) Decode(data []byte) (e *core.Entry, digest string, err error) {
	hash := maphash.Bytes(c.seed, data)
	if known, ok := c.entries.Get(hash); ok && bytes.Equal(known.data, data) {
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
	c.entries.Keep(hash, decodedEntry{data: data, digest: digest, entry: e}, len(data))
	return e, digest, nil
}
