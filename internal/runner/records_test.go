package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// tallied is a store that counts the entries which are read.
type tallied struct {
	*memory.Store
	read int
}

func (s *tallied) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	records, err := s.Store.Entries(ctx, run, after)
	s.read += len(records)
	return records, err
}

func (s *tallied) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := s.Store.Part(ctx, run, from, most)
	s.read += len(records)
	return records, err
}

// workerOn is another worker, on that store, with an empty cache.
func (a *talk) workerOn(store runner.Store) *runner.Runner {
	return runner.New(runner.Options{
		Store: store, Publisher: nowhere{}, Env: still{&issued}, Catalog: only{a.agent},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
}

// long has a talk begin with so many rounds.
func long(t *testing.T, rounds int, then ...sdk.ModelReply) *talk {
	t.Helper()
	var replies []sdk.ModelReply
	for range rounds {
		replies = append(replies, calls("inline"))
	}
	a := newTalk(t, append(replies, then...)...)
	a.agent.Core.MaxTurns = 1000
	return a
}

// readByDecision is how many entries a decision reads that comes while its run is driven, after so many rounds.
func readByDecision(t *testing.T, rounds int) int {
	t.Helper()
	a := long(t, rounds, sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: "inline", Arguments: `{}`}, {Name: "book_ask", Arguments: `{"n":7}`}}}, says)
	d := newDesk(0, "inline", "book_ask")
	a.agent.Core.NeedsRulings, a.agent.Core.Continues, a.agent.Permissions = true, true, d
	a.agent.Core.Tools = append(a.agent.Core.Tools, core.Tool{Name: "book_ask", Kind: core.CallService, Type: "shop.book", Validate: d.validate("book_ask")})
	a.agent.CheckAnswer = func(c core.Call, _ wire.Event, _ string) (runner.Answer, *sdk.Error) {
		return runner.Answer{Data: json.RawMessage(`{}`), Decision: &sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: c.Permission.ArgsHash}}, nil
	}
	store := &tallied{Store: a.store}
	read, checked := 0, 0
	a.meanwhile[rounds+2] = func() { // the model has been told of the first call
		entries := journal(t, a.worker(), "order 7")
		opened := entries[len(entries)-2]
		store.read, checked = 0, d.checked["book_ask"]
		process(t, a.workerOn(store), "order 7", wire.Address{Kind: wire.KindIn, Who: "bob", Call: wire.CallAddress{
			Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypePermissionRequest), Agent: wire.NameToken("desk"),
			Run: wire.NewRunKey("order 7"), Call: opened.Requests[0].ID,
		}}, `{}`)
		read, checked = store.read, d.checked["book_ask"]-checked
	}
	process(t, a.workerOn(a.store), "order 7", starts, `{}`)
	if checked != 1 {
		t.Fatalf("the policy was asked %d times when the decision came, want once", checked)
	}
	entries := journal(t, a.worker(), "order 7")
	sent := false
	for i := range entries {
		for _, f := range entries[i].Effects {
			sent = sent || entries[i].Kind == core.KindAnswered && f.Kind == core.EffectCall
		}
	}
	if !sent {
		t.Fatal("the decision did not send the call")
	}
	return read
}

// A decision reads the entry that opened its call, and what has been written since, however long the history is.
func TestDecision_ReadsNoMoreWhereTheHistoryIsLong(t *testing.T) {
	t.Parallel()
	early, late := readByDecision(t, 2), readByDecision(t, 60)
	if want := 4; early != want || late != want {
		t.Errorf("a decision reads %d entries after 2 rounds and %d after 60, want %d: the one with the arguments, and that with the two after it",
			early, late, want)
	}
}

