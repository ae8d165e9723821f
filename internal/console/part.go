package console

import (
	"context"
	"slices"

	"agentd/internal/core"
)

const (
	// entriesRead is how many entries a page reads at once, and entriesLooked the most that one looks through.
	entriesRead   = 100
	entriesLooked = 800
)

// back reads the entries before a revision, the nearest first, until there is enough of them or a page may look through no more. They are
// in the order of the journal.
func (c *console) back(ctx context.Context, run string, before uint64, enough func([]core.Entry) bool) ([]core.Entry, error) {
	var entries []core.Entry
	for before > 1 && len(entries) < entriesLooked && (entries == nil || !enough(entries)) {
		from := max(before, entriesRead+1) - entriesRead
		read, err := c.Source.Part(ctx, run, from, int(before-from))
		if err != nil {
			return nil, err
		}
		if uint64(len(read)) < before-from { // it was purged meanwhile
			return append(read, entries...), nil
		}
		entries, before = slices.Concat(read, entries), from
	}
	return entries, nil
}
