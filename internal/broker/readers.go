package broker

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
)

// Reader is a durable consumer whose readers acknowledge what they read, and how far they have got.
type Reader struct {
	Name string
	// Filters are the subjects that it reads; none is all.
	Filters []string
	Consumed
}

// OfAgent reports whether it is one of the consumers of an agent's workers.
func (r *Reader) OfAgent() bool { return streams.OfAgent(r.Name) }

// Reads reports whether messages on a subject are among those that it reads.
func (r *Reader) Reads(subject string) bool {
	for _, f := range r.Filters {
		if Under(subject, f) {
			return true
		}
	}
	return len(r.Filters) == 0
}

// Under reports whether a subject matches a filter.
func Under(subject, filter string) bool {
	tokens := strings.Split(subject, ".")
	wanted := strings.Split(filter, ".")
	for i, w := range wanted {
		switch {
		case w == ">":
			return len(tokens) > i
		case i >= len(tokens) || w != "*" && w != tokens[i]:
			return false
		}
	}
	return len(tokens) == len(wanted)
}

// Readers are the durable consumers of a zone, those of others than agentd included.
func (c *Conn) Readers(ctx context.Context, z streams.Zone) ([]Reader, error) {
	s, err := c.stream(ctx, z)
	if err != nil {
		return nil, err
	}
	bounded, explain, stop := c.refusals.until(ctx, "$JS.API.CONSUMER.LIST."+streams.Name(c.subjects, z))
	defer stop()
	var readers []Reader
	list := s.ListConsumers(bounded)
	for info := range list.Info() {
		if info.Config.Durable == "" || info.Config.AckPolicy == jetstream.AckNonePolicy {
			continue
		}
		r := Reader{Name: info.Name, Filters: info.Config.FilterSubjects, Consumed: consumedOf(info)}
		if f := info.Config.FilterSubject; f != "" {
			r.Filters = []string{f}
		}
		readers = append(readers, r)
	}
	if err := explain(list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", streams.Name(c.subjects, z), err)
	}
	return readers, nil
}

// Forgetting returns what removes the messages of a zone on a filter, up to a sequence: a request for each filter, whatever it matches.
func (c *Conn) Forgetting(ctx context.Context, z streams.Zone) (forget func(ctx context.Context, filter string, through uint64) error, err error) {
	s, err := c.stream(ctx, z)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, filter string, through uint64) error {
		bounded, explain, stop := c.refusals.until(ctx, "$JS.API.STREAM.PURGE."+streams.Name(c.subjects, z))
		defer stop()
		err := s.Purge(bounded, jetstream.WithPurgeSubject(filter), jetstream.WithPurgeSequence(through+1))
		if err = explain(err); err != nil {
			return fmt.Errorf("remove %s: %w", filter, err)
		}
		return nil
	}, nil
}
