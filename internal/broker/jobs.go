package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"

	"github.com/nats-io/nats.go/jetstream"
)

// JobsBucket is the key-value bucket with what operators do with many runs.
func JobsBucket(s wire.Subjects) string { return strings.ToUpper(s.Root()) + "_BULK" }

// jobsKept is how long a job is kept.
const jobsKept = 90 * day

// Jobs keeps what operators do with many runs in the connection's JetStream.
type Jobs struct {
	conn *Conn
	kv   jetstream.KeyValue
}

// Jobs opens the bucket, and makes it where it is not there yet.
func (c *Conn) Jobs(ctx context.Context) (Jobs, error) {
	starts, err := c.look(ctx, StreamName(c.subjects, ZoneStart))
	if err != nil {
		return Jobs{}, fmt.Errorf("look at the stream of init events: %w", err)
	}
	want := bucketStream(JobsBucket(c.subjects), 1, starts.CachedInfo().Config.Replicas)
	want.MaxAge = jobsKept
	if err := c.makeStream(ctx, want); err != nil {
		return Jobs{}, fmt.Errorf("make the bucket of bulk jobs: %w", err)
	}
	kv, err := c.js.KeyValue(ctx, JobsBucket(c.subjects))
	if err != nil {
		return Jobs{}, fmt.Errorf("open the bucket of bulk jobs: %w", err)
	}
	return Jobs{c, kv}, nil
}

// Put keeps data under a key if that is at a revision still (0: if it has nothing), and returns its new one. The error is
// sdk.CodeConflict when it is not.
func (j Jobs) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	next, err := j.kv.Update(ctx, key, data, revision)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, sdk.Errorf(sdk.CodeConflict, "%s was changed by another program", key).WithCause(err)
	}
	if err != nil {
		return 0, fmt.Errorf("keep %s: %w", key, err)
	}
	return next, nil
}

// Get is what is kept under a key, with its revision; nil and 0 is nothing.
func (j Jobs) Get(ctx context.Context, key string) (data []byte, revision uint64, err error) {
	entry, err := j.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", key, err)
	}
	return entry.Value(), entry.Revision(), nil
}

// Under are the keys of one token, sorted.
func (j Jobs) Under(ctx context.Context) ([]string, error) {
	listed, err := j.kv.ListKeysFiltered(ctx, "*")
	if err != nil {
		return nil, fmt.Errorf("list bulk jobs: %w", err)
	}
	var keys []string
	for key := range listed.Keys() {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// Controlled is the id of the last control message of that verb to a run; empty is that there was none, or that it is too long ago.
func (c *Conn) Controlled(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey) (string, error) {
	last, err := c.LastDelivery(ctx, ZoneIn, c.subjects.Control(verb, agent, run))
	if err != nil || last == nil {
		return "", err
	}
	event, err := wire.DecodeEvent(last.Headers(), last.Data())
	if err != nil {
		return "", nil //nolint:nilerr // whoever wrote it, it is not one of ours
	}
	return event.ID, nil
}
