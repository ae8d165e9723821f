package audit_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	streamStart = "AGENTD_START"
	streamIn    = "AGENTD_IN"
	streamTimer = "AGENTD_TMR"
	now         = 1_700_000_000_000
	hour        = 3_600_000
)

var subjects = wire.DefaultSubjects()

// story is one run, told to a checker step by step: it calls a service and an at-most-once tool, is answered, and ends.
type story struct {
	*audit.Checker
	t      *testing.T
	spec   *core.Spec
	head   core.Head
	entry  core.Entry
	digest string
	cause  core.Cause
}

func tell(t *testing.T) *story {
	accept := func(arguments string) (json.RawMessage, []sdk.Fault) { return json.RawMessage(arguments), nil }
	return &story{
		Checker: audit.New(subjects), t: t, cause: core.Cause{Stream: streamStart, Sequence: 1, EventID: "i"},
		spec: &core.Spec{
			Name: "desk", Digest: "d", Type: "shop.desk", OutputType: "shop.desk.done", MaxTurns: 5,
			RunDeadline: hour, StaleAfter: hour,
			Tools: []core.Tool{
				{Name: "book", Kind: core.CallService, Type: "shop.book", Timeout: 1000, Validate: accept},
				{Name: "charge", Kind: core.CallInline, AtMostOnce: true, Validate: accept},
			},
		},
	}
}

var key = wire.NewRunKey("run")

// commit lets the core take an event and tells the entry, after alter had a hand in it.
func (s *story) commit(ev core.Event, alter func(*core.Entry)) {
	s.t.Helper()
	rev := s.entry.Rev + 1
	change, err := core.Step(s.spec, s.head, core.Input{At: now, Cause: s.cause, Owner: "w", Rev: rev, Event: ev})
	if err != nil {
		s.t.Fatalf("step %T: %v", ev, err)
	}
	s.head = change.Head
	e := core.Entry{V: 1, Rev: rev, Etag: fmt.Sprint("e", rev), Prev: s.digest, Cause: s.cause, At: now, Change: change}
	if alter != nil {
		alter(&e)
	}
	data, err := e.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.entry, s.digest = e, core.Digest(data)
	s.Committed(key, s.digest, &e)
}

// append tells an entry that the core did not make, with its head altered.
func (s *story) append(change core.Change, alter func(*core.Head)) {
	e := s.entry
	e.Rev, e.Etag, e.Prev, e.Change = e.Rev+1, "altered", s.digest, change
	if d := e.Head.Driver; d != nil {
		driver := *d
		e.Head.Driver = &driver
	}
	alter(&e.Head)
	s.Committed(key, "altered", &e)
}

func (s *story) publish(subject string, ev wire.Event) {
	s.t.Helper()
	data, err := ev.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.Published(subject, ev, data)
}

// call is where the call of the service lives.
func (s *story) call() wire.CallAddress {
	return wire.CallAddress{Domain: "local", Type: "shop_book", Agent: "desk", Run: key, Call: bookID}
}

func id(index int, tool string) string {
	return wire.CallID(key, wire.InitToken("c", "i"), 1, index, tool, []byte(`{}`))
}

var bookID, chargeID = id(0, "book"), id(1, "charge")

func (s *story) callEvent() wire.Event {
	reply := subjects.Reply(s.call())
	return wire.Event{
		ID: bookID, Source: reply, RedirectTo: reply, Type: "shop.book", Subject: "run", ParentID: "i",
		Data: json.RawMessage(`{}`),
	}
}

func (s *story) terminal() wire.Event {
	return wire.Event{ID: wire.TerminalID(key, wire.InitToken("c", "i")), Source: "shop.desk", Type: "shop.desk.done"}
}

func (s *story) done() string { return subjects.Done("desk", key, wire.InitToken("c", "i")) }

// The steps of the story, in their order.
const (
	stored   = "the init event is stored"
	started  = "the run is started"
	replied  = "the model asks for both calls"
	called   = "the call is published"
	began    = "the tool is marked"
	ran      = "the tool runs"
	returned = "the tool's result is written"
	acked    = "the init event is removed"
	answer   = "the answer is stored"
	answered = "the answer is written"
	ended    = "the model's output is written"
	told     = "the terminal event is published"
	finished = "the answer is removed"
)

var order = []string{
	stored, started, replied, called, began, ran, returned, acked, answer, answered, ended, told, finished,
}

// calling is a reply that calls the tools.
func (s *story) calling(tools ...string) core.Replied {
	var reply sdk.ModelReply
	for _, tool := range tools {
		reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: tool, Arguments: `{}`})
	}
	return core.Replied{Reply: reply, Admission: core.Admit(s.spec, &s.head, nil, reply, nil, now)}
}

