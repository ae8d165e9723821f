package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
)

// Layout is how streams are divided, as provisioning has made them: it is for ever, so the server is asked once. Where nothing is
// provisioned yet it is the zero Layout, and the server is asked again.
func (c *Conn) Layout(ctx context.Context) (streams.Layout, error) {
	if l := c.layout.Load(); l != nil {
		return *l, nil
	}
	l, provisioned, err := c.layoutThere(ctx)
	if err != nil || !provisioned {
		return streams.Layout{}, err
	}
	c.layout.Store(&l)
	return l, nil
}

func (c *Conn) knownLayout() streams.Layout {
	if l := c.layout.Load(); l != nil {
		return *l
	}
	return streams.Layout{}
}

// layoutThere asks the stream of init events; where that was lost, the first one of timers.
func (c *Conn) layoutThere(ctx context.Context) (l streams.Layout, provisioned bool, err error) {
	for _, z := range []streams.Zone{streams.Start, streams.Timer, streams.Timer.First()} {
		s, err := c.js.Stream(ctx, streams.Name(c.subjects, z))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return streams.Layout{}, false, err
		}
		l, err := streams.LayoutIn(s.CachedInfo().Config)
		return l, err == nil, err
	}
	return streams.Layout{}, false, nil
}

// Divided are consumers of undivided zones, as they are on this broker: Layout.Consumers.
func (c *Conn) Divided(ctx context.Context, refs ...streams.ConsumerRef) ([]streams.ConsumerRef, error) {
	l, err := c.Layout(ctx)
	return l.Consumers(refs...), err
}

// Reading are the consumers that together have what some of undivided zones would have. It needs the right to look at these alone: they say
// how many there are. Where none of them is provisioned yet, the error is ErrNotStored.
func (c *Conn) Reading(ctx context.Context, refs ...streams.ConsumerRef) ([]streams.ConsumerRef, error) {
	missing := fmt.Errorf("look how calls are divided: %w", ErrNotStored)
	for i := 0; i < len(refs) && c.layout.Load() == nil; i++ {
		for _, z := range []streams.Zone{refs[i].Zone, refs[i].Zone.First()} {
			consumer, err := c.js.Consumer(ctx, streams.Name(c.subjects, z), refs[i].Name)
			switch {
			case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
				continue
			case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
				missing = err // rights are for the consumers that there are
				continue
			case err != nil:
				return nil, fmt.Errorf("look at consumer %s: %w", refs[i].Name, err)
			}
			l, err := streams.LayoutOf("consumer "+refs[i].Name, consumer.CachedInfo().Config.Metadata)
			if err != nil {
				return nil, err
			}
			c.layout.Store(&l)
			break
		}
	}
	if l := c.layout.Load(); l != nil {
		return l.Consumers(refs...), nil
	}
	return nil, missing
}

// AwaitReading is Reading that waits until one of them is provisioned, or ctx ends. Consumers that this user may not look at are taken for
// undivided.
func (c *Conn) AwaitReading(ctx context.Context, refs ...streams.ConsumerRef) []streams.ConsumerRef {
	for pauses := reading.Start(); ; {
		all, err := c.Reading(ctx, refs...)
		if err == nil {
			return all
		}
		if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			c.log.Warn("how calls are divided is unknown; they are taken to be on one stream", "error", err)
			return refs
		}
		c.log.Warn("consumers cannot be read; trying again", "error", err)
		if retry.Sleep(ctx, pauses.Next()) != nil {
			return nil
		}
	}
}

// streamOf is the stream that stores a subject, as far as it is known how streams are divided; streamFor finds that out.
func (c *Conn) streamOf(subject string) string {
	return streams.Name(c.subjects, c.knownLayout().ZoneOf(subject))
}

// streamFor is the stream that stores a subject. Where it depends on how streams are divided, that is found out.
func (c *Conn) streamFor(ctx context.Context, subject string) (string, error) {
	if (streams.Layout{}).ZoneOf(subject).Divided() {
		if _, err := c.Layout(ctx); err != nil {
			return "", err
		}
	}
	return c.streamOf(subject), nil
}

// expected is the stream that is to store what is published on a subject, or "" where that is not known. Many who publish calls' answers and
// control messages may not look at streams, so the server is not asked for it; what stored a message is looked at when it has.
func (c *Conn) expected(ctx context.Context, subject string) (string, error) {
	switch z := (streams.Layout{}).ZoneOf(subject); {
	case z != streams.In && z != streams.Out:
		return c.streamFor(ctx, subject)
	case c.layout.Load() == nil:
		return "", nil
	}
	return c.streamOf(subject), nil
}

// publishOn stores a message on a stream, as of expected: on "" it is the one that the server has for the subject, which must be of its zone.
func (c *Conn) publishOn(ctx context.Context, stream string, m *nats.Msg, o ...jetstream.PublishOpt) error {
	ack, err := c.js.PublishMsg(ctx, m, append(o, jetstream.WithExpectStream(stream))...)
	if err == nil && stream == "" {
		err = c.strayed(m.Subject, ack.Stream)
	}
	return err
}

// strayed says that another stream has stored a message than one of its zone, as one may that somebody made before agentd's were there.
func (c *Conn) strayed(subject, stream string) error {
	z := streams.Layout{}.ZoneOf(subject)
	if z == "" || streams.Whole(stream) == streams.Name(c.subjects, z) {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "stream %s has stored what was published on %s: it is not agentd's; remove its subjects, and run: agentd provision",
		stream, subject)
}

// isDivided reports whether a name is that of a zone that layouts divide.
func (c *Conn) isDivided(stream string) bool {
	zone, ours := strings.CutPrefix(stream, streams.Name(c.subjects, ""))
	return ours && streams.Zone(zone).Divided()
}

// Zones are the zones that a zone is divided into on this broker.
func (c *Conn) Zones(ctx context.Context, z streams.Zone) ([]streams.Zone, error) {
	return c.zones(ctx, z)
}

// zones are those that a zone is divided into, or those of them with messages on one of the filters.
func (c *Conn) zones(ctx context.Context, z streams.Zone, filters ...string) ([]streams.Zone, error) {
	if !z.Divided() {
		return []streams.Zone{z}, nil
	}
	l, err := c.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if len(filters) == 0 {
		return l.Zones(z), nil
	}
	holding := map[streams.Zone]bool{}
	for _, f := range filters {
		for _, part := range l.Holding(z, f) {
			holding[part] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(l.Zones(z)), func(part streams.Zone) bool { return !holding[part] }), nil
}
