package natsstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

const (
	partitions = 256
	// allPartitions stands for all of them in a subject.
	allPartitions = "*"
	// headsPerRequest bounds what one request reads: at most 32 MiB, half of what the client lets be pending.
	headsPerRequest = 64
)

// Runs implements runner.Store. The keys come from the stream's index of subjects, which holds no contents: all at once
// in a small stream, else one partition (1 run in 256) after the other, each once for all of its pages.
func (s *Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	size := state.PageSize(limit)
	left, err := s.keys(ctx, cursor, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	keys, next := left.keys, ""
	if len(keys) > size {
		next = keys[size-1].String()
		left.keys = keys[size:]
		keys = keys[:size]
	}
	var runs []runner.StoredRun
	for some := range slices.Chunk(keys, headsPerRequest) {
		heads, err := s.heads(ctx, some)
		if err != nil {
			return nil, "", fmt.Errorf("list runs: %w", err)
		}
		runs = append(runs, heads...)
	}
	if next != "" {
		s.rests.keep(next, left)
	}
	return runs, next, nil
}

// keys returns the runs after cursor, at least so many if there are so many.
func (s *Store) keys(ctx context.Context, cursor string, least int) (rest, error) {
	after, err := state.ParseCursor(cursor)
	if err != nil {
		return rest{}, err
	}
	left, ok := s.rests.take(cursor)
	if ok && (len(left.keys) >= least || left.through == allPartitions) {
		return left, nil
	}
	if !ok {
		left = rest{listed: time.Now()}
	}
	var stream jetstream.Stream
	err = s.request(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, s.stream)
		return err
	})
	if err != nil {
		return rest{}, err
	}
	filters := []string{allPartitions}
	if left.through != "" || stream.CachedInfo().State.NumSubjects > s.wholeList {
		filters = filters[:0]
		for p := s.from; p < s.to; p++ {
			if partition := fmt.Sprintf("%03d", p); partition >= after.Partition && partition > left.through {
				filters = append(filters, partition)
			}
		}
	}
	for _, partition := range filters {
		more, err := s.partition(ctx, stream, partition, cursor)
		if err != nil {
			return rest{}, err
		}
		left.keys, left.through = append(left.keys, more...), partition
		if len(left.keys) >= least {
			break
		}
	}
	return left, nil
}

// partition lists the runs of a partition (allPartitions: of all) after cursor, in order.
func (s *Store) partition(ctx context.Context, stream jetstream.Stream, partition, cursor string) ([]wire.RunKey, error) {
	var info *jetstream.StreamInfo
	err := s.request(ctx, func(ctx context.Context) (err error) {
		filter := s.subjects.Journal(wire.RunKey{Partition: partition, Token: "*"})
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		return err
	})
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimSuffix(s.subjects.All(wire.KindRun), ">")
	var keys []wire.RunKey
	for _, subject := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		name := strings.TrimPrefix(subject, prefix)
		key, err := state.ParseCursor(name)
		if err == nil && name > cursor {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// heads reads the last records of runs in one request. A listing need not be linearizable. Runs that are gone by now are
// left out; one whose last message is not an entry is listed with revision 0.
func (s *Store) heads(ctx context.Context, keys []wire.RunKey) ([]runner.StoredRun, error) {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = s.subjects.Journal(key)
	}
	found := map[string]runner.Record{}
	err := s.request(ctx, func(ctx context.Context) error {
		messages, err := jetstreamext.GetLastMsgsFor(ctx, s.js, s.stream, subjects)
		if err != nil {
			return err
		}
		_, err = s.collect(messages, func(m *jetstream.RawStreamMsg) error {
			if foreign(m) {
				return nil // Head passes it over
			}
			r, err := record(m)
			if errors.Is(err, runner.ErrCorrupt) {
				r, err = runner.Record{Version: runner.Version{Position: m.Sequence}, Data: m.Data}, nil
			}
			found[m.Subject] = r
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	runs := make([]runner.StoredRun, 0, len(keys))
	for i, key := range keys {
		last, ok := found[subjects[i]]
		if !ok { // gone, new on another replica, or lost on the way: the leader knows
			last, err = s.Head(ctx, key)
			if errors.Is(err, runner.ErrNotFound) || errors.Is(err, runner.ErrCorrupt) {
				continue // the next listing shows what is corrupt
			}
			if err != nil {
				return nil, err
			}
		}
		runs = append(runs, runner.StoredRun{Run: key, Last: last})
	}
	return runs, nil
}
