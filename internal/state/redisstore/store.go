// Package redisstore keeps runs in Redis or Valkey: a list of entries and a small head a run, appended to by one script
// that compares the head's etag. All keys of a partition are in one slot of a cluster:
//
//	agentd:{p017}:h:<run>           hash: number and etag of the last entry, and what is known of the run's archive
//	agentd:{p017}:l:<run>           list of entries, each "<number> <etag>\n" and its bytes
//	agentd:{p017}:r                 sorted set of the partition's runs, by name
//	agentd:{p017}:b:<run>:<digest>  blob
//	agentd:{p017}:d:<run>           set of the digests of the run's blobs
//	agentd:{p017}:probe             what is written to see whether replicas confirm, where they are waited for
//	agentd:spec:<digest>            agent spec
//	agentd:mark:<name>              mark by which a store is known that was set back; in a cluster agentd:{p017}:mark:<name>, of each partition
//
// No key of a live run expires.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Options of a store.
type Options struct {
	// Root is the first part of every key; "" is sdk.DefaultRoot.
	Root string
	// Replicas is how many replicas must have an entry before Append returns; 0 is none. They have it in their
	// append-only files where the server knows WAITAOF (7.2), else in memory.
	Replicas int
	// ReplicaTimeout is how long to wait for them before the outcome is ambiguous, and as long again for their files; 0 is
	// sdk.DefaultReplicaTimeout, and the least a millisecond.
	ReplicaTimeout time.Duration
	// AllowLossy opens a server that may lose confirmed entries in a crash. Open then returns that as findings.
	AllowLossy bool
	TLS        TLS
	// Command, unless nil, is told of each command that is sent, such as "evalsha": for who counts what runs cost. Concurrently.
	Command func(name string)
}

// Store implements runner.Store. Safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	o      Options
	// waitAOF says that replicas are waited for by WAITAOF, which the server must know.
	waitAOF bool
	// gatherer sends what is committed, and reads of single runs.
	gatherer gatherer
}

var _ state.Store = (*Store)(nil)

// New returns a store on a client, which Close closes. It checks nothing: see Open.
func New(client redis.UniversalClient, o Options) *Store {
	if o.Root == "" {
		o.Root = wire.DefaultRoot
	}
	o.ReplicaTimeout = max(cmp.Or(o.ReplicaTimeout, sdk.DefaultReplicaTimeout), time.Millisecond) // WAIT takes 0 for ever
	s := &Store{client: client, o: o}
	if client != nil {
		s.count()
	}
	return s
}

// Close closes the client.
func (s *Store) Close() error { return s.client.Close() }

func (s *Store) partition(p string) string { return s.o.Root + ":{p" + p + "}:" }

func (s *Store) headKey(run wire.RunKey) string { return s.partition(run.Partition) + "h:" + run.Token }

func (s *Store) listKey(run wire.RunKey) string { return s.partition(run.Partition) + "l:" + run.Token }
func (s *Store) indexKey(p string) string       { return s.partition(p) + "r" }
func (s *Store) specKey(digest string) string   { return s.o.Root + ":spec:" + digest }
func (s *Store) blobKey(run wire.RunKey, digest string) string {
	return s.partition(run.Partition) + "b:" + run.Token + ":" + digest
}

func (s *Store) digestsKey(run wire.RunKey) string {
	return s.partition(run.Partition) + "d:" + run.Token
}

// readError adds ctx's error, which the client may report as a timeout of its own.
func readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return runner.ErrNotFound
	case damaged(err):
		return fmt.Errorf("%w: %w", runner.ErrCorrupt, err)
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// writeError tells a definite no from an unknown outcome.
func writeError(ctx context.Context, err error) error {
	switch {
	case redis.HasErrorPrefix(err, thinnedJournal):
		return fmt.Errorf("%w: %w", ErrThinned, err)
	case err != nil && damaged(err):
		return fmt.Errorf("%w: %w", runner.ErrCorrupt, err)
	case err == nil || permanent(err):
		return err
	}
	return fmt.Errorf("%w: %w", runner.ErrAmbiguous, readError(ctx, err))
}

// damaged reports whether the server refused a request because the run's keys do not hold what was written there.
func damaged(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, damagedJournal)
}

// passing are the refusals of a server that will answer otherwise by and by: it starts, fails over, or is full.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS", "OOM", "MISCONF",
	"BUSY", "UNBLOCKED", "ERR max number of clients",
}

// permanent reports whether the server refused the request itself.
func permanent(err error) bool {
	refusal, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	for _, prefix := range passing {
		if strings.HasPrefix(refusal.Error(), prefix) {
			return false
		}
	}
	return true
}

func encode(r runner.Record) []byte {
	return append([]byte(strconv.FormatUint(r.Rev, 10)+" "+r.Etag+"\n"), r.Data...)
}

