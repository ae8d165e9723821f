package reconcile_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// settled waits until workers have acked all that is on the broker.
func (r *rig) settled() {
	r.t.Helper()
	r.await("all messages are acked", func() bool {
		for _, a := range r.agents {
			for _, ref := range r.consumers(a.Spec.Name) {
				consumer, err := r.conn.JetStream().Consumer(r.context(), streams.Name(r.conn.Subjects(), ref.Zone), ref.Name)
				r.check("look at consumer", err)
				if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
					return false
				}
			}
		}
		return true
	})
}

// consumers are those of an agent, in the order of streams.AgentConsumers.
func (r *rig) consumers(agent string) []streams.ConsumerRef {
	r.t.Helper()
	refs, err := r.conn.Divided(r.context(), streams.AgentConsumers(agent)...)
	r.check("look how streams are divided", err)
	return refs
}

// stream is the one that has a subject.
func (r *rig) stream(subject string) jetstream.Stream {
	r.t.Helper()
	layout, err := r.conn.Layout(r.context())
	r.check("look how streams are divided", err)
	stream, err := r.conn.JetStream().Stream(r.context(), streams.Name(r.conn.Subjects(), layout.ZoneOf(subject)))
	r.check("open stream", err)
	return stream
}

// messages are the subjects of a kind with how many messages each has.
func (r *rig) messages(z streams.Zone, kind wire.Kind) map[string]int {
	r.t.Helper()
	count := map[string]int{}
	r.check("scan", r.conn.Deliveries(r.context(), z, []string{r.conn.Subjects().All(kind)}, func(d broker.Delivery) bool {
		count[d.Subject()]++
		return true
	}))
	return count
}

// rollBack removes all but the first entries of a run from the store, as a failover to an older state does.
func (r *rig) rollBack(b begun, keep int) {
	r.t.Helper()
	entries, err := r.store.Entries(r.context(), b.key, runner.Version{})
	r.check("read journal", err)
	if r.redis == nil {
		stream := r.stream(r.conn.Subjects().Journal(b.key))
		for _, e := range entries[keep:] {
			r.check("delete entry", stream.DeleteMsg(r.context(), e.Position))
		}
		return
	}
	c := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	partition := fmt.Sprintf("agentd:{p%s}:", b.key.Partition)
	last := entries[keep-1]
	r.check("cut the list", c.LTrim(r.context(), partition+"l:"+b.key.Token, 0, int64(keep-1)).Err())
	r.check("set the head back", c.HSet(r.context(), partition+"h:"+b.key.Token, "rev", last.Rev, "etag", last.Etag).Err())
	r.check("close", c.Close())
}

// delete removes the last message on a subject.
func (r *rig) delete(subject string) {
	r.t.Helper()
	stream := r.stream(subject)
	m, err := stream.GetLastMsgForSubject(r.context(), subject)
	r.check("read "+subject, err)
	r.check("delete "+subject, stream.DeleteMsg(r.context(), m.Sequence))
}

// streams are the sequences of the last messages that all streams have, without those by which workers see that they can write.
func (r *rig) streams() map[streams.Zone]uint64 {
	r.t.Helper()
	last := map[streams.Zone]uint64{}
	var zones []streams.Zone
	for _, whole := range []streams.Zone{
		streams.Start, streams.In, streams.Out, streams.Done, streams.Timer, streams.Run, streams.DLQ,
	} {
		parts, err := r.conn.Zones(r.context(), whole)
		r.check("look how streams are divided", err)
		zones = append(zones, parts...)
	}
	for _, z := range zones {
		stream, err := r.conn.JetStream().Stream(r.context(), streams.Name(r.conn.Subjects(), z))
		r.check("look at stream", err)
		for last[z] = stream.CachedInfo().State.LastSeq; last[z] > 0; last[z]-- {
			m, err := stream.GetMsg(r.context(), last[z])
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			r.check("read stream", err)
			if !strings.Contains(m.Subject, "."+streams.LeaseToken+".") && string(m.Data) != "probe" {
				break
			}
		}
	}
	return last
}

// forget makes a consumer anew, on all streams of its zone, which takes all that there is for read.
func (r *rig) forget(ref streams.ConsumerRef) {
	r.t.Helper()
	r.anew(ref, func(cfg *jetstream.ConsumerConfig, last uint64) {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last+1
	})
}

// rewind makes a consumer anew, on all streams of its zone, which reads everything again.
func (r *rig) rewind(ref streams.ConsumerRef) {
	r.t.Helper()
	r.anew(ref, func(*jetstream.ConsumerConfig, uint64) {})
}

func (r *rig) anew(ref streams.ConsumerRef, change func(cfg *jetstream.ConsumerConfig, last uint64)) {
	r.t.Helper()
	for _, part := range r.divided(ref) {
		stream, err := r.conn.JetStream().Stream(r.context(), streams.Name(r.conn.Subjects(), part.Zone))
		r.check("open stream", err)
		consumer, err := stream.Consumer(r.context(), part.Name)
		r.check("open consumer", err)
		cfg := consumer.CachedInfo().Config
		r.check("delete consumer", stream.DeleteConsumer(r.context(), part.Name))
		change(&cfg, stream.CachedInfo().State.LastSeq)
		_, err = stream.CreateConsumer(r.context(), cfg)
		r.check("create consumer", err)
	}
}

// divided are a consumer's on all streams of its zone.
func (r *rig) divided(refs ...streams.ConsumerRef) []streams.ConsumerRef {
	r.t.Helper()
	parts, err := r.conn.Divided(r.context(), refs...)
	r.check("look how streams are divided", err)
	return parts
}
