package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// registryTimeout bounds one change of the registry. Who may not publish there gets no answer at all.
const registryTimeout = 5 * time.Second

// A record with this header takes the version back, as in any key-value bucket.
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
)

func registryStreamName(s wire.Subjects) string { return streams.OfBucket(streams.RegistryBucket(s)) }

// Registry is the registry of contract versions in the connection's JetStream: one key of a bucket for each version.
// Changes are a compare-and-set of one key, so they may be repeated.
type Registry struct{ conn *Conn }

// Registry is that of the connection's root.
func (c *Conn) Registry() Registry { return Registry{c} }

// Publication says what came of publishing a version.
type Publication string

// The outcomes.
const (
	// PublicationNew: it was not there before, or it was removed and is there again.
	PublicationNew Publication = "published"
	// PublicationSame: it is there already, with the same content.
	PublicationSame Publication = "unchanged"
	// PublicationRemoved: it was removed, and stays so.
	PublicationRemoved Publication = "removed"
)

func (r Registry) subject(key string) string {
	return "$KV." + streams.RegistryBucket(r.conn.subjects) + "." + key
}

// Publish publishes one version of a contract, unless it is there, or was removed.
//
// The error is CodeConflict when the version has other content, and CodeUnavailable when the registry does not exist, or
// may not be written.
func (r Registry) Publish(ctx context.Context, contract sdk.Contract, version string) (Publication, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	outcome, _, err := r.publish(ctx, contract, version)
	return outcome, err
}

// Restore is Publish, also of a version that was removed: the caller has compared its content with what it was.
func (r Registry) Restore(ctx context.Context, contract sdk.Contract, version string) (Publication, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	outcome, removal, err := r.publish(ctx, contract, version)
	if err != nil || outcome != PublicationRemoved {
		return outcome, err
	}
	m, err := r.record(contract, version)
	if err != nil {
		return "", err
	}
	if err := r.write(ctx, m, removal); err != nil {
		return "", r.explain(err)
	}
	return PublicationNew, nil
}

// publish is Publish, with the sequence of the removal where the version was removed.
func (r Registry) publish(ctx context.Context, contract sdk.Contract, version string) (outcome Publication, removal uint64, err error) {
	m, err := r.record(contract, version)
	if err != nil {
		return "", 0, err
	}
	switch err := r.write(ctx, m, 0); {
	case err == nil:
		return PublicationNew, 0, nil
	case !wrongSequence(err):
		return "", 0, r.explain(err)
	}
	key := contracts.RegistryKey(contract.Type, version)
	stored, removed, err := r.last(ctx, key)
	switch {
	case err != nil:
		return "", 0, err
	case removed:
		return PublicationRemoved, stored.Sequence, nil
	}
	published, err := contracts.DecodeVersion(key, stored.Data)
	if err != nil {
		return "", 0, err
	}
	if !published.Same(contract) {
		return "", 0, contractlint.Conflict(published, contract)
	}
	return PublicationSame, 0, nil
}

// record is the message that publishes a version.
func (r Registry) record(contract sdk.Contract, version string) (*nats.Msg, error) {
	record, err := contracts.EncodeVersion(contract, version)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: r.subject(contracts.RegistryKey(contract.Type, version)), Data: record}, nil
}

// Remove takes a version back, and reports whether it was there.
func (r Registry) Remove(ctx context.Context, contractType, version string) (bool, error) {
	key := contracts.RegistryKey(contractType, version)
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	stored, removed, err := r.last(ctx, key)
	if removed || errors.Is(err, ErrNotStored) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m := &nats.Msg{Subject: r.subject(key), Header: nats.Header{headerOperation: {operationDelete}}}
	if err := r.write(ctx, m, stored.Sequence); err != nil {
		return false, r.explain(err)
	}
	return true, nil
}

// write stores a record if last still is the sequence of the key's last one; 0 is none.
func (r Registry) write(ctx context.Context, m *nats.Msg, last uint64) error {
	_, err := r.conn.js.PublishMsg(ctx, m, jetstream.WithExpectStream(registryStreamName(r.conn.subjects)),
		jetstream.WithExpectLastSequencePerSubject(last))
	return err
}

// last reads a key's last record, and whether that is its removal.
func (r Registry) last(ctx context.Context, key string) (m Stored, removed bool, err error) {
	m, err = r.conn.last(ctx, registryStreamName(r.conn.subjects), r.subject(key))
	return m, m.Header(headerOperation) != "", err
}

func wrongSequence(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// explain says what an error of the registry means to who changes or reads it.
func (r Registry) explain(err error) error {
	bucket := streams.RegistryBucket(r.conn.subjects)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrNoResponders):
		return sdk.Errorf(sdk.CodeUnavailable, "the broker has no registry of contracts (bucket %s); %s", bucket, streams.Remedy).WithCause(err)
	case errors.Is(err, nats.ErrMaxPayload):
		return sdk.Errorf(sdk.CodeTooLarge, "the contract is larger than the broker takes (%d bytes)", r.conn.nc.MaxPayload())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return sdk.Errorf(sdk.CodeUnavailable, "the registry of contracts (bucket %s) did not answer; may this user publish to %s?",
			bucket, r.subject("<type>.>")).WithCause(err)
	case wrongSequence(err):
		return sdk.Errorf(sdk.CodeUnavailable, "somebody else changed the same version of the registry; try again").WithCause(err)
	}
	return fmt.Errorf("registry of contracts (bucket %s): %w", bucket, err)
}

// Read returns the state of the registry.
func (r Registry) Read(ctx context.Context) (*contracts.Registry, error) {
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	var state *contracts.Registry
	err := r.follow(ctx, func(now *contracts.Registry) bool {
		state = now
		return false
	})
	return state, r.explain(err)
}

// Follow calls handle with the state of the registry, and again whenever it has changed, until ctx ends. Changes that come
// together are one. It survives restarts of the server, and begins anew when the registry was made anew or set back.
func (r Registry) Follow(ctx context.Context, handle func(*contracts.Registry)) error {
	for {
		err := r.follow(ctx, func(now *contracts.Registry) bool {
			handle(now)
			return true
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, ErrOtherStream):
			return r.explain(err)
		}
		r.conn.log.Warn("the registry of contracts is read again", "error", err)
	}
}

// follow folds the records of the bucket, and calls handle whenever it has read all there are, until that returns false.
func (r Registry) follow(ctx context.Context, handle func(*contracts.Registry) bool) error {
	var state contracts.Registry
	prefix := r.subject("")
	return r.conn.readOn(ctx, registryStreamName(r.conn.subjects), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy},
		func(left uint64) bool { return left > 0 || handle(state.Clone()) },
		func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			key := strings.TrimPrefix(m.Subject(), prefix)
			if m.Headers().Get(headerOperation) != "" {
				state.Remove(key)
			} else if err := state.Apply(key, m.Data()); err != nil {
				r.conn.log.Warn("a record of the registry is passed over", "error", err)
			}
			return meta.NumPending > 0 || handle(state.Clone())
		})
}
