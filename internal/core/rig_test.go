package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// epoch is when all runs of these tests begin, in Unix milliseconds; second and minute are durations of that unit.
const (
	epoch  = 1_790_000_000_000
	second = 1_000
	minute = 60 * second
)

// rig keeps the journal of one run and plays the workers that write it, without a store and a broker. What it knows of
// the run it knows from the journal's bytes.
type rig struct {
	spec    *core.Spec
	now     int64
	lines   [][]byte
	entries []core.Entry
	state   core.State
	// blobs are the sections that are stored beside the journal, by digest: all of them, or none if it is nil.
	blobs map[string][]byte
	// delivered counts the messages from outside; causes are what the activations work on, by owner.
	delivered uint64
	causes    map[string]core.Cause
	// joins has the rig keep a change that may be one entry with what follows; unwritten is one that it keeps.
	joins     bool
	unwritten *core.Entry
	// alone says that activations are the only ones of their processes.
	alone bool
}

func newRig(spec *core.Spec) *rig {
	return &rig{spec: spec, now: epoch, causes: map[string]core.Cause{}}
}

// streams are where the events from outside come from.
func streamOf(ev core.Event) string {
	switch ev.(type) {
	case core.Started:
		return "AGENTD_START"
	case core.Fired:
		return "AGENTD_TMR"
	}
	return "AGENTD_IN"
}

// deliver is a new message that a new activation handles.
func (r *rig) deliver(eventID string, ev core.Event) core.Input {
	r.delivered++
	owner := fmt.Sprintf("w%d", r.delivered)
	return r.input(owner, core.Cause{Stream: streamOf(ev), Sequence: r.delivered, EventID: eventID}, ev)
}

func (r *rig) input(owner string, cause core.Cause, ev core.Event) core.Input {
	r.causes[owner] = cause
	return core.Input{At: r.now, Cause: cause, Owner: owner, Alone: r.alone, Rev: r.state.Rev + 1, Event: ev}
}

// work is something that an activation, by its owner, has done.
func (r *rig) work(owner string, ev core.Event) core.Input {
	return r.input(owner, r.causes[owner], ev)
}

// drive is something that the driver has done.
func (r *rig) drive(ev core.Event) core.Input { return r.work(r.state.Driver.Owner, ev) }

// redelivery is the driving message, delivered to a new activation.
func (r *rig) redelivery() core.Input {
	r.delivered++ // for the owner's name
	return r.input(fmt.Sprintf("w%d", r.delivered), r.causes[r.state.Driver.Owner], core.TakenOver{})
}

// step lets the input happen, and returns the change and the entry as it reads in the journal. A refused one leaves the
// rig as it was.
func (r *rig) step(in core.Input) (core.Change, *core.Entry, error) {
	change, entry, err := r.take(in)
	if err == nil {
		err = r.measure()
	}
	return change, entry, err
}

// measure fails when the state takes its conversation for larger or smaller than it is.
func (r *rig) measure() error {
	size := len(r.state.System)
	for _, m := range r.state.History {
		for _, c := range m.Content {
			size += len(c.Text) + len(c.Args) + len(c.Signature)
			if c.Media != nil {
				size += len(c.Media.Data)
			}
		}
	}
	if have := r.state.Size(); have != size {
		return fmt.Errorf("the conversation has %d bytes, and is taken for one of %d", size, have)
	}
	return nil
}

// take is step without a look at what it comes to.
func (r *rig) take(in core.Input) (core.Change, *core.Entry, error) {
	_, replied := in.Event.(core.Replied)
	first, rev := r.unwritten, r.state.Rev+1
	if first != nil && replied {
		rev = first.Rev
		in.Rev = rev
	}
	before := r.state.Head
	change, err := core.Step(r.spec, before, in)
	if err != nil {
		return core.Change{}, nil, err
	}
	if first != nil && !replied {
		if _, err := r.write(*first); err != nil {
			return core.Change{}, nil, err
		}
	}
	r.unwritten = nil
	entry := core.Entry{V: change.Head.V, Rev: rev, Etag: core.Digest(fmt.Append(nil, rev-1))[:26], Cause: in.Cause, At: in.At, Change: change}
	switch {
	case first != nil && replied:
		entry.Change = change.After(&first.Change)
		entry.V = entry.Head.V
		read, err := r.write(entry)
		if err == nil {
			r.state, err = core.ApplyRest(r.state, read)
		}
		return change, read, err
	case r.joins && change.Joinable(&before) && r.asks(&change):
		r.unwritten = &entry
		r.state, err = core.Apply(r.state, &entry)
		return change, &entry, err
	}
	read, err := r.write(entry)
	if err == nil {
		r.state, err = core.Apply(r.state, read)
	}
	return change, read, err
}

