package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// ParkedRun is a run that waits for something, with the token of its agent.
type ParkedRun struct {
	Agent string
	Run   wire.RunKey
}

// mark is the subject of the mark that a run waits for what key names. There is one message on it at most.
func (c *Conn) mark(key string, tokens ...string) string {
	return strings.Join(append([]string{c.subjects.Root(), string(wire.KindTimer), streams.ParkedToken, key}, tokens...), ".")
}

// MarkParked says for a time that a run waits for what key names. It may be repeated.
func (c *Conn) MarkParked(ctx context.Context, key, agent string, run wire.RunKey, d time.Duration) error {
	return c.keepLast(ctx, c.mark(key, wire.NameToken(agent), run.Partition, run.Token), nil, d)
}

// UnmarkParked takes the mark of a run away: within a second there is none. It may be repeated.
func (c *Conn) UnmarkParked(ctx context.Context, key string, p ParkedRun) error {
	return c.keepLast(ctx, c.mark(key, p.Agent, p.Run.Partition, p.Run.Token), nil, shortestTTL)
}

// ParkedRuns lists the runs that are marked as waiting for what key names, of all agents if agent is empty.
func (c *Conn) ParkedRuns(ctx context.Context, key, agent string) ([]ParkedRun, error) {
	token := "*"
	if agent != "" {
		token = wire.NameToken(agent)
	}
	subjects, err := c.SubjectsUnder(ctx, streams.Timer, c.mark(key, token, ">"))
	if err != nil {
		return nil, err
	}
	runs := make([]ParkedRun, 0, len(subjects))
	for _, s := range subjects {
		if run, ok := c.parkedOn(key, s); ok {
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// FirstParked is the run that was marked longest ago as waiting for what key names; ok is false where none is.
func (c *Conn) FirstParked(ctx context.Context, key string) (run ParkedRun, ok bool, err error) {
	d, err := c.NextDelivery(ctx, streams.Timer, c.mark(key, "*", ">"), 1)
	if err != nil {
		return ParkedRun{}, false, fmt.Errorf("look for a run that waits for %s: %w", key, err)
	}
	if d == nil {
		return ParkedRun{}, false, nil
	}
	run, ok = c.parkedOn(key, d.Subject())
	return run, ok, nil
}

// parkedOn is the run that a mark is of.
func (c *Conn) parkedOn(key, subject string) (run ParkedRun, ok bool) {
	t := strings.Split(strings.TrimPrefix(subject, c.mark(key)+"."), ".")
	if len(t) != 3 {
		return ParkedRun{}, false
	}
	return ParkedRun{Agent: t[0], Run: wire.RunKey{Partition: t[1], Token: t[2]}}, true
}

// Unpark has a parked run tried again, if it waits for what key names and is marked. Until that is stored the mark stays, so that who fails
// or dies meanwhile leaves a run that others find.
func (c *Conn) Unpark(ctx context.Context, key string, p ParkedRun) error {
	mark := c.mark(key, p.Agent, p.Run.Partition, p.Run.Token)
	marked, err := c.Last(ctx, mark)
	if errors.Is(err, ErrNotStored) {
		return nil // it was tried, or its time has come
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]string{"key": key})
	if err != nil {
		return fmt.Errorf("encode unpark: %w", err)
	}
	err = c.Control(ctx, wire.ControlUnpark, p.Agent, p.Run, "", wire.Event{
		ID: nats.NewInbox()[len(nats.InboxPrefix):], Source: c.subjects.Root() + "/worker", Type: wire.TypeUnpark, Data: data,
	})
	if err != nil {
		return err
	}
	return c.unmark(ctx, mark, marked.Sequence)
}

// unmark is UnmarkParked of one mark: another, which the run got when it was parked again, stays.
func (c *Conn) unmark(ctx context.Context, mark string, sequence uint64) error {
	return c.keepLast(ctx, mark, nil, shortestTTL, jetstream.WithExpectLastSequencePerSubject(sequence))
}

// outage is what a message of an outage says: for how many milliseconds nobody is to ask the model; 0 is that it answers.
type outage struct {
	For int64 `json:"for"`
}

// AskAway takes the right to ask a model that is away, which nobody else has for a time.
func (c *Conn) AskAway(ctx context.Context, key string, d time.Duration) (bool, error) {
	return c.Lease(ctx, streams.OutageLease(key), d)
}

// TellOutage tells all workers that nobody is to ask a model for a time; 0 is that it answers.
func (c *Conn) TellOutage(ctx context.Context, key string, d time.Duration) error {
	body, err := json.Marshal(outage{For: int64(math.Ceil(d.Seconds() * 1000))})
	if err != nil {
		return fmt.Errorf("encode outage: %w", err)
	}
	return c.keepLast(ctx, c.leaseSubject(streams.OutageLease(key)), body, d)
}

// Outage is for how much longer nobody is to ask a model, as workers were last told; 0 is that they may. asking says that one has the right to
// ask just now.
func (c *Conn) Outage(ctx context.Context, key string) (left time.Duration, asking bool, err error) {
	m, err := c.Last(ctx, c.leaseSubject(streams.OutageLease(key)))
	if errors.Is(err, ErrNotStored) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look whether %s is away: %w", key, err)
	}
	if len(m.Data) == 0 { // it is the lease itself
		return 0, true, nil
	}
	var told outage
	if err := json.Unmarshal(m.Data, &told); err != nil {
		return 0, false, fmt.Errorf("look whether %s is away: %w", key, err)
	}
	rest := min(m.At+told.For-c.Now(), told.For) // servers' clocks may differ
	return time.Duration(max(rest, 0)) * time.Millisecond, false, nil
}

// OutageSubjects are those on which workers tell each other of models that are away.
func OutageSubjects(s wire.Subjects) string {
	return (&Conn{subjects: s}).leaseSubject(streams.OutageLease("*"))
}

// OnOutage calls handle, one call at a time, with what any worker tells of a model, as of TellOutage, until stop is called.
func (c *Conn) OnOutage(handle func(key string, d time.Duration)) (stop func() error, err error) {
	prefix := c.leaseSubject(streams.OutageLease(""))
	sub, err := c.nc.Subscribe(OutageSubjects(c.subjects), func(m *nats.Msg) {
		var told outage
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &told) == nil { // without a body it is the lease itself
			handle(strings.TrimPrefix(m.Subject, prefix), time.Duration(told.For)*time.Millisecond)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for outages: %w", err)
	}
	return sub.Unsubscribe, nil
}

// shortestTTL is the least that a message is kept.
const shortestTTL = time.Second

// keepLast puts a message in place of the one that is on the subject of the zone of timers, for a time in whole seconds. Where another one is
// expected there than the one that is, it stays.
func (c *Conn) keepLast(ctx context.Context, subject string, body []byte, d time.Duration, expected ...jetstream.PublishOpt) error {
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	return c.keep(ctx, m, append(expected, jetstream.WithMsgTTL(max(d.Truncate(time.Second), shortestTTL)))...)
}

// keep stores a message. Where another one is expected before it than the one that is, it is not stored.
func (c *Conn) keep(ctx context.Context, m *nats.Msg, expected ...jetstream.PublishOpt) error {
	return c.persist(ctx, m.Subject, func(attempt context.Context, stream string) error {
		_, err := c.js.PublishMsg(attempt, m, append(slices.Clone(expected), jetstream.WithExpectStream(stream))...)
		if wrongSequence(err) {
			return nil
		}
		return err
	})
}
