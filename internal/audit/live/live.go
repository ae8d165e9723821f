// Package live audits a running system: it reads journals from the store of runs and messages from the broker, one run at
// a time, and tells package audit what it finds.
//
// The system goes on meanwhile, so the order of reading decides what can be concluded. First come the points up to which
// messages are settled: whatever those led to is there by now. Then messages and events, and last the journal: every
// event has its entry by then.
package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Counts say what was looked at.
type Counts struct {
	Runs  int `json:"runs"`
	Inits int `json:"inits"`
	// Purged runs have only a tombstone left: how they ended is known, and their terminal event.
	Purged   int `json:"purged"`
	Entries  int `json:"entries"`
	Messages int `json:"messages"`
	Events   int `json:"events"`
	// Unsettled messages are not acknowledged, or not known to be: what becomes of them is open.
	Unsettled int `json:"unsettled"`
	// Forgotten messages are named by journals and no longer in their stream.
	Forgotten int `json:"forgotten"`
}

// Violation is one that was found, with the name of its run, if that can be read.
type Violation struct {
	audit.Violation
	Name string `json:"name,omitempty"`
}

// Auditor audits the runs of a system. It holds one run in memory at a time, and is used by one goroutine.
type Auditor struct {
	Counts
	conn  *broker.Conn
	store runner.Store
	// horizon is how far back all events are kept, in Unix milliseconds.
	horizon int64
	// floors are the sequences up to which a consumer's messages are settled, as they were when its agent was first met.
	floors map[streams.ConsumerRef]uint64
	zones  map[string]streams.Zone
}

// horizonMargin is for clocks that do not agree.
const horizonMargin = time.Hour

// New returns an Auditor that reads from a connection and a store, which stay the caller's.
func New(ctx context.Context, conn *broker.Conn, store runner.Store) (*Auditor, error) {
	a := &Auditor{conn: conn, store: store, floors: map[streams.ConsumerRef]uint64{}, zones: map[string]streams.Zone{}}
	for _, whole := range []streams.Zone{streams.Start, streams.In, streams.Out, streams.Timer} {
		zones, err := conn.Zones(ctx, whole)
		if err != nil {
			return nil, err
		}
		for _, z := range zones {
			a.zones[streams.Name(conn.Subjects(), z)] = z
		}
	}
	for _, z := range []streams.Zone{streams.Out, streams.Done} {
		age, err := conn.MaxAge(ctx, z)
		if err != nil {
			return nil, err
		}
		if age > 0 {
			a.horizon = max(a.horizon, time.Now().Add(horizonMargin-age).UnixMilli())
		}
	}
	return a, nil
}

