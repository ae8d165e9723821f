package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// stored is one message of a stream, in the form in which the server's API tells of it.
type stored struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
	// stream has it.
	stream string
	// read are the headers of one that was read otherwise.
	read map[string][]string
}

// headers are the message's headers.
func (m *stored) headers() map[string][]string {
	if m.read != nil {
		return m.read
	}
	h := map[string][]string{}
	for line := range strings.Lines(string(m.Header)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			h[name] = append(h[name], strings.TrimSpace(value))
		}
	}
	return h
}

// event is the message's event, or nil when it cannot be decoded.
func (m *stored) event() *wire.Event {
	ev, err := wire.DecodeEvent(m.headers(), m.Data)
	if err != nil {
		return nil
	}
	return &ev
}

// askTimeout bounds one request to the server, which may die before it answers.
const askTimeout = 5 * time.Second

// ask asks the server's JetStream API.
func (w *world) ask(ctx context.Context, what string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return w.conn.Request(ctx, "$JS.API."+what, request, answer)
}

// get asks the stream of a zone for one message; found is false when there is none.
func (w *world) get(ctx context.Context, z streams.Zone, request map[string]any) (m stored, found bool, err error) {
	var answer struct {
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
		Message stored `json:"message"`
	}
	stream := streams.Name(subjects, z)
	if err := w.ask(ctx, "STREAM.MSG.GET."+stream, request, &answer); err != nil {
		return stored{}, false, err
	}
	switch {
	case answer.Error == nil:
		answer.Message.stream = stream
		return answer.Message, true, nil
	case answer.Error.Code == 404:
		return stored{}, false, nil
	}
	return stored{}, false, fmt.Errorf("read stream %s: %s", stream, answer.Error.Description)
}

// exists reports whether something is on a subject.
func (w *world) exists(ctx context.Context, z streams.Zone, subject string) bool {
	_, found, err := w.get(ctx, w.layout.Holding(z, subject)[0], map[string]any{"last_by_subj": subject})
	return err == nil && found
}

// messages reads all of a zone's messages on a filter.
func (w *world) messages(ctx context.Context, z streams.Zone, filter string) ([]stored, error) {
	var all []stored
	for _, part := range w.layout.Zones(z) {
		for next := uint64(1); ; {
			m, found, err := w.get(ctx, part, map[string]any{"seq": next, "next_by_subj": filter})
			if err != nil {
				return all, err
			}
			if !found {
				break
			}
			all = append(all, m)
			next = m.Sequence + 1
		}
	}
	return all, nil
}

// consumerState is how far a consumer is.
type consumerState struct {
	AckFloor struct {
		Sequence uint64 `json:"stream_seq"`
	} `json:"ack_floor"`
	Unacked int `json:"num_ack_pending"`
	Pending int `json:"num_pending"`
}

func (c consumerState) idle() bool { return c.Unacked == 0 && c.Pending == 0 }

// removed reports whether a message is surely acked.
func (c consumerState) removed(sequence uint64) bool {
	return c.idle() || sequence <= c.AckFloor.Sequence
}