func decode(element string) (runner.Record, error) {
	head, data, framed := strings.Cut(element, "\n")
	number, etag, spaced := strings.Cut(head, " ")
	rev, err := strconv.ParseUint(number, 10, 64)
	if !framed || !spaced || err != nil {
		return runner.Record{}, fmt.Errorf("%w: an element of %d bytes is not an entry", runner.ErrCorrupt, len(element))
	}
	return runner.Record{Version: runner.Version{Rev: rev, Etag: etag, Position: rev}, Data: []byte(data)}, nil
}

// Head implements runner.Store. The client reads from masters only.
func (s *Store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	last := redis.NewStringCmd(ctx, "lindex", s.listKey(run), -1)
	if err := s.ask(ctx, last); err != nil {
		return runner.Record{}, fmt.Errorf("read head of run %s: %w", run, readError(ctx, err))
	}
	r, err := decode(last.Val())
	if err != nil {
		return runner.Record{}, fmt.Errorf("read head of run %s: %w", run, err)
	}
	return r, nil
}

// batchEntries bounds how long one read keeps the server from others.
const batchEntries = 256

// Entries implements runner.Store. Most journals fit into one read.
func (s *Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	var records []runner.Record
	for next := after.Rev; ; {
		batch, err := s.read(ctx, run, next, batchEntries)
		if err != nil {
			return nil, err
		}
		records = append(records, batch...)
		if next += uint64(len(batch)); len(batch) < batchEntries {
			return records, nil
		}
	}
}

// Part implements runner.Store.
func (s *Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	var records []runner.Record
	for len(records) < most {
		wanted := min(most-len(records), batchEntries)
		batch, err := s.read(ctx, run, max(from, 1)-1+uint64(len(records)), wanted)
		if err != nil {
			return nil, err
		}
		if records = append(records, batch...); len(batch) < wanted {
			break
		}
	}
	return records, nil
}

// rereads is how often a read begins anew because the journal was thinned or brought back under it.
const rereads = 3

// read reads the entries after a revision, most of them at most. Only an answer that a whole journal does not give asks what became of it.
func (s *Store) read(ctx context.Context, run wire.RunKey, after uint64, most int) ([]runner.Record, error) {
	for tries := rereads; ; tries-- {
		records, err := s.readOnce(ctx, run, after, most)
		moved := err != nil && errors.Is(err, runner.ErrCorrupt) || err == nil && len(records) == 0 && after > 0
		if !moved || most <= 0 {
			return records, err
		}
		h, headErr := s.Archived(ctx, run)
		switch {
		case headErr != nil:
			return nil, errors.Join(err, headErr)
		case err == nil && h.Rev <= after:
			return nil, nil
		case h.Thin:
			return nil, fmt.Errorf("read entries of run %s: %w", run, ErrThinned)
		case tries == 1 && err == nil:
			return nil, fmt.Errorf("read entries of run %s: %w: entry %d is missing, of %d", run, runner.ErrCorrupt, after+1, h.Rev)
		case tries == 1:
			return nil, err
		}
	}
}

func (s *Store) readOnce(ctx context.Context, run wire.RunKey, after uint64, most int) ([]runner.Record, error) {
	part := redis.NewStringSliceCmd(ctx, "lrange", s.listKey(run), int64(after), int64(after)+int64(most)-1)
	if err := s.ask(ctx, part); err != nil {
		return nil, fmt.Errorf("read entries of run %s: %w", run, readError(ctx, err))
	}
	records := make([]runner.Record, 0, len(part.Val()))
	for _, element := range part.Val() {
		r, err := decode(element)
		if err == nil && r.Rev != after+1 {
			err = fmt.Errorf("%w: entry %d is in place of entry %d", runner.ErrCorrupt, r.Rev, after+1)
		}
		if err != nil {
			return nil, fmt.Errorf("read entries of run %s: %w", run, err)
		}
		records = append(records, r)
		after++
	}
	return records, nil
}

// Append implements runner.Store.
func (s *Store) Append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	err := ctx.Err()
	if err == nil {
		err = state.CheckRecord(base, next)
	}
	if err == nil {
		err = s.commit(ctx, appendScript, []string{s.headKey(run), s.listKey(run), s.indexKey(run.Partition)},
			base.Etag, strconv.FormatUint(next.Rev, 10), next.Etag, encode(next), run.Token)
	}
	if err != nil {
		return runner.Version{}, fmt.Errorf("append to run %s: %w", run, err)
	}
	return runner.Version{Rev: next.Rev, Etag: next.Etag, Position: next.Rev}, nil
}

// Barrier implements runner.Store. A synced server answers a read only after what it shows is synced; replicas are
// waited for.
func (s *Store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	err := ctx.Err()
	if err == nil && s.o.Replicas > 0 {
		err = s.commit(ctx, barrierScript, []string{s.headKey(run)}, v.Etag)
	} else if err == nil {
		var etag string
		etag, err = s.client.HGet(ctx, s.headKey(run), "etag").Result()
		switch {
		case errors.Is(err, redis.Nil), err == nil && etag != v.Etag:
			err = runner.ErrConflict
		default:
			err = writeError(ctx, err)
		}
	}
	if err != nil {
		return fmt.Errorf("barrier of run %s: %w", run, err)
	}
	return nil
}
