// Package audit checks that what happened is what the protocol promises: the invariants I1 to I18 of a run's journal,
// of the events around it and of the executions of its tools. It serves the simulator, which tells it everything at the
// moment it happens, and whoever has collected logs of a real system.
//
//	I1  one terminal event for each init, and    I9  fences only grow
//	    for each retry or undo
//	I2  one result for each call, for ever       I10 a removed message is in a journal, or dead-lettered, or a duplicate
//	I3  no event before its entry                I11 every run ends
//	I4  the effects of every entry are out       I12 at-most-once tools run once, others once for each driver
//	I5  one content for each event id            I14 every message is removed in the end
//	I6  a journal is a chain that only grows     I15 a message changes no run but its own
//	I7  done is for ever, but for those          I16 nothing times out early
//	I8  every call has a result before the next model call
//	I13 a call that needs permission is made only with a decision that covers it: in time, on its arguments, by whom the
//	    request names, as often as it says
//	I18 a call is undone once, and only one that returned without an error
//	I19 a step of a plan is called once, after those that it refers to, and is the same for whoever drives the run; a call that a step has
//	    made is not made again by a later plan, nor without one
//	I17 a parked run goes on when its time has come or it is unparked, a paused one when it is resumed, and not before
//
// A call that was closed need not be out: nobody publishes it then, and its stream may have forgotten it.
//
// R3 and R5 stand for the rules of those names: the message that covers a run is not removed while the run is driven, and
// only the end of a driver's lease makes another one.
package audit

