package runner_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// unsure is a store that writes one entry without saying so, and does not answer again before something else has happened.
type unsure struct {
	*memory.Store
	rev       uint64
	meanwhile func()
}

func (s *unsure) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	v, err := s.Store.Append(ctx, run, base, next)
	if meanwhile := s.meanwhile; err == nil && next.Rev == s.rev && meanwhile != nil {
		s.meanwhile = nil
		meanwhile()
		return runner.Version{}, runner.ErrAmbiguous
	}
	return v, err
}

// recorded keeps the names of the calls that are published.
type recorded struct {
	nowhere
	calls *[]string
}

func (r recorded) Publish(_ context.Context, subject string, _ wire.Event) error {
	address, err := wire.DefaultSubjects().Parse(subject)
	if err == nil && address.Kind == wire.KindOut {
		*r.calls = append(*r.calls, address.Call.Call)
	}
	return err
}

// A driver's entry is written without its knowledge; before it learns of that, the run has ended, which closes the entry's call, and was
// taken up again with another attempt at it. The call that was closed is not made: its service may have forgotten that it was withdrawn.
func TestCommit_MakesNoCallThatAnEndHasClosed(t *testing.T) {
	t.Parallel()
	var calls []string
	var clock time.Duration
	store := &unsure{Store: memory.New(), rev: 2}
	issued := &atomic.Int64{}
	agent := newDesk(10, "lookup").agent()
	agent.Core.Reviews, agent.Core.Hooked = false, false // it waits at once
	worker := func(kept runner.Store) *runner.Runner {
		return runner.New(runner.Options{
			Store: kept, Publisher: recorded{calls: &calls}, Env: passing{still{issued}, &clock}, Catalog: only{agent},
			Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
		})
	}
	other := worker(store.Store)
	to := wire.Address{Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")}
	send := func(kind wire.Kind, verb wire.ControlVerb, due int64) {
		to.Kind, to.Verb, to.Who = kind, verb, "ann"
		v := other.Process(t.Context(), &runner.Message{
			Address: to, Due: due, Delivered: 1, Received: now + clock.Milliseconds(),
			Cause: core.Cause{Stream: string(kind), Sequence: 1, EventID: "m"},
			Event: wire.Event{ID: "m", Source: "ann", Type: "agentd.run.retry", Data: json.RawMessage(`{}`)},
		})
		if v != (runner.Verdict{}) {
			t.Errorf("%s %s is settled with %+v", kind, verb, v)
		}
	}
	store.meanwhile = func() {
		clock = time.Hour
		entries := journal(t, other, "order 7")
		send(wire.KindFire, "", entries[len(entries)-1].Head.Timer)
		clock += time.Second
		send(wire.KindCtl, wire.ControlRetry, 0)
	}
	if v := worker(store).Process(t.Context(), begun(1)); v.Settlement != runner.Leave {
		t.Errorf("the init event is settled with %+v, want it left to whoever has the run now", v)
	}

	var kinds []string
	for _, e := range journal(t, other, "order 7") {
		kinds = append(kinds, e.Kind)
	}
	for _, name := range calls {
		if ref, ok := wire.ParseCallRef(name); ok && ref.Attempt == 1 {
			t.Errorf("the call %s is made although it was closed; made were %v", name, calls)
		}
	}
	if len(calls) != 1 || !slices.Contains(kinds, core.KindRetried) {
		t.Errorf("made were the calls %v, in a run of %v; want one, of the run that was taken up again", calls, kinds)
	}
}

// dying is a model that is asked by a worker that ends then.
type dying struct{ end context.CancelFunc }

func (d dying) Generate(ctx context.Context, _ sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	d.end()
	return sdk.ModelReply{}, ctx.Err()
}

// A driver's first entry is written without its knowledge; before it learns of that, another delivery of its message has taken the run. The
// first does not take it back: with a store that says seldom what it has written, both would do so until the run counts as poison.
func TestAttempt_LeavesTheRunToWhoTookItSince(t *testing.T) {
	t.Parallel()
	store := &unsure{Store: memory.New(), rev: 1}
	issued := &atomic.Int64{}
	worker := func(kept runner.Store, model sdk.Provider) *runner.Runner {
		agent := newDesk(10, "lookup").agent()
		agent.Model = model
		return runner.New(runner.Options{
			Store: kept, Publisher: nowhere{}, Env: still{issued}, Catalog: only{agent},
			Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
		})
	}
	store.meanwhile = func() {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		worker(store.Store, dying{end}).Process(ctx, begun(2))
	}
	first := worker(store, nil)
	if v := first.Process(t.Context(), begun(1)); v.Settlement != runner.Leave {
		t.Errorf("the first delivery is settled with %+v, want it left to the second", v)
	}
	entries := journal(t, first, "order 7")
	last := entries[len(entries)-1]
	if len(entries) != 2 || last.Kind != core.KindTakenOver || last.Head.Driver.Takeovers != 1 {
		t.Errorf("the journal has %d entries, the last is %s by %+v; want the second delivery's after the first's", len(entries), last.Kind, last.Head.Driver)
	}
}
