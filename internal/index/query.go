package index

import (
	"context"
)

// SortBy is what a page is sorted by. The greatest value comes first, and runs with the same value by their names.
type SortBy string

// The orders. Empty is SortChanged.
const (
	SortChanged SortBy = "changed"
	SortStarted SortBy = "started"
	SortTokens  SortBy = "tokens"
	// SortDuration is by how long runs took, or have taken: all pages of a query measure those that go on up to the same moment, so that
	// none of them moves from one page to another.
	SortDuration SortBy = "duration"
)

// DefaultLimit and MaxLimit bound a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Query asks for a page of runs.
type Query struct {
	// Filter selects the runs; the zero Filter is all.
	Filter Filter
	Sort   SortBy
	// Oldest turns the order round: the smallest value comes first.
	Oldest bool
	// After is the Next of the page before; empty is the beginning. It belongs to the same filter and order.
	After string
	// Limit is how many runs the page has at most: 0 is DefaultLimit, and more than MaxLimit is MaxLimit.
	Limit int
	// Now is up to when SortDuration measures runs that go on, in Unix milliseconds, where After does not say it; 0 is the index's own time.
	Now int64
}

// Page is a part of what a query selects.
type Page struct {
	Documents []Document `json:"documents"`
	// Next is the After of the page that follows; empty at the end.
	Next string `json:"next,omitempty"`
	Freshness
}

// Freshness says how far an index has come.
type Freshness struct {
	// AsOf is the time up to which it has all that workers have said, in Unix milliseconds.
	AsOf int64 `json:"as_of"`
	// Behind is how many documents are there that it has not read yet.
	Behind uint64 `json:"behind"`
	// Sequence is the place of the last one that it has read.
	Sequence uint64 `json:"sequence,omitempty"`
}

// CountBy is what runs are counted by.
type CountBy string

// What runs can be counted by. A run that waits for several kinds of things counts for each of them.
const (
	CountStatus CountBy = "status"
	CountReason CountBy = "reason"
	CountAgent  CountBy = "agent"
	CountWaits  CountBy = "waits"
	CountSpec   CountBy = "spec"
)

// CountLimit is where counting ends: no group is counted beyond.
const CountLimit = 10_000

// Count is how many runs have the value.
type Count struct {
	Value string `json:"value"`
	N     int    `json:"n"`
	// More says that there are more than N, which is CountLimit.
	More bool `json:"more,omitempty"`
}

// Counts is how many runs a filter selects, in groups: those with the most first, and then by value.
type Counts struct {
	Groups []Count `json:"groups"`
	Freshness
}

// Index answers questions about runs. Implementations are safe for concurrent use.
// An index that cannot be asked returns an error of sdk.CodeUnavailable: an error never means "no runs".
type Index interface {
	// Query returns a page. An After of another query is an error of sdk.CodeInvalidEvent.
	Query(ctx context.Context, q Query) (Page, error)
	// Get is the document of a run. known is false where the index has none, which does not mean that the run does not exist.
	Get(ctx context.Context, run string) (d Document, known bool, err error)
	// Counts counts the runs that f selects, by the value of by.
	Counts(ctx context.Context, f Filter, by CountBy) (Counts, error)
	// Changes sends the documents that the index takes up from now on, until ctx ends: those that it took up together, which all readers
	// share and nobody changes. The channel is closed then, and before when its reader is slower than the changes: whoever still wants them
	// queries anew and calls it again.
	Changes(ctx context.Context) <-chan []Document
}

// Most is how many documents the page has at most.
func (q *Query) Most() int {
	if q.Limit <= 0 {
		return DefaultLimit
	}
	return min(q.Limit, MaxLimit)
}