import (
	"fmt"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Violation is something that must not have happened.
type Violation struct {
	// Invariant is its name, such as "I5".
	Invariant string `json:"invariant"`
	// Run is the key of the run, when there is one, and Entry the revision of the entry that was looked at.
	Run    string `json:"run,omitempty"`
	Entry  uint64 `json:"entry,omitempty"`
	Detail string `json:"detail"`
}

func (v Violation) String() string {
	if v.Run == "" {
		return fmt.Sprintf("%s: %s", v.Invariant, v.Detail)
	}
	return fmt.Sprintf("%s: run %s: %s", v.Invariant, v.Run, v.Detail)
}

// Message is a message that workers consume.
type Message struct {
	Stream   string
	Sequence uint64
	Subject  string
	// Received is when the broker stored it, in Unix milliseconds.
	Received int64
	// Event is nil for a fired timer and for what cannot be decoded.
	Event *wire.Event
	// Due is what a fired timer was armed for.
	Due int64
}

// Execution is one run of an inline tool.
type Execution struct {
	Run        wire.RunKey
	Call       string
	AtMostOnce bool
	// Args are what the tool was given; nil is not known.
	Args []byte
}

// Checker collects violations. It must be told what happened in an order that respects causes: an entry after the
// message that it names, an event after its entry. It is used by one goroutine.
type Checker struct {
	subjects   wire.Subjects
	violations []Violation

	runs   map[wire.RunKey]*run
	order  []*run
	inputs map[position]*input
	// arrived are the inputs in their order.
	arrived []*input
	// inits are the init events by the id of the terminal event that each must get.
	inits map[string]*initial
	// entry is the revision of the entry that is looked at.
	entry uint64
	// policy is what was set by Policy; recorded are the grants that reach beyond their run.
	policy   Policy
	recorded map[string]record
	// voided are the calls that nobody waited for any more before they were handled.
	voided map[wire.CallAddress]bool
	// horizon is how far back the published events are known, in Unix milliseconds.
	horizon int64
	// events are the published events by subject; ids are their subjects by event id.
	events map[string]published
	ids    map[string]string
}

// position identifies an input.
type position struct {
	stream   string
	sequence uint64
}

func positionOf(c core.Cause) position { return position{c.Stream, c.Sequence} }

// input is a message with what became of it.
type input struct {
	Message
	address wire.Address
	// run is the one that the message is for; known is false when its subject or event cannot be read.
	run   wire.RunKey
	known bool
	// token identifies an init event, or a question of an agent that the run has called; empty for all else.
	token    string
	question bool
	letter   sdk.Code
	removed  bool
	// forgotten says that nothing but its position is known.
	forgotten bool
}

// initial is an init event: subjects are where its terminal event may go (the attempts at one call are one init),
// answered is where it went.
type initial struct {
	run      wire.RunKey
	token    string
	subjects []string
	answered string
}

type published struct {
	data  []byte
	event wire.Event
}

// run is what the checker knows of a run.
type run struct {
	key wire.RunKey
	// entries are the parts of all entries.
	entries []*core.Entry
	digest  string
	etags   map[string]bool
	causes  map[position]bool
	calls   map[string]*call
	// requests are the permission requests, and grants what decisions on them allow, by their ids.
	requests map[string]*request
	grants   map[string]*grant
	// asked are the calls of the model, in order, that its history must answer.
	asked []*call
	// generations counts model calls, accepted or not; urgent the messages that may have interrupted one.
	generations, urgent int
	// unwritten are the messages that had a model called before they were written.
	unwritten map[position]bool
	// summarised is how many messages of the history its summary stands for.
	summarised int
	// notes are the messages for the model that wait or have waited, by their ids: how often each was said.
	notes map[string]int
	// undone are the calls that were undone, or may have been.
	undone map[string]bool
	// voided says that whoever drives the run must find that nobody waits for it.
	voided bool
	// armed is what the run's timer was last armed for.
	armed int64
	// pauseKnown says that whoever drives the run knows that it is paused.
	pauseKnown bool
}

// call is a call of a run.
type call struct {
	id string
	// event is the id that the call's events have: of a permission request in a batch, the batch's.
	event string
	tool  string
	args  []byte
	// edited says that the arguments are an approver's.
	edited bool
	// person says that it is a turn or a permission request, whose data is not the arguments of a tool.
	person bool
	opened *core.Entry
	due    int64
	// voided is the last attempt that was given up when the run ended.
	voided int
	result *core.Result
	// held says that it waited for a decision, approved that it got one that allows it, permitted that this was looked at.
	held, approved, permitted bool
	// told counts the results in the history, executed the executions of an inline tool, questions what it asked people.
	told, executed, questions int
}

// New returns a Checker for the subjects of one root.
func New(subjects wire.Subjects) *Checker {
	return &Checker{
		subjects: subjects, runs: map[wire.RunKey]*run{}, inputs: map[position]*input{}, inits: map[string]*initial{},
		events: map[string]published{}, ids: map[string]string{}, recorded: map[string]record{},
		voided: map[wire.CallAddress]bool{},
	}
}

// Violations are those found so far.
func (c *Checker) Violations() []Violation { return c.violations }

func (c *Checker) violate(invariant string, run wire.RunKey, format string, args ...any) {
	v := Violation{Invariant: invariant, Entry: c.entry, Detail: fmt.Sprintf(format, args...)}
	if run != (wire.RunKey{}) {
		v.Run = run.String()
	}
	c.violations = append(c.violations, v)
}

// Input tells of a message that was stored and that workers consume.
func (c *Checker) Input(m Message) {
	in := &input{Message: m}
	c.inputs[position{m.Stream, m.Sequence}] = in
	c.arrived = append(c.arrived, in)
	address, err := c.subjects.Parse(m.Subject)
	if err != nil {
		return
	}
	in.address, in.run, in.known = address, address.Run, true
	switch address.Kind {
	case wire.KindStart:
		if in.known = m.Event != nil; in.known {
			c.started(in)
		}
	case wire.KindOut, wire.KindVoid:
		ref, ok := wire.ParseCallRef(address.Call.Call)
		if in.known = ok && m.Event != nil; !in.known {
			return
		}
		in.run = wire.NewRunKey(core.RunName(address, *m.Event))
		if address.Kind == wire.KindOut {
			in.token = wire.InitToken("", ref.ID)
			c.awaits(in, c.subjects.Reply(in.address.Call))
		}
		in.question = core.IsQuestion(address, *m.Event)
	default:
	}
}

func (c *Checker) started(in *input) {
	in.token = wire.InitToken(in.Event.Source, in.Event.ID)
	name := in.Event.Subject
	if name == "" {
		name = wire.DefaultSubject(in.token)
	}
	in.run = wire.NewRunKey(name)
	c.awaits(in, c.subjects.Done(in.address.Agent, in.run, in.token))
}

// awaits notes where the init event's terminal event belongs.
func (c *Checker) awaits(in *input, subject string) {
	id := wire.TerminalID(in.run, in.token)
	init, ok := c.inits[id]
	if !ok {
		init = &initial{run: in.run, token: in.token}
		c.inits[id] = init
	}
	init.subjects = append(init.subjects, subject)
}

// DeadLettered tells that an input was put to the dead letters.
func (c *Checker) DeadLettered(stream string, sequence uint64, reason sdk.Code) {
	if in := c.inputs[position{stream, sequence}]; in != nil {
		in.letter = reason
		c.awaited(in, reason)
		return
	}
	c.violate("I14", wire.RunKey{}, "dead letter of %s %d, which was never stored", stream, sequence)
}

func (c *Checker) run(key wire.RunKey) *run {
	r, ok := c.runs[key]
	if !ok {
		r = &run{
			key: key, etags: map[string]bool{}, causes: map[position]bool{}, calls: map[string]*call{},
			notes: map[string]int{}, requests: map[string]*request{}, grants: map[string]*grant{}, undone: map[string]bool{},
			unwritten: map[position]bool{},
		}
		c.runs[key] = r
		c.order = append(c.order, r)
	}
	return r
}

// last is the run's last entry, or the zero Entry.
func (r *run) last() *core.Entry {
	if len(r.entries) == 0 {
		return &core.Entry{}
	}
	return r.entries[len(r.entries)-1]
}
