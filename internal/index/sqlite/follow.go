package sqlite

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

const (
	// batch bounds how many documents are taken up in one transaction.
	batch = 1000
	// pause is the shortest time between two transactions that are not full: one costs more than what is taken up in it.
	pause = 100 * time.Millisecond
	// longestAway is after how long an index begins anew: what was withdrawn meanwhile may not be said any more.
	longestAway = broker.WithdrawnFor - 24*time.Hour
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
		wait := pauses.Nth(failures)
		s.Logger.WarnContext(ctx, "the index of runs is not followed; trying again", "in", wait, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
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
	err = x.tail(ctx, s, state, p)
	if errors.Is(err, broker.ErrOtherStream) { // what was taken up of the other one may not be so
		err = errors.Join(err, x.begin(ctx))
	}
	return err
}

// tail takes up what comes after a place in the stream, until ctx ends or it cannot.
func (x *Index) tail(ctx context.Context, s Source, state broker.IndexState, p place) error {
	x.reads(index.Freshness{AsOf: p.at, Behind: state.Last - p.sequence, Sequence: p.sequence})
	ctx, cancel := context.WithCancelCause(ctx)
	arriving := make(chan arrival, batch)
	var running sync.WaitGroup
	running.Go(func() { x.watch(ctx, s.Conn, cancel) })
	running.Go(func() {
		if err := x.takeUp(ctx, state.Created, arriving); err != nil {
			cancel(err)
		}
	})
	defer func() {
		cancel(nil)
		running.Wait()
		x.rests()
	}()
	err := s.Conn.TailIndex(ctx, p.sequence+1, func(i broker.IndexedRun, behind uint64) error {
		select {
		case arriving <- arrival{s.item(ctx, i), behind}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return cmp.Or(context.Cause(ctx), err)
}

// arrival is an item, and how many come after it that are in the stream already.
type arrival struct {
	Item
	behind uint64
}

// takeUp takes up what arrives until ctx ends: what is there at once, and what comes soon after that together.
func (x *Index) takeUp(ctx context.Context, stream int64, arriving <-chan arrival) error {
	next := time.NewTimer(0)
	defer next.Stop()
	var items []Item
	for {
		var last arrival
		select {
		case <-ctx.Done():
			return nil
		case last = <-arriving:
			items = append(items[:0], last.Item)
		}
		for due := false; len(items) < batch && (!due || len(arriving) > 0); {
			select {
			case <-ctx.Done():
				return nil
			case last = <-arriving:
				items = append(items, last.Item)
			case <-next.C:
				due = true
			}
		}
		if err := x.take(ctx, stream, items); err != nil {
			return err
		}
		x.reads(index.Freshness{AsOf: last.At, Behind: last.behind, Sequence: last.Sequence})
		next.Reset(pause)
	}
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

// reads notes how far the index has come, and that it follows what comes.
func (x *Index) reads(f index.Freshness) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fresh, x.follows = f, true
}

// rests notes that it follows no more.
func (x *Index) rests() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.follows = false
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