// consumers returns the state of every consumer of workers.
func (w *world) consumers(ctx context.Context) (map[streams.ConsumerRef]consumerState, error) {
	refs := []streams.ConsumerRef{{Zone: streams.Start, Name: streams.UnroutedConsumer}}
	for _, s := range specs() {
		refs = append(refs, streams.AgentConsumers(s.Name)...)
	}
	states := map[streams.ConsumerRef]consumerState{}
	for _, ref := range w.layout.Consumers(refs...) {
		var err error
		if states[ref], err = w.consumer(ctx, ref); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (w *world) consumer(ctx context.Context, ref streams.ConsumerRef) (consumerState, error) {
	var answer struct {
		consumerState
		Error any `json:"error"`
	}
	err := w.ask(ctx, "CONSUMER.INFO."+streams.Name(subjects, ref.Zone)+"."+ref.Name, struct{}{}, &answer)
	if err == nil && answer.Error != nil {
		err = fmt.Errorf("consumer %s: %v", ref.Name, answer.Error)
	}
	return answer.consumerState, err
}

// evidence is what the streams, the journals and the workers tell, for the checker and the report.
type evidence struct {
	*world
	record   *record
	checker  *audit.Checker
	journals map[wire.RunKey][]core.Entry
	messages map[streams.Zone][]stored
	// there are those that their streams have at the end, and gone the others.
	there, gone map[streams.Zone][]stored
	acked       map[streams.ConsumerRef]consumerState
	// skipped are inputs of runs whose journals were deleted; of the others, drives has the run that each lets go on.
	skipped map[core.Cause]bool
	drives  map[core.Cause]wire.RunKey
}

// check tells the checker everything, in an order that respects causes, and returns what was violated.
func (w *world) check(ctx context.Context) (*evidence, []audit.Violation, error) {
	e := &evidence{
		world: w, record: w.record, checker: audit.New(subjects), journals: map[wire.RunKey][]core.Entry{}, messages: map[streams.Zone][]stored{},
		there: map[streams.Zone][]stored{}, gone: map[streams.Zone][]stored{}, skipped: map[core.Cause]bool{}, drives: map[core.Cause]wire.RunKey{},
	}
	for _, z := range []streams.Zone{streams.Start, streams.In, streams.Out, streams.Done, streams.DLQ, streams.Timer} {
		filter := ">"
		if z == streams.Timer {
			filter = subjects.All(wire.KindFire)
		}
		there, err := w.messages(ctx, z, filter)
		if err != nil {
			return nil, nil, err
		}
		e.there[z], e.messages[z] = there, there
		if _, removed := purged()[z]; removed {
			e.messages[z], e.gone[z] = w.seen.with(z, there)
		}
	}
	e.checker.Policy(ruling)
	inputs := e.inputs()
	e.forgotten()
	if err := e.awaitRemoved(ctx, inputs); err != nil {
		return nil, nil, err
	}
	if err := e.readJournals(ctx); err != nil {
		return nil, nil, err
	}
	e.record = w.record.snapshot()
	e.removals()
	e.hookTold()
	if e.setsBack {
		e.madeAgain(ctx)
	}
	e.published()
	e.deadLetters()
	e.executions()
	for _, in := range inputs {
		if e.removed(in) {
			e.checker.Removed(in.Stream, in.Sequence)
		}
	}
	return e, e.checker.Finish(), nil
}

// inputs tells of all messages that workers consume.
func (e *evidence) inputs() []audit.Message {
	var all []audit.Message
	for _, z := range []streams.Zone{streams.Start, streams.In, streams.Out, streams.Timer} {
		heard := e.heard(z)
		for i := range heard {
			m := &heard[i]
			stream := m.stream
			in := audit.Message{Stream: stream, Sequence: m.Sequence, Subject: m.Subject, Received: m.Time.UnixMilli()}
			address, err := subjects.Parse(m.Subject)
			switch {
			case err != nil:
			case z == streams.Out && !servedByAgent(address.Call):
				continue
			case z == streams.Timer:
				var fired struct {
					Due int64 `json:"due"`
				}
				if err := json.Unmarshal(m.Data, &fired); err == nil {
					in.Due = fired.Due
				}
			default:
				in.Event = m.event()
			}
			if e.clients.forgotten(runOf(address, in.Event)) {
				e.skipped[core.Cause{Stream: stream, Sequence: m.Sequence}] = true
				continue
			}
			e.checker.Input(in)
			e.drives[core.Cause{Stream: stream, Sequence: m.Sequence}] = drivenBy(address, in.Event)
			all = append(all, in)
		}
	}
	return all
}

func servedByAgent(call wire.CallAddress) bool { return call.Type == wire.NameToken(childType) }

// runOf is the run that an input is for.
func runOf(address wire.Address, ev *wire.Event) wire.RunKey {
	if address.Kind == wire.KindStart && ev != nil {
		return wire.NewRunKey(ev.Subject)
	}
	return address.Run
}

// drivenBy is the run that an input lets go on, which of a call is that of the agent that serves it.
func drivenBy(address wire.Address, ev *wire.Event) wire.RunKey {
	if address.Kind == wire.KindOut && ev != nil {
		return wire.NewRunKey(core.RunName(address, *ev))
	}
	return runOf(address, ev)
}

// readJournals tells of all entries of all runs.
func (e *evidence) readJournals(ctx context.Context) error {
	reader := runner.New(runner.Options{Store: e.store, Logger: slog.New(slog.DiscardHandler)})
	for cursor := ""; ; {
		runs, next, err := e.store.Runs(ctx, cursor, 500)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if err := e.readJournal(ctx, reader, r.Run); err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

func (e *evidence) readJournal(ctx context.Context, reader *runner.Runner, run wire.RunKey) error {
	entries, err := reader.Journal(ctx, run)
	if err != nil {
		return err
	}
	records, err := e.store.Entries(ctx, run, runner.Version{})
	if err != nil {
		return err
	}
	if len(records) != len(entries) {
		return fmt.Errorf("run %s moves on while its journal is read", run)
	}
	e.journals[run] = entries
	if e.clients.forgotten(run) {
		return nil
	}
	for i := range entries {
		e.checker.Committed(run, core.Digest(records[i].Data), &entries[i])
	}
	return nil
}

// published tells of all events that workers published: calls and their ends, terminal events, and the answers of agents.
func (e *evidence) published() {
	for _, z := range []streams.Zone{streams.Out, streams.Done, streams.In} {
		for i := range e.messages[z] {
			m := &e.messages[z][i]
			address, err := subjects.Parse(m.Subject)
			if err != nil {
				e.record.violate("a message on %s: %v", m.Subject, err)
				continue
			}
			if e.clients.forgotten(address.Run) || z == streams.In && (address.Kind != wire.KindIn || !servedByAgent(address.Call)) {
				continue
			}
			ev := m.event()
			if ev == nil {
				e.record.violate("a worker published what cannot be decoded on %s", m.Subject)
				continue
			}
			e.checker.Published(m.Subject, *ev, m.Data)
		}
	}
}

// deadLetters tells of all dead letters.
func (e *evidence) deadLetters() {
	prefix := strings.TrimSuffix(subjects.All(wire.KindDLQ), ">")
	for i := range e.messages[streams.DLQ] {
		tokens := strings.Split(strings.TrimPrefix(e.messages[streams.DLQ][i].Subject, prefix), ".")
		sequence, err := strconv.ParseUint(tokens[len(tokens)-1], 10, 64)
		if err != nil || len(tokens) != 3 {
			e.record.violate("a dead letter on %s", e.messages[streams.DLQ][i].Subject)
			continue
		}
		if sdk.Code(tokens[0]) == sdk.CodeInternal || sdk.Code(tokens[0]) == sdk.CodeConflict {
			e.record.violate("dead letter %s: %s", e.messages[streams.DLQ][i].Subject, e.messages[streams.DLQ][i].Header)
		}
		stream := strings.ToUpper(tokens[1])
		if !e.skipped[core.Cause{Stream: stream, Sequence: sequence}] {
			e.checker.DeadLettered(stream, sequence, sdk.Code(tokens[0]))
		}
	}
}

// executions tells of all tools that ran and of all model calls.
func (e *evidence) executions() {
	for _, n := range e.record.notes {
		if n.Kind == noteExecuted {
			e.checker.Executed(audit.Execution{Run: wire.NewRunKey(n.Run), Call: n.Call, AtMostOnce: n.Once})
		}
	}
	calls, _, _ := e.model.calls()
	untold := e.untold()
	for run, n := range calls {
		if e.clients.forgotten(run) {
			continue
		}
		for i := range n {
			if i < len(untold[run]) {
				e.checker.GeneratedUnwritten(run, untold[run][i])
			} else {
				e.checker.Generated(run)
			}
		}
	}
}

// untold are the messages of each run that may have had a model asked of which no entry tells: those that workers were given more than once,
// because who was given one first may not have written anything, and answers that were not written together with a reply, because others
// may have written to the run meanwhile, and what was asked then was in vain.
func (e *evidence) untold() map[wire.RunKey][]core.Cause {
	given, joint := map[core.Cause]int{}, map[core.Cause]bool{}
	for _, n := range e.record.notes {
		if n.Kind == noteDelivered {
			given[core.Cause{Stream: n.Stream, Sequence: n.Sequence}]++
		}
	}
	for _, journal := range e.journals {
		for i := range journal {
			if journal[i].Absorbed != nil {
				joint[journal[i].Cause] = true
			}
		}
	}
	answers := map[string]bool{}
	for _, z := range e.layout.Zones(streams.In) {
		answers[streams.Name(subjects, z)] = true
	}
	untold := map[wire.RunKey][]core.Cause{}
	for cause, times := range given {
		if run, known := e.drives[cause]; known && (times > 1 || answers[cause.Stream] && !joint[cause]) {
			untold[run] = append(untold[run], cause)
		}
	}
	return untold
}

// awaitRemoved gives the workers, which are still there, a while for the messages that came after all was at rest: timers of
// runs that are done.
func (e *evidence) awaitRemoved(ctx context.Context, inputs []audit.Message) error {
	for late := time.Now().Add(10 * time.Second); ; pause(ctx, 100*time.Millisecond) {
		var err error
		if e.acked, err = e.consumers(ctx); err != nil {
			return err
		}
		waiting := slices.ContainsFunc(inputs, func(in audit.Message) bool { return !e.removed(in) })
		if !waiting || time.Now().After(late) {
			return ctx.Err()
		}
	}
}

// removed reports whether every consumer that gets a message has acked it.
func (e *evidence) removed(in audit.Message) bool {
	address, err := subjects.Parse(in.Subject)
	for ref, state := range e.acked {
		if streams.Name(subjects, ref.Zone) != in.Stream || state.removed(in.Sequence) {
			continue
		}
		agent := address.Agent
		if slices.Contains(e.layout.Zones(streams.Out), ref.Zone) {
			agent = childAgent
		}
		if err != nil || ref.Name == streams.UnroutedConsumer || slices.Contains(e.layout.Consumers(streams.AgentConsumers(agent)...), ref) {
			return false
		}
	}
	return true
}
