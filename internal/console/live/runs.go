package live

import (
	"context"
	"errors"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

const (
	// mostListed is how many runs of an agent are listed without an index.
	mostListed = 10_000
	// fresh is how long a listing counts as that of now: between two, live events tell what changed.
	fresh = 2 * time.Second
	// settling is how long live events of one run are waited for before its state is asked for.
	settling = 100 * time.Millisecond
)

// runs is an index.Index over what workers tell, for brokers without one: it asks them for all their runs, so it is for few.
type runs struct {
	*index.Memory
	client *client.Client
	agents func() []string

	mu     sync.Mutex
	listed time.Time
	// lacking says what a listing does not have.
	lacking string

	dirtyMu sync.Mutex
	dirty   map[client.Run]struct{}
	wake    chan struct{}
}

func newRuns(conn *broker.Conn, c *client.Client, agents func() []string) *runs {
	return &runs{
		Memory: index.NewMemory(func() time.Time { return time.UnixMilli(conn.Now()) }), client: c, agents: agents,
		dirty: map[client.Run]struct{}{}, wake: make(chan struct{}, 1),
	}
}

// Query implements index.Index.
func (r *runs) Query(ctx context.Context, q index.Query) (index.Page, error) {
	if err := r.list(ctx); err != nil {
		return index.Page{}, err
	}
	return r.Memory.Query(ctx, q)
}

// Counts implements index.Index.
func (r *runs) Counts(ctx context.Context, f index.Filter, by index.CountBy) (index.Counts, error) {
	if err := r.list(ctx); err != nil {
		return index.Counts{}, err
	}
	return r.Memory.Counts(ctx, f, by)
}

// Lacking says what the last listing does not have; empty is that it has all.
func (r *runs) Lacking() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lacking
}

// list asks the workers of all agents, unless that was done just now. The error is that none of them answers.
func (r *runs) list(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.listed) < fresh {
		return nil
	}
	agents, answered := r.agents(), 0
	var silent error
	r.lacking = ""
	for _, agent := range agents {
		more, err := r.listAgent(ctx, agent)
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			r.lacking, silent = "The runs of "+agent+" are not here: no worker of it answers, and there is no index.", err
			continue
		}
		if err != nil {
			return err
		}
		if answered++; more {
			r.lacking = "Only some of the runs of " + agent + " are here: it has more than can be listed without an index."
		}
	}
	if answered == 0 && silent != nil {
		return silent
	}
	r.listed = time.Now()
	return nil
}

func (r *runs) listAgent(ctx context.Context, agent string) (more bool, err error) {
	n := 0
	for status, err := range r.client.List(ctx, agent, "") {
		if err != nil {
			return false, err
		}
		if n++; n > mostListed {
			return true, nil
		}
		r.Put(find.OfStatus(status))
	}
	return false, nil
}

// hear marks a run whose state is to be asked for.
func (r *runs) hear(l wire.Live) {
	if l.Ephemeral {
		return
	}
	r.dirtyMu.Lock()
	r.dirty[client.Run{Agent: l.Agent, Name: l.Run}] = struct{}{}
	r.dirtyMu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// follow asks for the runs that live events tell of, until ctx ends.
func (r *runs) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settling):
		}
		r.dirtyMu.Lock()
		dirty := r.dirty
		r.dirty = map[client.Run]struct{}{}
		r.dirtyMu.Unlock()
		for run := range dirty {
			if status, err := r.client.Status(ctx, run); err == nil {
				r.Put(find.OfStatus(status))
			}
		}
	}
}
