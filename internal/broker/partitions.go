package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/retry"
	"agentd/sdk"
)

// partitionsKey is the metadata, of streams and of consumers of divided ones, that says how many partitions there are. Where nothing is divided
// it is not there.
const partitionsKey = "agentd-partitions"

func (l Layout) metadata() map[string]string {
	if l.n <= 1 {
		return nil
	}
	return map[string]string{partitionsKey: strconv.Itoa(l.n)}
}

// layoutIn is the layout that a stream was made for.
func layoutIn(cfg jetstream.StreamConfig) (Layout, error) {
	return layoutOf("stream "+cfg.Name, cfg.Metadata)
}

// layoutOf is the layout that what, which has the metadata, was made for.
func layoutOf(what string, metadata map[string]string) (Layout, error) {
	text, ok := metadata[partitionsKey]
	if !ok {
		return Layout{1}, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil {
		var l Layout
		if l, err = NewLayout(n); err == nil {
			return l, nil
		}
	}
	return Layout{}, sdk.Errorf(sdk.CodeConfig, "%s says that there are %q partitions", what, text).WithCause(err)
}

// Layout is how streams are divided, as provisioning has made them: it is for ever, so the server is asked once. Where nothing is
// provisioned yet, nothing is divided, and the server is asked again.
func (c *Conn) Layout(ctx context.Context) (Layout, error) {
	if l := c.layout.Load(); l != nil {
		return *l, nil
	}
	l, provisioned, err := c.layoutThere(ctx)
	if err != nil || !provisioned {
		return Layout{}, err
	}
	c.layout.Store(&l)
	return l, nil
}

func (c *Conn) knownLayout() Layout {
	if l := c.layout.Load(); l != nil {
		return *l
	}
	return Layout{}
}

// layoutThere asks the stream of init events; where that was lost, the first one of timers.
func (c *Conn) layoutThere(ctx context.Context) (l Layout, provisioned bool, err error) {
	for _, z := range []Zone{ZoneStart, ZoneTimer, Layout{2}.part(ZoneTimer, 0)} {
		s, err := c.look(ctx, StreamName(c.subjects, z))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return Layout{}, false, err
		}
		l, err := layoutIn(s.CachedInfo().Config)
		return l, err == nil, err
	}
	return Layout{}, false, nil
}

// laidOut is a plan with the partitions and the persistence that there are, or would be. problem says that the plan has other partitions.
func (c *Conn) laidOut(ctx context.Context, p Plan) (laid Plan, problem *sdk.Error, err error) {
	if p.Partitions != 0 {
		if _, err := NewLayout(p.Partitions); err != nil {
			return p, nil, err
		}
	}
	there, provisioned, err := c.layoutThere(ctx)
	if p.Unreconciled || !c.refillable() {
		p.PersistMode = PersistDefault
	}
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}): // whoever looks at the streams says so
		p.Partitions = max(p.Partitions, 1)
		return p, nil, nil
	case err != nil:
		return p, nil, err
	case !provisioned:
		p.Partitions = max(p.Partitions, 1)
		return p, nil, nil
	}
	if p.Partitions != 0 && p.Partitions != there.n {
		problem = otherPartitions(there.n, p.Partitions)
	}
	p.Partitions = there.n
	if p.PersistMode == "" {
		p.PersistMode, err = c.persistModeOf(ctx, there)
	}
	return p, problem, err
}

// refillable reports whether workers would notice that the server with the streams was started again (see Server), and could have consumers
// that are ahead of a stream deliver what it gets back.
func (c *Conn) refillable() bool {
	held, _ := c.nc.ConnectedServerJetStream()
	return held && !leader.Clustered(c.js) && c.resets()
}

// persistModeOf is that of the streams that there are; it is empty where there are none.
func (c *Conn) persistModeOf(ctx context.Context, l Layout) (PersistMode, error) {
	for _, z := range Rebuildable {
		s, err := c.look(ctx, StreamName(c.subjects, l.Zones(z)[0]))
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}): // whoever looks at it says so
		case err != nil:
			return "", err
		default:
			return persistModeIn(s.CachedInfo().Config), nil
		}
	}
	return "", nil
}

func persistModeIn(s jetstream.StreamConfig) PersistMode {
	if s.PersistMode == jetstream.AsyncPersistMode {
		return PersistAsync
	}
	return PersistDefault
}