func (r *rig) asks(change *core.Change) bool {
	_, asks := core.Next(r.spec, &change.Head, r.now).(core.CallModel)
	return asks
}

// write adds an entry to the journal, and returns it as it reads there.
func (r *rig) write(entry core.Entry) (*core.Entry, error) {
	if n := len(r.lines); n > 0 {
		entry.Prev = core.Digest(r.lines[n-1])
	}
	line, err := r.encode(entry)
	if err != nil {
		return nil, err
	}
	read, err := r.decode(line)
	if err != nil {
		return nil, err
	}
	r.lines, r.entries = append(r.lines, line), append(r.entries, read)
	return &r.entries[len(r.entries)-1], nil
}

// encode moves the sections of e to blobs, if this journal has any.
func (r *rig) encode(e core.Entry) ([]byte, error) {
	if r.blobs == nil {
		return e.Encode()
	}
	var moved error
	move := func(name string, empty bool, section any) bool {
		if empty {
			return false
		}
		content, err := core.EncodeJSON(section)
		moved = errors.Join(moved, err)
		digest := core.Digest(content)
		r.blobs[digest] = content
		e.PutBeside(core.Blob{Section: name, Digest: digest, Size: len(content)})
		return true
	}
	if move("messages", len(e.Messages) == 0, e.Messages) {
		e.Messages = nil
	}
	if move("results", len(e.Results) == 0, e.Results) {
		e.Results = nil
	}
	if move("asks", len(e.Asks) == 0, e.Asks) {
		e.Asks = nil
	}
	if move("inquiries", len(e.Inquiries) == 0, e.Inquiries) {
		e.Inquiries = nil
	}
	if move("notes", len(e.Notes) == 0, e.Notes) {
		e.Notes = nil
	}
	if move("input", len(e.Input) == 0, e.Input) {
		e.Input = nil
	}
	if move("terminal", e.Terminal == nil, e.Terminal) {
		e.Terminal = nil
	}
	if moved != nil {
		return nil, moved
	}
	return e.Encode()
}

// written is the state that the journal alone tells of, and what of it watchers are told, without its place in the journal.
func (r *rig) written() (core.State, []wire.Live, error) {
	var state core.State
	var told []wire.Live
	for i := range r.entries {
		var err error
		if state, err = core.Apply(state, &r.entries[i]); err != nil {
			return state, told, err
		}
		for _, l := range milestone.Of(&r.entries[i]) {
			l.Revision, l.Index, l.Count = 0, 0, 0
			told = append(told, l)
		}
	}
	return state, told, nil
}

func (r *rig) decode(line []byte) (core.Entry, error) {
	e, err := core.DecodeEntry(line)
	for _, b := range e.Blobs {
		err = errors.Join(err, e.Restore(b, r.blobs[b.Digest]))
	}
	return e, err
}

func (r *rig) next() core.Action { return core.Next(r.spec, &r.state.Head, r.now) }

// effect is what the entry that opened the call lists for it.
func (r *rig) effect(opened uint64, call string) core.Effect {
	return r.entries[opened-1].Effect(core.EffectCall, call)
}

// answer is the response of the service or person that was asked, on the subject of its i-th domain.
func (r *rig) answer(f core.Effect, i int, data string) core.Answered {
	ref, _ := wire.ParseCallRef(f.Call) // the core's own id
	ref.Attempt = max(f.Attempt, 1)
	if i > 0 {
		ref.Domain = wire.DomainToken(f.Lanes()[i])
	}
	return core.Answered{
		Ref: ref, ParentID: ref.EventID(), Data: json.RawMessage(data), EventID: "answer-" + ref.EventID(), Source: f.Type,
		Address: wire.CallAddress{
			Domain: wire.DomainToken(f.Lanes()[i]), Type: wire.NameToken(f.Type), Agent: wire.NameToken(r.spec.Name),
			Run: r.state.Key(), Call: ref.EventID(),
		},
	}
}

