package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/finding"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/cold"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/packed"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/sealed"
	"agentd/sdk"
)

// StoreOptions say where runs are kept and how they are sealed.
type StoreOptions struct {
	// RedisURL is empty where the connection's JetStream keeps the runs.
	RedisURL string
	// RedisTLS are the files for it.
	RedisTLS redisstore.TLS
	// RedisReplicas and RedisReplicaTimeout are Replicas and ReplicaTimeout of redisstore.Options.
	RedisReplicas       int
	RedisReplicaTimeout time.Duration
	// RedisCommand is that of redisstore.Options.
	RedisCommand func(name string)
	// Keys seal and open what is stored; nil seals nothing.
	Keys *sealed.Keyring
	// PlainEntries has entries stored as they are, for workers of versions that cannot read packed ones.
	PlainEntries bool
	// Logger may be nil.
	Logger *slog.Logger

	// allowLossy is that of redisstore.Options.
	allowLossy bool
}

// OpenedStore is a store of runs with what was found out about it.
type OpenedStore struct {
	packed.Store
	// Warnings say in what the store falls short.
	Warnings []finding.Finding
	kind     string
	close    func() error
}

// The kinds of stores.
const (
	kindJetStream = "jetstream"
	kindRedis     = "redis"
)

// Kind is the kind of store: "jetstream" or "redis".
func (s OpenedStore) Kind() string { return s.kind }

// Close releases what OpenStore opened.
func (s OpenedStore) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

func (o StoreOptions) opened(store runner.Store, kind string, findings []finding.Finding, closeStore func() error) OpenedStore {
	keys := o.Keys
	if keys == nil {
		keys = &sealed.Keyring{}
	}
	return OpenedStore{Store: packed.New(sealed.New(store, keys, o.Logger), o.PlainEntries), Warnings: findings, kind: kind, close: closeStore}
}

// OpenStore opens the store of runs for who looks at them, or acts on some. A Redis that may lose runs is refused, and so is a store that is not
// the one that runs are kept in: ErrOtherStore. It is not known to all users which one that is.
func OpenStore(ctx context.Context, conn *broker.Conn, o StoreOptions) (OpenedStore, error) {
	return openIf(ctx, conn, o, compared)
}

// settlingWait is how long a worker that starts tries to note its store.
const settlingWait = 5 * time.Second

// OpenOwnStore is OpenStore for workers: the first one has runs kept in its store from then on. Where that cannot be noted for now, because a
// server takes no writes, it is noted by the first pass that can.
func OpenOwnStore(ctx context.Context, conn *broker.Conn, o StoreOptions) (OpenedStore, error) {
	return openIf(ctx, conn, o, func(ctx context.Context, conn *broker.Conn, store OpenedStore) error {
		if err := compared(ctx, conn, store); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, settlingWait)
		defer cancel()
		err := settleIn(within, conn, store, store.Kind())
		if err == nil || errors.Is(err, ErrOtherStore) || ctx.Err() != nil {
			return err
		}
		if o.Logger != nil {
			o.Logger.Warn("which store runs are kept in could not be noted; a later pass does", "error", err)
		}
		return nil
	})
}

// OpenAnyStore is OpenStore of a store that runs may not be kept in.
func OpenAnyStore(ctx context.Context, conn *broker.Conn, o StoreOptions) (OpenedStore, error) {
	return openStore(ctx, conn, o)
}

// openIf opens a store, and closes it if it is not right.
func openIf(
	ctx context.Context, conn *broker.Conn, o StoreOptions, right func(context.Context, *broker.Conn, OpenedStore) error,
) (OpenedStore, error) {
	store, err := openStore(ctx, conn, o)
	if err != nil {
		return store, err
	}
	if err := right(ctx, conn, store); err != nil {
		return OpenedStore{Warnings: store.Warnings}, errors.Join(err, store.Close())
	}
	return store, nil
}