// readByRetry is how many entries a timer reads that has a call made again, after so many rounds.
func readByRetry(t *testing.T, rounds int) int {
	t.Helper()
	a := long(t, rounds, calls("lookup"))
	for i := range a.agent.Core.Tools {
		if tool := &a.agent.Core.Tools[i]; tool.Name == "lookup" {
			tool.Timeout, tool.Retry = time.Minute.Milliseconds(), core.Retry{Attempts: 2, Pause: 1, Longest: 1}
		}
	}
	process(t, a.workerOn(a.store), "order 7", starts, `{}`)
	store := &tallied{Store: a.store}
	r := a.workerOn(store)
	for _, want := range []int{1, 2} { // the first attempt is given up, and the second made
		entries := journal(t, a.worker(), "order 7")
		last := &entries[len(entries)-1].Head
		store.read = 0
		fire := &runner.Message{
			Address: wire.Address{Kind: wire.KindFire, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")}, Run: "order 7",
			Delivered: 1, Received: last.Timer, Due: last.Timer, Cause: core.Cause{Stream: "AGENTD_TMR", Sequence: uint64(len(entries))},
		}
		if v := r.Process(t.Context(), fire); v != (runner.Verdict{}) {
			t.Fatalf("the timer is settled with %+v", v)
		}
		entries = journal(t, a.worker(), "order 7")
		if got := entries[len(entries)-1].Head.Calls[0].Attempt; want == 2 && got != 2 {
			t.Fatalf("the call is at attempt %d, want 2", got)
		}
	}
	return store.read
}

// A call that is made again is read where it was opened, however long the history before is.
func TestRetriedCall_ReadsNoMoreWhereTheHistoryIsLong(t *testing.T) {
	t.Parallel()
	if early, late := readByRetry(t, 2), readByRetry(t, 60); early != late {
		t.Errorf("a call that is made again reads %d entries after 2 rounds and %d after 60", early, late)
	}
}

// damaged is a store whose blobs are not what was written, or gone.
type damaged struct {
	*memory.Store
	holds []byte
}

func (s damaged) Blob(context.Context, wire.RunKey, string) ([]byte, error) {
	if s.holds == nil {
		return nil, runner.ErrNotFound
	}
	return s.holds, nil
}

// A run that stops on a large result which is gone, or is another one, ends, and what drives it becomes a dead letter, at each delivery.
func TestCorruptResult_EndsItsRun(t *testing.T) {
	t.Parallel()
	for name, holds := range map[string][]byte{"gone": nil, "another": []byte(`{"other":1}`)} {
		t.Run(name, func(t *testing.T) {
			a := newTalk(t, calls("inline"))
			a.agent.Core.StopOn = []string{"inline"}
			a.agent.Inline["inline"] = sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return json.Marshal(map[string]string{"report": strings.Repeat("x", core.LargeResult)})
			}}
			r := a.workerOn(damaged{a.store, holds})
			for delivered := range 2 {
				v := r.Process(t.Context(), begun(delivered+1))
				if v.Settlement != runner.Reject || v.Problem == nil || v.Problem.Code != sdk.CodeCorrupt {
					t.Errorf("delivery %d is settled with %+v, want a dead letter that says corrupt_journal", delivered+1, v)
				}
				entries := journal(t, r, "order 7")
				if got := entries[len(entries)-1].Head.Termination(); got != "error:corrupt_journal" {
					t.Errorf("the run ends with %q, want error:corrupt_journal", got)
				}
			}
		})
	}
}

// garbled is a store in which what was written last can be read, and nothing before.
type garbled struct{ *memory.Store }

func (s garbled) Part(context.Context, wire.RunKey, uint64, int) ([]runner.Record, error) {
	return []runner.Record{{Version: runner.Version{Rev: 2}, Data: []byte(`{"v":1,`)}}, nil
}

// A decision that needs what cannot be read of the journal becomes a dead letter, as every other message does.
func TestDecision_OnADamagedJournalIsADeadLetter(t *testing.T) {
	t.Parallel()
	d := newDesk(10, "book_ask")
	agent, store := d.agent(), memory.New()
	agent.Core.Tools[0].Sets = &core.SetArguments{Names: []string{"n"}, Values: func(string, json.RawMessage) (map[string]json.RawMessage, error) {
		return map[string]json.RawMessage{"n": json.RawMessage("1")}, nil
	}}
	a := &talk{T: t, agent: agent, store: store}
	process(t, a.workerOn(store), "order 7", starts, `{}`)
	request := journal(t, a.workerOn(store), "order 7")[1].Requests[0]
	v := a.workerOn(garbled{store}).Process(t.Context(), &runner.Message{
		Address: wire.Address{Kind: wire.KindIn, Who: "bob", Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7"), Call: wire.CallAddress{
			Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypePermissionRequest), Agent: wire.NameToken("desk"),
			Run: wire.NewRunKey("order 7"), Call: request.ID,
		}},
		Event:     wire.Event{ID: "decision", Source: "bob", Data: json.RawMessage(`{"text":"y","n":1}`)},
		Delivered: 1, Received: now, Cause: core.Cause{Stream: "AGENTD_IN", Sequence: 2, EventID: "decision"},
	})
	if v.Settlement != runner.Reject || v.Problem == nil || v.Problem.Code != sdk.CodeCorrupt {
		t.Errorf("the decision is settled with %+v, want a dead letter that says corrupt_journal", v)
	}
}
