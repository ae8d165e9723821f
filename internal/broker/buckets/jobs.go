// Package buckets has what is kept in key-value buckets: grants wider than a run, and what operators do with many runs.
package buckets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/days"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// jobsBucket is the key-value bucket with what operators do with many runs.
func jobsBucket(s wire.Subjects) string { return strings.ToUpper(s.Root()) + "_BULK" }

// jobsKept is how long a job is kept.
const jobsKept = 90 * days.Day

// Jobs keeps what operators do with many runs in the connection's JetStream.
type Jobs struct{ kv jetstream.KeyValue }

// OpenJobs opens the bucket, and makes it where it is not there yet.
func OpenJobs(ctx context.Context, c *broker.Conn) (Jobs, error) {
	name := jobsBucket(c.Subjects())
	if err := provision.Bucket(ctx, c, name, jobsKept); err != nil {
		return Jobs{}, err
	}
	kv, err := c.JetStream().KeyValue(ctx, name)
	if err != nil {
		return Jobs{}, fmt.Errorf("open the bucket of bulk jobs: %w", err)
	}
	return Jobs{kv}, nil
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