func started(run, message string) core.Started {
	init := core.Init{ID: "init-1", Source: "shop.web", RedirectTo: "shop.web"}
	init.Token = wire.InitToken(init.Source, init.ID)
	data, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		panic(err) // strings always encode
	}
	return core.Started{
		Run: run, Init: init, Data: data,
		Beginning: core.Beginning{System: "Be brief.", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, message)}},
	}
}

// validate accepts objects without a member "bad".
func validate(arguments string) (json.RawMessage, []sdk.Fault) {
	canonical, err := wire.Canonicalize([]byte(arguments))
	if err != nil || canonical[0] != '{' {
		return nil, []sdk.Fault{{Path: "$", Expected: "a JSON object", Got: strings.ToValidUTF8(arguments, "?")}}
	}
	if bytes.Contains(canonical, []byte(`"bad"`)) {
		return nil, []sdk.Fault{{Path: "$.bad", Expected: "nothing", Got: "a member"}}
	}
	return canonical, nil
}

// output is an output builder: the answer must be a JSON object.
func output(text string) *core.Output {
	if canonical, err := wire.Canonicalize([]byte(text)); err == nil && canonical[0] == '{' {
		return &core.Output{Data: canonical}
	}
	return &core.Output{Fault: "The answer must be a JSON object."}
}

// replied is a model's reply to the run: with its output where one is needed, or with the plan of its calls, which nobody has ruled
// on.
func (r *rig) replied(text string, calls ...sdk.ToolRequest) core.Replied {
	ev := core.Replied{Reply: sdk.ModelReply{
		Text: text, Calls: calls, Units: 1_500_000, Usage: sdk.Usage{Prompt: 20, Completion: 5}, Model: "scripted",
	}, Results: r.state.Shown()}
	switch {
	case len(calls) > 0:
		ev.Admission = r.plan(ev.Reply)
	case !r.spec.Converse:
		ev.Output = output(text)
	}
	return ev
}

func (r *rig) plan(reply sdk.ModelReply, hidden ...string) *core.Admission {
	return core.Admit(r.spec, &r.state.Head, r.state.Input, reply, hidden, r.now)
}

func service(name string, timeout int64, domains ...string) core.Tool {
	return core.Tool{
		Name: name, Kind: core.CallService, Type: "shop." + name, Schema: "#/shop/" + name + "/1.0.0", Domains: domains,
		Timeout: timeout, Validate: validate,
	}
}

func inline(name string, atMostOnce bool) core.Tool {
	return core.Tool{Name: name, Kind: core.CallInline, AtMostOnce: atMostOnce, Validate: validate}
}

func newSpec(tools ...core.Tool) *core.Spec {
	return &core.Spec{
		Name: "travel.desk", Digest: core.Digest([]byte("travel.desk")), Type: "travel.desk", OutputType: "travel.desk.done",
		Schema: "#/travel/desk/1.0.0", ErrorSchema: "#/travel/desk/0.0.0", TurnSchema: "#/agentd/conversation/turn/1.0.0",
		QuestionSchema: "#/agentd/question/ask/1.0.0",
		MaxTurns:       20, RunDeadline: 60 * minute, TurnTimeout: 30 * minute, StaleAfter: 3 * minute, Tools: tools,
	}
}

// encode is core.EncodeJSON for what always encodes.
func encode(tb interface{ Fatalf(string, ...any) }, v any) string {
	data, err := core.EncodeJSON(v)
	if err != nil {
		tb.Fatalf("encode %T: %v", v, err)
	}
	return string(data)
}

// reviewed is what a driver feeds back whose hooks were shown all that there is.
func (r *rig) reviewed() core.Reviewed {
	var ev core.Reviewed
	for _, c := range r.state.Untold() {
		ev.Late = append(ev.Late, c.CallID)
	}
	return ev
}
