package index

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is an index in this process, for tests and for few runs.
type Memory struct {
	Watchers

	mu        sync.Mutex
	documents map[string]Document
	asOf      int64
	now       func() time.Time
}

// NewMemory is an empty index whose relative times count from what now returns.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{documents: map[string]Document{}, now: now}
}

// Put takes up a document, unless the one that it has is as new.
func (m *Memory) Put(d Document) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asOf = m.now().UnixMilli()
	if d.Rev <= m.documents[d.Run].Rev {
		return
	}
	m.documents[d.Run] = d
	m.Tell([]Document{d})
}

// Query is Index's.
func (m *Memory) Query(_ context.Context, q Query) (Page, error) {
	after, err := q.Position(m.now().UnixMilli())
	if err != nil {
		return Page{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	page := Page{Documents: m.selected(q.Filter), Freshness: Freshness{AsOf: m.asOf}}
	order := func(x, y *Document) int {
		return cmp.Or(q.compare(q.of(x), q.of(y)), cmp.Compare(x.Run, y.Run))
	}
	slices.SortFunc(page.Documents, func(x, y Document) int { return order(&x, &y) })
	if after != nil {
		page.Documents = slices.DeleteFunc(page.Documents, func(d Document) bool {
			return cmp.Or(q.compare(q.of(&d), after.Value), cmp.Compare(d.Run, after.Run)) <= 0
		})
	}
	if limit := q.Most(); len(page.Documents) > limit {
		page.Documents = page.Documents[:limit]
		page.Next = q.Following(&page.Documents[limit-1])
	}
	return page, nil
}

// selected are the documents that match, in any order.
func (m *Memory) selected(f Filter) []Document {
	now, documents := m.now(), []Document{}
	for _, d := range m.documents {
		if f.Matches(&d, now) {
			documents = append(documents, d)
		}
	}
	return documents
}

// Get is Index's.
func (m *Memory) Get(_ context.Context, run string) (Document, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, known := m.documents[run]
	return d, known, nil
}

// Counts is Index's.
func (m *Memory) Counts(_ context.Context, f Filter, by CountBy) (Counts, error) {
	if err := by.Check(); err != nil {
		return Counts{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := map[string]int{}
	for _, d := range m.selected(f) {
		values := d.values(string(by))
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			if v != "" {
				n[v]++
			}
		}
	}
	return Counts{Groups: Groups(n), Freshness: Freshness{AsOf: m.asOf}}, nil
}

// Groups are counts by value, in the order of Counts.
func Groups(n map[string]int) []Count {
	counts := []Count{}
	for _, v := range slices.Sorted(maps.Keys(n)) {
		counts = append(counts, Count{Value: v, N: min(n[v], CountLimit), More: n[v] > CountLimit})
	}
	slices.SortStableFunc(counts, func(x, y Count) int { return cmp.Compare(y.N, x.N) })
	return counts
}

// of is the value of d that a page is sorted by.
func (q *Query) of(d *Document) int64 {
	switch {
	case q.Sort == SortStarted:
		return d.Started
	case q.Sort == SortTokens:
		return d.Tokens.Total()
	case q.Sort == SortDuration && d.Done():
		return d.Span()
	case q.Sort == SortDuration:
		return d.Span() + q.Now
	default:
		return d.Changed
	}
}

// compare puts values in the order of the query.
func (q *Query) compare(x, y int64) int {
	if q.Oldest {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

var _ Index = (*Memory)(nil)
