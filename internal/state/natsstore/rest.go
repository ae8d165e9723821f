package natsstore

import (
	"sync"
	"time"

	"agentd/sdk/wire"
)

const (
	// restLasts is for how long the rest of a listing is good: runs that begin meanwhile are missing from it.
	restLasts = time.Minute
	// mostRests bounds how many listings are remembered. A rest has what is left of a partition, 1 run in 256.
	mostRests = 4
)

// rest are the runs that were listed and did not go on a page. through is the partition up to which all are among them, "*" where
// these are the last of all.
type rest struct {
	keys    []wire.RunKey
	through string
	listed  time.Time
}

// rests remembers what pages left over, by the cursor of the next page: the server lists a whole partition at a time, which would be
// listed again for each page of it otherwise. Safe for concurrent use.
type rests struct {
	mu sync.Mutex
	by map[string]rest
}

// take returns the rest that a page left, once.
func (r *rests) take(cursor string) (rest, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, ok := r.by[cursor]
	delete(r.by, cursor)
	return left, ok && time.Since(left.listed) < restLasts
}

// keep remembers the rest that a page leaves, in place of the oldest.
func (r *rests) keep(cursor string, left rest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := ""
	for c, other := range r.by {
		if time.Since(other.listed) >= restLasts {
			delete(r.by, c)
		} else if oldest == "" || other.listed.Before(r.by[oldest].listed) {
			oldest = c
		}
	}
	if len(r.by) >= mostRests {
		delete(r.by, oldest)
	}
	if r.by == nil {
		r.by = map[string]rest{}
	}
	r.by[cursor] = left
}
