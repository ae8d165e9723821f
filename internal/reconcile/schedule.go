package reconcile

import (
	"context"
	"encoding/json"
	"fmt"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// passed is what the passes of Periodic note of an agent, or of what belongs to no agent, for whoever makes the next one.
type passed struct {
	// From is from when on the next one has to look at messages, All when the last one over all runs began, in Unix milliseconds.
	From int64 `json:"from"`
	All  int64 `json:"all"`
	// Mark is what the store was marked with before that one.
	Mark string `json:"mark"`
	// Streams are what the streams were like before that one.
	Streams map[streams.Zone]origin `json:"streams"`
}

// origin is what a stream is known by that was made anew, or set back.
type origin struct {
	// Made is when it was made, in Unix nanoseconds, Last the sequence of its last message.
	Made int64  `json:"made"`
	Last uint64 `json:"last"`
}

const (
	// noteOfAgent and noteEverything name the notes and marks, as the leases are named.
	noteOfAgent    = "passed_agent_"
	noteEverything = "passed"
)

// scheduled makes the passes that are due: over all runs, of the agents of which that is due, or of which it cannot be said that nothing but
// what has changed can have been lost; over what has changed, of the others.
func scheduled(ctx context.Context, o Options) error {
	if err := o.right(ctx); err != nil {
		return err
	}
	now, err := origins(ctx, o.Conn)
	if err != nil {
		return err
	}
	all, next, lately := o, passed{All: newPass(o).now.UnixMilli(), Streams: now}, map[string]passed{}
	all.Agents, all.Everything = nil, false
	var some []sdk.AgentSpec
	for _, a := range o.Agents {
		note, is, err := o.due(ctx, noteOfAgent+wire.NameToken(a.Name), now)
		if err != nil {
			return err
		}
		next.expect(is)
		if is != current {
			all.Agents = append(all.Agents, a)
			continue
		}
		some = append(some, a)
		lately[a.Name] = note
	}
	if o.Everything {
		_, is, err := o.due(ctx, noteEverything, now)
		if err != nil {
			return err
		}
		next.expect(is)
		all.Everything = is != current
	}
	if len(all.Agents) > 0 || all.Everything {
		if err := noted(ctx, all, next, func(ctx context.Context, p *pass) error { return p.all(ctx) }); err != nil {
			return err
		}
	}
	for _, a := range some {
		one, note := o, lately[a.Name]
		one.Agents, one.Everything, note.Streams = []sdk.AgentSpec{a}, false, now
		if err := noted(ctx, one, note, func(ctx context.Context, p *pass) error { return p.lately(ctx, note.From) }); err != nil {
			return err
		}
	}
	return nil
}

// currency is what can be said of the last pass over all runs.
type currency int

const (
	// current: what has not changed since it was looked at is as it was.
	current currency = iota
	// outdated: it was too long ago.
	outdated
	// unknown: something may have been lost as a whole since then.
	unknown
)

// expect has the pass after one that follows a loss look at all runs too: what the first one repairs may bring to light what else is lost.
func (n *passed) expect(is currency) {
	if is == unknown {
		n.All = 0
	}
}

// due reads what was noted under a name, and says whether that holds.
func (o *Options) due(ctx context.Context, name string, origins map[streams.Zone]origin) (note passed, is currency, err error) {
	data, err := o.Conn.Note(ctx, name)
	if err != nil {
		return note, unknown, fmt.Errorf("read what the last pass has noted: %w", err)
	}
	if data == nil || json.Unmarshal(data, &note) != nil || note.Mark == "" {
		return note, outdated, nil //nolint:nilerr // what cannot be read says as little as nothing
	}
	for zone, now := range origins {
		if was, known := note.Streams[zone]; !known || was.Made != now.Made || was.Last > now.Last {
			o.Logger.Warn("a stream is another than at the last pass, or was set back; all runs are looked at",
				"stream", streams.Name(o.Conn.Subjects(), zone))
			return note, unknown, nil
		}
	}
	marked, err := o.Store.Marked(ctx, name, note.Mark)
	if err != nil {
		return note, unknown, err
	}
	if !marked {
		o.Logger.Warn("the store is another than at the last pass, or was set back; all runs are looked at")
		return note, unknown, nil
	}
	every := o.FullInterval
	if o.History > 0 { // which passes over all runs remove
		every = min(every, o.History/4)
	}
	if o.Hot > 0 { // which the same passes have journals leave after
		every = min(every, o.Hot)
	}
	if newPass(*o).now.UnixMilli()-note.All >= every.Milliseconds() {
		return note, outdated, nil
	}
	return note, current, nil
}

// noted makes a pass, and notes for the next one what it has to look at. The store is marked before anything is read of it: what it loses
// from then on is noticed.
func noted(ctx context.Context, o Options, note passed, make func(context.Context, *pass) error) error {
	p := newPass(o)
	note.Mark = o.Runner.Env.Random()
	names := map[string]int64{}
	for _, a := range o.Agents {
		from, err := p.open(ctx, a)
		if err != nil {
			return err
		}
		names[noteOfAgent+wire.NameToken(a.Name)] = from
	}
	if o.Everything {
		names[noteEverything] = p.now.UnixMilli()
	}
	for name := range names {
		if err := o.Store.Mark(ctx, name, note.Mark); err != nil {
			return err
		}
	}
	err := make(ctx, p)
	p.log()
	if err != nil {
		return err
	}
	for agent, at := range p.left {
		if name := noteOfAgent + agent; names[name] > at {
			names[name] = at
		}
	}
	for name, from := range names {
		note.From = from
		data, err := json.Marshal(note)
		if err == nil {
			err = o.Conn.SetNote(ctx, name, data)
		}
		if err != nil {
			return fmt.Errorf("note what a pass has seen: %w", err)
		}
	}
	return nil
}

// origins are those of the streams whose loss a pass over what has changed would not notice. A journal's stream is marked, as all stores are.
func origins(ctx context.Context, conn *broker.Conn) (map[streams.Zone]origin, error) {
	zones := []streams.Zone{streams.Start, streams.In, streams.Out, streams.Done, streams.Timer}
	indexes, err := conn.Indexes(ctx)
	if err != nil {
		return nil, err
	}
	if indexes {
		zones = append(zones, streams.Index)
	}
	all := map[streams.Zone]origin{}
	for _, whole := range zones {
		parts, err := conn.Zones(ctx, whole)
		if err != nil {
			return nil, err
		}
		for _, z := range parts {
			b, err := conn.Bounds(ctx, z)
			if err != nil {
				return nil, err
			}
			all[z] = origin{b.Created, b.Last}
		}
	}
	return all, nil
}
