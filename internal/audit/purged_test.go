package audit_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// tombstone is that of the run as told so far, after alter had a hand in it.
func (s *story) tombstone(alter func(*core.Entry)) {
	s.t.Helper()
	e, err := core.Tombstone(&s.entry, s.digest, "purged", now)
	if err != nil {
		s.t.Fatal(err)
	}
	if alter != nil {
		alter(&e)
	}
	data, err := e.Encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.Committed(key, core.Digest(data), &e)
}

// forgotten tells what is left of the story when the run's history was removed: its messages and events, and a tombstone.
func forgotten(replace map[string]func(*story)) map[string]func(*story) {
	// The journal and the tools are told to somebody else.
	elsewhere := func(name string) func(*story) {
		return func(s *story) {
			checker := s.Checker
			s.Checker = audit.New(subjects)
			steps()[name](s)
			s.Checker = checker
		}
	}
	all := map[string]func(*story){called: nil, ran: elsewhere(ran), acked: nil}
	for _, name := range []string{started, replied, began, returned, answered} {
		all[name] = elsewhere(name)
	}
	all[ended] = func(s *story) {
		elsewhere(ended)(s)
		s.tombstone(nil)
		steps()[called](s)
		s.Generated(key)
		steps()[ran](s)
	}
	all[finished] = func(s *story) {
		steps()[acked](s)
		steps()[finished](s)
	}
	maps.Copy(all, replace)
	return all
}

func TestChecker_AcceptsARunWhoseHistoryWasRemoved(t *testing.T) {
	for name, replace := range map[string]map[string]func(*story){
		"before the audit": forgotten(nil),
		"during the audit": {finished: func(s *story) { steps()[finished](s); s.tombstone(nil) }},
	} {
		if found := play(t, replace); len(found) > 0 {
			t.Errorf("%s: violations: %v", name, found)
		}
	}
}

func TestChecker_FindsWrongTombstones(t *testing.T) {
	buried := func(alter func(*core.Entry)) map[string]func(*story) {
		return map[string]func(*story){finished: func(s *story) { steps()[finished](s); s.tombstone(alter) }}
	}
	for _, test := range []struct {
		name, invariant string
		replace         map[string]func(*story)
	}{
		{"no terminal event", "R3", forgotten(map[string]func(*story){told: nil})},
		{"no terminal event, though nothing is removed", "I4", forgotten(map[string]func(*story){told: nil, finished: nil})},
		{"terminal event with another id", "I1", forgotten(map[string]func(*story){told: func(s *story) {
			ev := s.terminal()
			ev.ID = "t-other"
			s.publish(s.done(), ev)
		}})},
		{"of another journal", "I6", buried(func(e *core.Entry) { e.Head.Purged.Digest = "other" })},
		{"of half the journal", "I6", buried(func(e *core.Entry) { e.Head.Purged.Rev-- })},
		{"after another", "I6", map[string]func(*story){finished: func(s *story) { s.tombstone(nil); s.tombstone(nil) }}},
		{"of a run that ended otherwise", "I7", buried(func(e *core.Entry) { e.Head.Reason = core.ReasonCancelled })},
		{"of a run that is not done", "I7", buried(func(e *core.Entry) { e.Head.Status = core.StatusWaiting })},
		{"of another run", "I15", buried(func(e *core.Entry) { e.Head.Run = "other" })},
		{"in the middle of a journal", "I7", map[string]func(*story){ended: nil, told: nil, answered: func(s *story) {
			steps()[answered](s)
			e := s.entry
			e.Head.Status, e.Head.Driver, e.Head.Calls, e.Head.Reason = core.StatusDone, nil, nil, core.ReasonCompleted
			s.entry = e
			s.tombstone(nil)
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := play(t, test.replace)
			if !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Invariant == test.invariant }) {
				t.Errorf("violations %v, want one of %s", found, test.invariant)
			}
		})
	}
}

// TestChecker_AcceptsWhatAnotherJournalHadAskedFor: the store lost the run, and its end says so.
func TestChecker_AcceptsWhatAnotherJournalHadAskedFor(t *testing.T) {
	lost := func(code string) []audit.Violation {
		end := func(s *story) {
			s.entry, s.digest, s.head = core.Entry{}, "", core.Head{}
			begun, err := core.Step(s.spec, s.head, core.Input{At: now, Cause: s.cause, Owner: "w", Rev: 1, Event: core.Started{
				Run: "run", Init: core.Init{ID: "i", Source: "c", Token: wire.InitToken("c", "i")},
			}})
			if err != nil {
				s.t.Fatal(err)
			}
			s.head = begun.Head
			s.commit(core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeStateLost, Message: "lost"}}, func(e *core.Entry) {
				e.Terminal.Data = json.RawMessage(`{"code":"` + code + `"}`)
			})
			steps()[called](s)
			ev := s.terminal()
			ev.Type = s.entry.Terminal.Type
			s.publish(s.done(), ev)
		}
		return play(t, map[string]func(*story){
			started: nil, replied: nil, called: nil, began: nil, ran: nil, returned: nil, acked: nil, answered: nil, told: nil,
			ended: end, finished: func(s *story) { steps()[acked](s); steps()[finished](s) },
		})
	}
	if found := lost("state_lost"); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
	if found := lost("internal"); len(found) != 1 || found[0].Invariant != "I3" {
		t.Errorf("of a run that was not lost: %v", found)
	}
}