func openStore(ctx context.Context, conn *broker.Conn, o StoreOptions) (OpenedStore, error) {
	if o.RedisURL == "" {
		store, err := JournalStore(ctx, conn)
		return o.opened(store, kindJetStream, nil, nil), err
	}
	store, findings, err := redisstore.Open(ctx, o.RedisURL, redisstore.Options{
		Root: conn.Subjects().Root(), AllowLossy: o.allowLossy, TLS: o.RedisTLS, Command: o.RedisCommand,
		Replicas: o.RedisReplicas, ReplicaTimeout: o.RedisReplicaTimeout,
	})
	if err != nil {
		return OpenedStore{Warnings: findings}, err
	}
	archives := streams.Name(conn.Subjects(), streams.Cold)
	return o.opened(cold.New(store, conn.JetStream(), archives, conn.Subjects()), kindRedis, findings, store.Close), nil
}

// JournalStore is the store of runs in the connection's JetStream, as they are stored.
func JournalStore(ctx context.Context, conn *broker.Conn) (state.Store, error) {
	zones, err := conn.Zones(ctx, streams.Run)
	if err != nil {
		return nil, fmt.Errorf("look how journals are divided: %w", err)
	}
	names := make([]string, len(zones))
	for i, z := range zones {
		names[i] = streams.Name(conn.Subjects(), z)
	}
	return natsstore.Open(conn.JetStream(), names, conn.Subjects()), nil
}

// sampled is how many runs CheckStore reads.
const sampled = 100

// CheckStore reports what is wrong with the store, without refusing one that may lose runs.
func CheckStore(ctx context.Context, conn *broker.Conn, o StoreOptions) []finding.Finding {
	o.allowLossy = true
	store, err := openStore(ctx, conn, o)
	if err == nil {
		if another := fits(ctx, conn, store, store.Kind()); errors.Is(another, ErrOtherStore) {
			store.Warnings = append(store.Warnings, finding.Error("store_other", sdk.AsError(another).Message, ErrOtherStore.Error()))
		}
		var runs []runner.StoredRun
		if runs, _, err = store.Runs(ctx, "", sampled); err == nil {
			store.Warnings = append(store.Warnings, unopened(ctx, store, runs)...)
			err = store.Writable(ctx)
		}
		err = errors.Join(err, store.Close())
	}
	if err == nil || finding.Serious(store.Warnings) { // else the reason would be told twice
		return store.Warnings
	}
	remedy := "make room in it, or run: agentd provision"
	if o.RedisURL != "" {
		remedy = "start it, make room in it, or correct REDIS_URL"
	}
	return append(store.Warnings, finding.Error("store", "the store of runs cannot be used: "+storeProblem(err), remedy))
}

// unopened says why runs of a listing cannot be opened, once for each reason.
func unopened(ctx context.Context, store OpenedStore, runs []runner.StoredRun) []finding.Finding {
	var findings []finding.Finding
	count := map[sealed.Fault]int{}
	for _, r := range runs {
		if r.Last.Data != nil {
			continue
		}
		_, err := store.Head(ctx, r.Run)
		e, ok := errors.AsType[*sealed.Error](err)
		if !ok {
			continue // it changed meanwhile
		}
		if count[e.Fault]++; count[e.Fault] == 1 {
			remedy := "see: docs/encryption.md"
			if e.Fault == sealed.FaultAltered {
				remedy = "find out who writes to the store; the run is lost, all others are not touched"
			}
			findings = append(findings, finding.Error("sealed_"+string(e.Fault), e.Error(), remedy))
		}
	}
	for i := range findings {
		f := &findings[i]
		if n := count[sealed.Fault(f.Code[len("sealed_"):])]; n > 1 {
			f.Message += fmt.Sprintf(" (and %d more of %d runs that were read)", n-1, len(runs))
		}
	}
	return findings
}

func storeProblem(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Cause == nil && len(e.Faults) == 0 {
		return e.Message
	}
	return err.Error()
}