// All audits every run that changed at that time or later, and every init event that was stored since. A zero time is all
// there are.
func (a *Auditor) All(ctx context.Context, since time.Time, found func(Violation) error) error {
	for cursor := ""; ; {
		runs, next, err := a.store.Runs(ctx, cursor, state.MaxPage)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if last, err := core.DecodeEntry(r.Last.Data); err == nil && last.At < since.UnixMilli() && !since.IsZero() {
				continue
			}
			if err := a.Run(ctx, r.Run, found); err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	return a.inits(ctx, since, found)
}

// Run audits one run. An unknown one is runner.ErrNotFound.
func (a *Auditor) Run(ctx context.Context, key wire.RunKey, found func(Violation) error) error {
	a.Runs++
	r := &auditedRun{Auditor: a, key: key, checker: audit.New(a.conn.Subjects())}
	r.checker.Known(a.horizon)
	if err := r.audit(ctx); err != nil {
		return fmt.Errorf("audit run %s: %w", cmp.Or(r.head.Run, key.String()), err)
	}
	for _, v := range r.checker.Violations() {
		if err := found(Violation{v, r.head.Run}); err != nil {
			return err
		}
	}
	return nil
}

// floor is the sequence up to which the messages of a consumer are settled.
func (a *Auditor) floor(ctx context.Context, ref streams.ConsumerRef) (uint64, error) {
	if floor, ok := a.floors[ref]; ok {
		return floor, nil
	}
	floor, err := a.conn.AckFloor(ctx, ref)
	if errors.Is(err, broker.ErrNotStored) {
		floor, err = 0, nil // nobody serves the agent any more: nothing is known to be settled
	}
	if err == nil {
		a.floors[ref] = floor
	}
	return floor, err
}

// auditedRun is the audit of one run.
type auditedRun struct {
	*Auditor
	key     wire.RunKey
	checker *audit.Checker
	head    core.Head
	settled map[string]uint64
	inputs  []input
	events  []broker.Stored
	entries []core.Entry
	// unread says that the journal could not be read to its end: nothing more can be said then.
	unread bool
}

// input is a message that the run was or may have been moved by.
type input struct {
	stream   string
	sequence uint64
	// cause says that an entry names it.
	cause bool
}

func (r *auditedRun) audit(ctx context.Context) error {
	last, err := r.store.Head(ctx, r.key)
	if err == nil {
		var entry core.Entry
		if entry, err = core.DecodeEntry(last.Data); err != nil {
			err = fmt.Errorf("%w: %w", runner.ErrCorrupt, err)
		}
		r.head = entry.Head
		if r.head.Purged != nil {
			r.Purged++
		}
	}
	if errors.Is(err, runner.ErrCorrupt) {
		r.checker.Violate("I6", r.key, "its last entry cannot be read: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.readFloors(ctx); err != nil {
		return err
	}
	if err := r.readMessages(ctx); err != nil {
		return err
	}
	digests, err := r.readJournal(ctx)
	if err != nil {
		return err
	}
	if err := r.readCauses(ctx); err != nil {
		return err
	}
	for i := range r.entries {
		r.checker.Committed(r.key, digests[i], &r.entries[i])
	}
	if r.unread {
		return nil
	}
	r.tellEvents()
	return r.tellSettled(ctx)
}

func (r *auditedRun) readFloors(ctx context.Context) error {
	r.settled = map[string]uint64{}
	refs, err := r.conn.Divided(ctx, streams.AgentConsumers(r.head.Agent)...)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		floor, err := r.floor(ctx, ref)
		if err != nil {
			return err
		}
		r.settled[streams.Name(r.conn.Subjects(), ref.Zone)] = floor
	}
	return nil
}

// readMessages reads what was sent to the run, and what its workers published.
func (r *auditedRun) readMessages(ctx context.Context) error {
	s := r.conn.Subjects()
	tail := wire.NameToken(r.head.Agent) + "." + r.key.Partition + "." + r.key.Token
	of := func(kind wire.Kind, rest string) string { return s.Root() + "." + string(kind) + "." + rest }
	control := of(wire.KindCtl, "*."+tail)
	for zone, filters := range map[streams.Zone][]string{
		streams.In:    {of(wire.KindIn, "*.*."+tail+".>"), control, control + ".*"},
		streams.Timer: {s.Fire(r.head.Agent, r.key)},
	} {
		for _, filter := range filters {
			err := r.conn.Scan(ctx, zone, filter, 0, func(m broker.Stored) (bool, error) {
				r.input(m)
				return true, nil
			})
			if err != nil {
				return err
			}
		}
	}
	calls := []string{of(wire.KindOut, "*.*."+tail+".>"), of(wire.KindVoid, "*.*."+tail+".>")}
	for _, filter := range calls {
		if err := r.readEvents(ctx, streams.Out, filter); err != nil {
			return err
		}
	}
	if init := r.head.Init; init.Reply != nil {
		return r.readEvents(ctx, streams.In, s.Reply(*init.Reply))
	}
	for _, token := range r.head.Generations() {
		if err := r.readEvents(ctx, streams.Done, s.Done(r.head.Agent, r.key, token)); err != nil {
			return err
		}
	}
	return nil
}

func (r *auditedRun) readEvents(ctx context.Context, z streams.Zone, filter string) error {
	return r.conn.Scan(ctx, z, filter, 0, func(m broker.Stored) (bool, error) {
		r.events = append(r.events, m)
		return true, nil
	})
}

// input tells of a message.
func (r *auditedRun) input(m broker.Stored) {
	r.Messages++
	r.inputs = append(r.inputs, input{stream: m.Stream, sequence: m.Sequence})
	r.checker.Input(message(r.conn.Subjects(), m))
}

// message is a stored message in the form of the checker.
func message(subjects wire.Subjects, m broker.Stored) audit.Message {
	in := audit.Message{Stream: m.Stream, Sequence: m.Sequence, Subject: m.Subject, Received: m.At}
	if a, err := subjects.Parse(m.Subject); err == nil && a.Kind == wire.KindFire {
		var fired struct{ Due int64 }
		_ = json.Unmarshal(m.Data, &fired) // what cannot be read is due at no time that anything waits for
		in.Due = fired.Due
		return in
	}
	if event, err := wire.DecodeEvent(m.Headers, m.Data); err == nil {
		in.Event = &event
	}
	return in
}

// readJournal reads the entries, as far as they can be read, and their digests.
func (r *auditedRun) readJournal(ctx context.Context) (digests []string, err error) {
	records, err := r.store.Entries(ctx, r.key, runner.Version{})
	if errors.Is(err, runner.ErrCorrupt) {
		r.unread = true
		r.checker.Violate("I6", r.key, "its journal cannot be read: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		e, err := r.readEntry(ctx, rec)
		if errors.Is(err, runner.ErrCorrupt) {
			r.unread = true
			r.checker.Violate("I6", r.key, "entry %d cannot be read: %v", rec.Rev, err)
			return digests, nil
		}
		if err != nil {
			return nil, err
		}
		r.Entries++
		r.entries = append(r.entries, e)
		digests = append(digests, core.Digest(rec.Data))
	}
	return digests, nil
}

func (r *auditedRun) readEntry(ctx context.Context, rec runner.Record) (core.Entry, error) {
	e, err := core.DecodeEntry(rec.Data)
	if err != nil {
		return e, fmt.Errorf("%w: %w", runner.ErrCorrupt, err)
	}
	for _, b := range e.Blobs {
		content, err := r.store.Blob(ctx, r.key, b.Digest)
		if err != nil && !errors.Is(err, runner.ErrNotFound) {
			return e, err
		}
		if err == nil {
			err = e.Restore(b, content)
		}
		if err != nil {
			return e, fmt.Errorf("%w: section %s: %w", runner.ErrCorrupt, b.Section, err)
		}
	}
	return e, nil
}

// readCauses reads the messages that entries were made for and that are not on the run's own subjects, such as its init
// event.
func (r *auditedRun) readCauses(ctx context.Context) error {
	known := map[core.Cause]int{}
	for i, in := range r.inputs {
		known[core.Cause{Stream: in.stream, Sequence: in.sequence}] = i
	}
	for _, e := range r.entries {
		at := core.Cause{Stream: e.Cause.Stream, Sequence: e.Cause.Sequence}
		i, ok := known[at]
		if !ok {
			if err := r.readCause(ctx, at); err != nil {
				return err
			}
			i = len(r.inputs) - 1
			known[at] = i
		}
		if i >= 0 {
			r.inputs[i].cause = true
		}
	}
	return nil
}

func (r *auditedRun) readCause(ctx context.Context, at core.Cause) error {
	none := func() { r.inputs = append(r.inputs, input{stream: at.Stream, sequence: at.Sequence}) }
	zone, ok := r.zones[at.Stream]
	if !ok {
		none()
		return nil // the checker says that it was never stored
	}
	m, err := r.conn.At(ctx, zone, at.Sequence)
	if err == nil {
		r.input(m)
		return nil
	}
	if !errors.Is(err, broker.ErrNotStored) {
		return err
	}
	none()
	bounds, err := r.conn.Bounds(ctx, zone)
	if err == nil && at.Sequence <= bounds.Last {
		r.Forgotten++
		r.checker.Forgotten(at.Stream, at.Sequence)
	}
	return err
}

// tellEvents tells of what was published. What is not an event of this wire cannot be by a worker.
func (r *auditedRun) tellEvents() {
	for _, m := range r.events {
		event, err := wire.DecodeEvent(m.Headers, m.Data)
		mine := event.ID == wire.TerminalID(r.key, r.head.Init.Token)
		if a, err := r.conn.Subjects().Parse(m.Subject); err == nil && a.Kind == wire.KindIn && !mine {
			continue // somebody else's answer to the call that the run answers
		}
		if err != nil {
			r.checker.Violate("I5", r.key, "what is on %s is not an event: %v", m.Subject, err)
			continue
		}
		r.Events++
		r.checker.Published(m.Subject, event, m.Data)
	}
}

// tellSettled tells of the messages that are acknowledged.
func (r *auditedRun) tellSettled(ctx context.Context) error {
	slices.SortFunc(r.inputs, func(x, y input) int {
		return cmp.Or(cmp.Compare(x.stream, y.stream), cmp.Compare(x.sequence, y.sequence))
	})
	for _, in := range r.inputs {
		if in.sequence > r.settled[in.stream] {
			r.Unsettled++
			continue
		}
		if !in.cause {
			reason, err := r.conn.DeadLettered(ctx, in.stream, in.sequence)
			if err != nil {
				return err
			}
			if reason != "" {
				r.checker.DeadLettered(in.stream, in.sequence, reason)
			}
		}
		r.checker.Removed(in.stream, in.sequence)
	}
	return nil
}