func steps() map[string]func(*story) {
	return map[string]func(*story){
		stored: func(s *story) {
			ev := wire.Event{ID: "i", Source: "c", Subject: "run"}
			s.Input(audit.Message{Stream: streamStart, Sequence: 1, Subject: subjects.Start("desk"), Received: now, Event: &ev})
		},
		started: func(s *story) {
			init := core.Init{ID: "i", Source: "c", Token: wire.InitToken("c", "i")}
			s.commit(core.Started{Run: "run", Init: init, Beginning: core.Beginning{Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "hi")}}}, nil)
		},
		replied: func(s *story) { s.commit(s.calling("book", "charge"), nil) },
		called:  func(s *story) { s.publish(subjects.Call(s.call()), s.callEvent()) },
		began:   func(s *story) { s.commit(core.Began{Calls: []string{chargeID}}, nil) },
		ran:     func(s *story) { s.Executed(audit.Execution{Run: key, Call: chargeID, AtMostOnce: true}) },
		returned: func(s *story) {
			result := core.Result{Call: chargeID, Kind: core.ResultInline, Data: json.RawMessage(`1`)}
			s.commit(core.Returned{Results: []core.Result{result}}, nil)
		},
		acked: func(s *story) { s.Removed(streamStart, 1) },
		answer: func(s *story) {
			ev := wire.Event{ID: "a", Source: "service", ParentID: bookID}
			s.Input(audit.Message{Stream: streamIn, Sequence: 1, Subject: subjects.Reply(s.call()), Received: now, Event: &ev})
		},
		answered: func(s *story) {
			s.cause = core.Cause{Stream: streamIn, Sequence: 1, EventID: "a"}
			ref, _ := wire.ParseCallRef(bookID)
			s.commit(core.Answered{Ref: ref, Address: s.call(), EventID: "a", Data: json.RawMessage(`2`)}, nil)
		},
		ended: func(s *story) {
			s.commit(core.Replied{Reply: sdk.ModelReply{Text: "done"}, Output: &core.Output{Data: json.RawMessage(`{}`)}}, nil)
		},
		told:     func(s *story) { s.publish(s.done(), s.terminal()) },
		finished: func(s *story) { s.Removed(streamIn, 1) },
	}
}

// play tells the story, in which replace takes the place of some steps (nil leaves them out).
func play(t *testing.T, replace map[string]func(*story)) []audit.Violation {
	t.Helper()
	s := tell(t)
	do := steps()
	for _, name := range order {
		step, replaced := replace[name]
		if !replaced {
			step = do[name]
		}
		if step != nil {
			step(s)
		}
	}
	return s.Finish()
}

