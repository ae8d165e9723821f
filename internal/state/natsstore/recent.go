package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk/wire"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/runner"
	"agentd/internal/state"
)

// recentLooked is how many places of the stream are looked through for runs, from its end, before it is quicker to list them all.
const recentLooked = 20_000

// Recent implements state.Store: it reads the stream from its end. In a small one all runs are listed as quickly.
func (s *Store) Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error) {
	var stream jetstream.Stream
	err = s.request(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, s.stream)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for recent runs: %w", err)
	}
	at := stream.CachedInfo().State
	if at.NumSubjects <= s.wholeList {
		return false, nil
	}
	seen, bound := map[wire.RunKey]bool{}, at.LastTime.UnixMilli()
	for end, looked := at.LastSeq, uint64(0); end >= at.FirstSeq && end > 0 && looked < recentLooked; looked += batchEntries {
		from := max(end, batchEntries) - batchEntries + 1
		found, since, err := s.written(ctx, from, end)
		if errors.Is(err, errGap) {
			return false, nil // a message was lost on its way
		}
		if err != nil {
			return false, fmt.Errorf("look for recent runs: %w", err)
		}
		found = slices.DeleteFunc(found, func(key wire.RunKey) bool { return seen[key] })
		for _, key := range found {
			seen[key] = true
		}
		var runs []runner.StoredRun
		for some := range slices.Chunk(found, headsPerRequest) {
			heads, err := s.heads(ctx, some)
			if err != nil {
				return false, fmt.Errorf("look for recent runs: %w", err)
			}
			runs = append(runs, heads...)
		}
		if since > 0 {
			bound = since
		}
		if more, err := each(runs, bound); err != nil || !more {
			return err == nil, err
		}
		end = from - 1
	}
	return false, nil
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
