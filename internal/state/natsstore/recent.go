package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// recentLooked is how many places of the stream are looked through for runs, from its end, before it is quicker to list them all.
const recentLooked = 20_000

// Recent implements state.Store: it reads the stream from its end. In a small one all runs are listed as quickly.
func (s *Store) Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error) {
	return recent(ctx, []*Store{s}, each)
}

// Recent implements state.Store: of all streams, that is read on whose runs were written last.
func (d divided) Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error) {
	return recent(ctx, d.parts, each)
}

func recent(
	ctx context.Context, parts []*Store, each func(some []runner.StoredRun, since int64) (more bool, err error),
) (enough bool, err error) {
	searches, subjects := make([]*search, len(parts)), uint64(0)
	for i, s := range parts {
		if searches[i], err = s.search(ctx); err != nil {
			return false, fmt.Errorf("look for recent runs: %w", err)
		}
		subjects += searches[i].subjects
	}
	if subjects <= parts[0].wholeList {
		return false, nil
	}
	latest := func() *search {
		return slices.MaxFunc(searches, func(a, b *search) int { return cmp.Compare(a.since, b.since) })
	}
	for looked := 0; looked < recentLooked; looked += batchEntries {
		at := latest()
		if at.ended() {
			return false, nil
		}
		runs, err := at.piece(ctx)
		if errors.Is(err, errGap) {
			return false, nil // a message was lost on its way
		}
		if err != nil {
			return false, fmt.Errorf("look for recent runs: %w", err)
		}
		if more, err := each(runs, max(latest().since, at.told)); err != nil || !more {
			return err == nil, err
		}
	}
	return false, nil
}

// search reads a stream from its end.
type search struct {
	*Store
	subjects   uint64
	first, end uint64
	seen       map[wire.RunKey]bool
	// since is the time, in Unix milliseconds, since when all that was written is read; the least there is when all is. told is what it was
	// before the stream was read to its beginning.
	since, told int64
}

// beginning is before all times.
const beginning = math.MinInt64

// search begins at the end of the stream.
func (s *Store) search(ctx context.Context) (*search, error) {
	var stream jetstream.Stream
	err := s.request(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, s.stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	at := stream.CachedInfo().State
	x := &search{Store: s, subjects: at.NumSubjects, first: at.FirstSeq, end: at.LastSeq, seen: map[wire.RunKey]bool{}, told: beginning}
	if x.since = at.LastTime.UnixMilli(); x.ended() {
		x.since = beginning
	}
	return x, nil
}

func (x *search) ended() bool { return x.end < x.first || x.end == 0 }

// piece are the runs in the next messages towards the beginning that were not in those before.
func (x *search) piece(ctx context.Context) ([]runner.StoredRun, error) {
	from := max(x.end, batchEntries) - batchEntries + 1
	found, since, err := x.written(ctx, from, x.end)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(key wire.RunKey) bool { return x.seen[key] })
	for _, key := range found {
		x.seen[key] = true
	}
	var runs []runner.StoredRun
	for some := range slices.Chunk(found, headsPerRequest) {
		heads, err := x.heads(ctx, some)
		if err != nil {
			return nil, err
		}
		runs = append(runs, heads...)
	}
	if since > 0 {
		x.since = since
	}
	if x.end = from - 1; x.ended() {
		x.since, x.told = beginning, x.since
	}
	return runs, nil
}

// written are the runs with messages from one sequence to another, the last written first, and since when those are there, in Unix
// milliseconds; 0 where there are none. errGap says that some are missing.
func (s *Store) written(ctx context.Context, from, end uint64) (keys []wire.RunKey, since int64, err error) {
	prefix := strings.TrimSuffix(s.subjects.All(wire.KindRun), ">")
	last := map[wire.RunKey]uint64{}
	for at := from; at <= end; {
		err := s.request(ctx, func(ctx context.Context) error {
			messages, err := jetstreamext.GetBatch(ctx, s.js, s.stream, batchEntries,
				jetstreamext.GetBatchSeq(at), jetstreamext.GetBatchSubject(prefix+">"), jetstreamext.GetBatchMaxBytes(batchBytes))
			if err != nil {
				return err
			}
			before := "0"
			done, err := s.collect(messages, func(m *jetstream.RawStreamMsg) error {
				if m.Header.Get(headerBefore) != before {
					return errGap
				}
				before, at = strconv.FormatUint(m.Sequence, 10), m.Sequence+1
				key, err := state.ParseCursor(strings.TrimPrefix(m.Subject, prefix))
				if err != nil || m.Sequence > end {
					return nil //nolint:nilerr // it belongs to no run
				}
				if since == 0 {
					since = m.Time.UnixMilli()
				}
				last[key] = m.Sequence
				return nil
			})
			switch {
			case done:
				at = end + 1
			case err == nil && before == "0":
				return errGap // nothing came, though there is more
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return slices.SortedFunc(maps.Keys(last), func(a, b wire.RunKey) int { return cmp.Compare(last[b], last[a]) }), since, nil
}