func TestChecker_AcceptsASoundRun(t *testing.T) {
	if found := play(t, nil); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

// An init event that is stored where something else was before may be removed: nobody can say which of them was.
func TestChecker_AcceptsWhatNobodyCanTell(t *testing.T) {
	found := play(t, map[string]func(*story){finished: func(s *story) {
		steps()[finished](s)
		ev := wire.Event{ID: "i", Source: "c", Subject: "run"}
		s.Input(audit.Message{Stream: streamStart, Sequence: 2, Subject: subjects.Start("desk"), Received: now, Event: &ev})
		s.Forgotten(streamStart, 2)
		s.Removed(streamStart, 2)
	}})
	if len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

// needless is a timer for a run that has none, because its driver's message was thought to be gone: it is removed without effect.
func needless(s *story) {
	s.Input(audit.Message{Stream: streamTimer, Sequence: 1, Subject: subjects.Fire("desk", key), Received: now})
	s.Removed(streamTimer, 1)
}

// The driver's message may be another by then, or be there again.
func TestChecker_AcceptsATimerThatNobodyNeeds(t *testing.T) {
	if found := play(t, map[string]func(*story){started: func(s *story) { steps()[started](s); needless(s) }}); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

// TestChecker_FindsEachViolation breaks the story in one place at a time.
func TestChecker_FindsEachViolation(t *testing.T) {
	do := steps()
	then := func(name string, more func(*story)) func(*story) {
		return func(s *story) { do[name](s); more(s) }
	}
	before := func(name string, more func(*story)) func(*story) {
		return func(s *story) { more(s); do[name](s) }
	}
	altered := func(ev core.Event, alter func(*core.Entry)) func(*story) {
		return func(s *story) { s.commit(ev, alter) }
	}
	output := core.Replied{Reply: sdk.ModelReply{Text: "done"}, Output: &core.Output{Data: json.RawMessage(`{}`)}}
	tests := []struct {
		name, invariant string
		replace         map[string]func(*story)
	}{
		{"terminal event missing", "I1", map[string]func(*story){told: nil}},
		{"terminal event with another id", "I1", map[string]func(*story){told: func(s *story) {
			ev := s.terminal()
			ev.ID = "t-other"
			s.publish(s.done(), ev)
		}}},
		{"second result", "I2", map[string]func(*story){ended: altered(output, func(e *core.Entry) {
			e.Results = append(e.Results, core.Result{Call: bookID, Kind: core.ResultAnswer})
		})}},
		{"call before its entry", "I3", map[string]func(*story){replied: before(replied, do[called]), called: nil}},
		{"terminal event before its entry", "I3", map[string]func(*story){ended: before(ended, do[told]), told: nil}},
		{"message removed before its effects", "R3", map[string]func(*story){called: nil}},
		{"two contents of one event", "I5", map[string]func(*story){called: then(called, func(s *story) {
			ev := s.callEvent()
			ev.Data = json.RawMessage(`{"x":1}`)
			s.publish(subjects.Call(s.call()), ev)
		})}},
		{"call with other arguments", "I5", map[string]func(*story){called: func(s *story) {
			ev := s.callEvent()
			ev.Data = json.RawMessage(`{"x":1}`)
			s.publish(subjects.Call(s.call()), ev)
		}}},
		{"broken chain", "I6", map[string]func(*story){ended: altered(output, func(e *core.Entry) { e.Prev = "x" })}},
		{"entry after the end", "I7", map[string]func(*story){told: then(told, func(s *story) {
			e := s.entry
			e.Rev, e.Etag, e.Prev = e.Rev+1, "later", s.digest
			s.Committed(key, "later", &e)
		})}},
		{"model called over an open call", "I8", map[string]func(*story){answered: func(s *story) {
			s.head.Status, s.head.Calls = core.StatusRunning, nil
			s.head.Driver = &core.Driver{Stream: streamIn, Sequence: 1, Owner: "w"}
			s.cause = core.Cause{Stream: streamIn, Sequence: 1, EventID: "a"}
		}}},
		{"message never said", "I8", map[string]func(*story){ended: altered(output, func(e *core.Entry) {
			e.Notes = []core.Note{{ID: "n1", Text: "wait"}}
		})}},
		{"message let in twice", "I2", map[string]func(*story){ended: altered(output, func(e *core.Entry) {
			e.Notes = []core.Note{{ID: "n1", Text: "wait"}, {ID: "n1", Text: "wait"}}
		})}},
		{"summary of less than before", "I8", map[string]func(*story){
			replied: func(s *story) {
				s.commit(s.calling("book", "charge"), func(e *core.Entry) { e.Summary = &core.Summary{Messages: 2} })
			},
			ended: altered(output, func(e *core.Entry) { e.Summary = &core.Summary{Messages: 1} }),
		}},
		{"fence goes back", "I9", map[string]func(*story){ended: altered(output, func(e *core.Entry) { e.Head.Fence = 0 })}},
		{"new driver with the old fence", "I9", map[string]func(*story){ended: nil, told: nil, answered: then(answered,
			func(s *story) {
				e := s.entry
				driver := *e.Head.Driver
				driver.Owner = "other"
				e.Rev, e.Etag, e.Prev, e.Change = e.Rev+1, "next", s.digest, core.Change{Kind: "taken_over", Head: e.Head}
				e.Head.Driver = &driver
				s.Committed(key, "next", &e)
			})}},
		{"answer removed unread", "I10", map[string]func(*story){answered: nil, ended: nil, told: nil}},
		{"timer removed that stands for its driver", "I10", map[string]func(*story){started: then(started, func(s *story) {
			s.Forgotten(streamStart, 1)
			needless(s)
		})}},
		{"timer removed though its driver is gone", "I10", map[string]func(*story){started: then(started, func(s *story) {
			s.Removed(streamStart, 1)
			needless(s)
		})}},
		{"run not ended", "I11", map[string]func(*story){ended: nil, told: nil}},
		{"at-most-once tool runs again", "I12", map[string]func(*story){ran: then(ran, do[ran])}},
		{"at-most-once tool runs unmarked", "I12", map[string]func(*story){began: before(began, do[ran]), ran: nil}},
		{"model called too often", "I12", map[string]func(*story){started: then(started, func(s *story) {
			s.Generated(key)
			s.Generated(key)
		})}},
		{"cover removed", "R3", map[string]func(*story){began: before(began, do[acked])}},
		{"message never removed", "I14", map[string]func(*story){finished: nil}},
		{"cause of another run", "I15", map[string]func(*story){stored: func(s *story) {
			ev := wire.Event{ID: "i", Source: "c", Subject: "another"}
			s.Input(audit.Message{Stream: streamStart, Sequence: 1, Subject: subjects.Start("desk"), Event: &ev})
		}}},
		{"answered by another event", "I15", map[string]func(*story){answered: func(s *story) {
			s.cause = core.Cause{Stream: streamIn, Sequence: 1, EventID: "a"}
			ref, _ := wire.ParseCallRef(bookID)
			s.commit(core.Answered{Ref: ref, Address: s.call(), EventID: "b", Data: json.RawMessage(`2`)}, nil)
		}}},
		{"answer that claims to answer another call", "I15", map[string]func(*story){answer: func(s *story) {
			ev := wire.Event{ID: "a", Source: "service", ParentID: chargeID}
			s.Input(audit.Message{Stream: streamIn, Sequence: 1, Subject: subjects.Reply(s.call()), Received: now, Event: &ev})
		}}},
		{"answer from elsewhere", "I15", map[string]func(*story){answer: func(s *story) {
			from := s.call()
			from.Domain = "elsewhere"
			ev := wire.Event{ID: "a", Source: "service"}
			s.Input(audit.Message{Stream: streamIn, Sequence: 1, Subject: subjects.Reply(from), Received: now, Event: &ev})
		}}},
		{"driver replaced under its lease", "R5", map[string]func(*story){began: before(began, func(s *story) {
			ev := wire.Event{ID: "b", Source: "service"}
			s.Input(audit.Message{Stream: streamIn, Sequence: 9, Subject: subjects.Reply(s.call()), Received: now, Event: &ev})
			e := s.entry
			e.Rev, e.Etag, e.Prev, e.Change = e.Rev+1, "next", s.digest, core.Change{Kind: "answered", Head: e.Head}
			e.Cause = core.Cause{Stream: streamIn, Sequence: 9}
			e.Head.Fence++
			e.Head.Driver = &core.Driver{Stream: streamIn, Sequence: 9, Owner: "other"}
			s.Committed(key, "next", &e)
		})}},
		{"waits longer than a call", "I11", map[string]func(*story){returned: then(returned, func(s *story) {
			s.append(core.Change{Kind: "answered", Head: s.head}, func(h *core.Head) { h.Timer = h.Deadline })
		})}},
		{"waits for a timer that nobody armed", "I11", map[string]func(*story){returned: then(returned, func(s *story) {
			s.append(core.Change{Kind: "answered", Head: s.head}, func(h *core.Head) { h.Timer-- })
		})}},
		{"taken over for ever", "I11", map[string]func(*story){began: before(began, func(s *story) {
			s.append(core.Change{Kind: "taken_over", Head: s.head}, func(h *core.Head) { h.Driver.Deaths = core.MaxDeaths + 1 })
		})}},
		{"service is not told that nobody waits", "I4", map[string]func(*story){ended: nil, told: nil, answered: func(s *story) {
			s.commit(core.CancelAsked{}, func(e *core.Entry) { e.Effects = e.Effects[1:] })
		}}},
		{"awaited answer among the dead letters", "I10", map[string]func(*story){answer: then(answer, func(s *story) {
			s.DeadLettered(streamIn, 1, sdk.CodeUnknownRun)
		})}},
		{"timed out by an answer", "I16", map[string]func(*story){answered: func(s *story) {
			s.cause = core.Cause{Stream: streamIn, Sequence: 1, EventID: "a"}
			s.commit(core.Fired{Now: now + 1000, Due: s.head.Timer}, nil)
		}}},
		{"ended before its deadline", "I16", map[string]func(*story){ended: func(s *story) {
			s.commit(core.Ended{Ending: core.Ending{Reason: core.ReasonDeadline, Code: sdk.CodeDeadline}}, nil)
		}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := play(t, test.replace)
			if !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Invariant == test.invariant }) {
				t.Errorf("violations %v, want one of %s", found, test.invariant)
			}
		})
	}
}

func TestViolation_NamesInvariantAndRun(t *testing.T) {
	v := audit.Violation{Invariant: "I5", Run: "001.abc", Detail: "two contents"}
	if got := v.String(); !strings.HasPrefix(got, "I5: run 001.abc: ") {
		t.Errorf("violation prints as %q", got)
	}
}