// sameLayout reports that a stream was made for another layout.
func sameLayout(got, want jetstream.StreamConfig) error {
	have, err := layoutIn(got)
	if err != nil {
		return err
	}
	wanted, err := layoutIn(want)
	if err == nil && have != wanted {
		return otherPartitions(have.n, wanted.n)
	}
	return err
}

// otherPartitions says that the number is for ever.
func otherPartitions(have, want int) *sdk.Error {
	return sdk.Errorf(sdk.CodeConfig, "the streams were provisioned with %s, and nats.partitions is %d: their number is for ever; %s",
		countPartitions(have), want, remedyPartitions)
}

const remedyPartitions = "to have more, begin anew under another nats.root (docs/operations.md, \"Partitions\")"

func countPartitions(n int) string {
	if n == 1 {
		return "1 partition"
	}
	return strconv.Itoa(n) + " partitions"
}

// Divided are consumers of undivided zones, as they are on this broker: Layout.Consumers.
func (c *Conn) Divided(ctx context.Context, refs ...ConsumerRef) ([]ConsumerRef, error) {
	l, err := c.Layout(ctx)
	return l.Consumers(refs...), err
}

// Reading are the consumers that together have what some of undivided zones would have. It needs the right to look at these alone: they say
// how many there are. Where none of them is provisioned yet, the error is ErrNotStored.
func (c *Conn) Reading(ctx context.Context, refs ...ConsumerRef) ([]ConsumerRef, error) {
	missing := fmt.Errorf("look how calls are divided: %w", ErrNotStored)
	for i := 0; i < len(refs) && c.layout.Load() == nil; i++ {
		for _, z := range []Zone{refs[i].Zone, Layout{2}.part(refs[i].Zone, 0)} {
			consumer, err := c.js.Consumer(ctx, StreamName(c.subjects, z), refs[i].Name)
			switch {
			case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
				continue
			case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
				missing = err // rights are for the consumers that there are
				continue
			case err != nil:
				return nil, fmt.Errorf("look at consumer %s: %w", refs[i].Name, err)
			}
			l, err := layoutOf("consumer "+refs[i].Name, consumer.CachedInfo().Config.Metadata)
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
func (c *Conn) AwaitReading(ctx context.Context, refs ...ConsumerRef) []ConsumerRef {
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

// streamFor is the stream that stores a subject. Where it depends on how streams are divided, that is found out.
func (c *Conn) streamFor(ctx context.Context, subject string) (string, error) {
	if slices.Contains(divided, Layout{}.ZoneOf(subject)) {
		if _, err := c.Layout(ctx); err != nil {
			return "", err
		}
	}
	return c.streamOf(subject), nil
}

// expected is the stream that is to store what is published on a subject, or "" where that is not known. Many who publish calls' answers and
// control messages may not look at streams, so the server is not asked for it; what stored a message is looked at when it has.
func (c *Conn) expected(ctx context.Context, subject string) (string, error) {
	switch z := (Layout{}).ZoneOf(subject); {
	case z != ZoneIn && z != ZoneOut:
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
	z := Layout{}.ZoneOf(subject)
	if z == "" || wholeName(stream) == StreamName(c.subjects, z) {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "stream %s has stored what was published on %s: it is not agentd's; remove its subjects, and run: agentd provision",
		stream, subject)
}

// isDivided reports whether a name is that of a zone that layouts divide.
func (c *Conn) isDivided(stream string) bool {
	return slices.ContainsFunc(divided, func(z Zone) bool { return StreamName(c.subjects, z) == stream })
}

// Zones are the zones that a zone is divided into on this broker.
func (c *Conn) Zones(ctx context.Context, z Zone) ([]Zone, error) { return c.zones(ctx, z) }

// zones are those that a zone is divided into, or those of them with messages on one of the filters.
func (c *Conn) zones(ctx context.Context, z Zone, filters ...string) ([]Zone, error) {
	if !slices.Contains(divided, z) {
		return []Zone{z}, nil
	}
	l, err := c.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if len(filters) == 0 {
		return l.Zones(z), nil
	}
	holding := map[Zone]bool{}
	for _, f := range filters {
		for _, part := range l.Holding(z, f) {
			holding[part] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(l.Zones(z)), func(part Zone) bool { return !holding[part] }), nil
}
