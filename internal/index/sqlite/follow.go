package sqlite

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

const (
	// batch bounds how many documents are taken up in one transaction.
	batch = 1000
	// longestAway is after how long an index begins anew: what was withdrawn meanwhile may not be said any more.
	longestAway = 6 * 24 * time.Hour
	// looks is how often it is seen whether the broker is there.
	looks = time.Second
)

// Source is where documents come from.
type Source struct {
	Conn *broker.Conn
	// Open opens documents that are sealed.
	Open   func(run wire.RunKey, rev uint64, data []byte) ([]byte, error)
	Logger *slog.Logger
}

// Follow takes up documents as they come, until ctx ends. Where it cannot, for a while, it says so and tries again.
func (x *Index) Follow(ctx context.Context, s Source) {
	pauses := retry.Pauses{First: time.Second, Longest: 30 * time.Second}
	for failures := 1; ctx.Err() == nil; failures++ {
		err := x.follow(ctx, s)
		if ctx.Err() != nil {
			return
		}
		pause := pauses.Nth(failures)
		s.Logger.WarnContext(ctx, "the index of runs is not followed; trying again", "in", pause, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (x *Index) follow(ctx context.Context, s Source) error {
	state, err := s.Conn.IndexState(ctx)
	if err != nil {
		return err
	}
	p, err := x.place(ctx)
	away := x.now().UnixMilli()-p.at > longestAway.Milliseconds()
	if err != nil || x.missing() || p.sequence > 0 && (p.stream != state.Created || p.sequence > state.Last || away && p.sequence < state.Last) {
		s.Logger.InfoContext(ctx, "the index of runs begins anew", "error", err)
		if err := x.begin(ctx); err != nil {
			return err
		}
		p = place{}
	}
	x.reads(index.Freshness{AsOf: p.at, Behind: state.Last - p.sequence, Sequence: p.sequence}, true)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		x.watch(ctx, s.Conn, cancel)
	}()
	defer func() {
		cancel(nil)
		<-stopped
		x.reads(x.freshness(), false)
	}()
	var items []Item
	err = s.Conn.TailIndex(ctx, p.sequence+1, func(i broker.IndexedRun, behind uint64) error {
		items = append(items, s.item(ctx, i))
		if behind > 0 && len(items) < batch {
			return nil
		}
		if err := x.take(ctx, state.Created, items); err != nil {
			return err
		}
		items = items[:0]
		x.reads(index.Freshness{AsOf: i.At, Behind: behind, Sequence: i.Sequence}, true)
		return nil
	})
	if errors.Is(err, broker.ErrOtherStream) { // what was taken up of the other one may not be so
		err = errors.Join(err, x.begin(ctx))
	}
	return cmp.Or(context.Cause(ctx), err)
}

// item is a document as the index takes it up. One that cannot be read is passed over.
func (s Source) item(ctx context.Context, i broker.IndexedRun) Item {
	item := Item{Token: i.Run.Token, Sequence: i.Sequence, At: i.At}
	if len(i.Data) == 0 {
		return item
	}
	data, err := s.Open(i.Run, i.Revision, i.Data)
	if err == nil {
		var d index.Document
		if d, err = index.Decode(data); err == nil {
			item.Document = &d
			return item
		}
	}
	s.Logger.WarnContext(ctx, "a document of the index of runs cannot be read", "run", i.Run, "error", err)
	item.Token = "" // no run has it
	return item
}

// reads notes how far the index has come, and whether it follows what comes.
func (x *Index) reads(f index.Freshness, follows bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fresh, x.follows = f, follows
}

func (x *Index) freshness() index.Freshness {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.fresh
}

// missing reports whether somebody deleted the file.
func (x *Index) missing() bool {
	_, err := os.Stat(x.path)
	return errors.Is(err, os.ErrNotExist)
}

// watch keeps AsOf at the time now while the broker is there and nothing is left to read, until ctx ends. It gives up when the file is deleted.
func (x *Index) watch(ctx context.Context, conn *broker.Conn, giveUp func(error)) {
	ticker := time.NewTicker(looks)
	defer ticker.Stop()
	for {
		x.mu.Lock()
		if conn.Connected() && x.follows && x.fresh.Behind == 0 {
			x.fresh.AsOf = x.now().UnixMilli()
		}
		x.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if x.missing() {
			giveUp(errors.New("its file was deleted"))
			return
		}
	}
}
