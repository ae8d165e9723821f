package runner_test

import (
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// mostAllocations is how often memory is allocated at most for a step, from an answer in hand to the call that the model's reply asks for:
	// some more than was counted, 109, and 127 with the race detector. Who makes a step cheaper lowers it. The test's own model, validation and
	// store take part.
	mostAllocations = 140
	// mostGrowth is how much more it may be after 500 others: a list of 1,000 messages is a tree of a few levels. One allocation for each entry
	// would be 500.
	mostGrowth = 40
)

// A step allocates what it did, and no more where the history is long. The test is not parallel: the runtime counts for the whole process.
func TestStep_AllocatesNoMoreWhereTheHistoryIsLong(t *testing.T) {
	d := newDesk(100, "lookup")
	a := d.agent()
	a.Core.MaxTurns, a.Core.NeedsRulings, a.Core.Reviews, a.Core.Hooked, a.Phases = 10_000, false, false, false, nil
	a.CheckAnswer = func(_ core.Call, ev wire.Event, _ string) (runner.Answer, *sdk.Error) {
		return runner.Answer{Data: ev.Data}, nil
	}
	store := memory.New()
	r := runner.New(runner.Options{
		Store: store, Publisher: nowhere{}, Env: still{&atomic.Int64{}}, Catalog: only{a},
		Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	process(t, r, "order 7", starts, `{}`)
	key := wire.NewRunKey("order 7")
	step := func() (allocations uint64) {
		last, err := store.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := core.DecodeEntry(last.Data)
		if err != nil {
			t.Fatal(err)
		}
		if len(entry.Head.Calls) != 1 || entry.Head.Status != core.StatusWaiting {
			t.Fatalf("the run is %s, with %d calls", entry.Head.Status, len(entry.Head.Calls))
		}
		to := wire.Address{Kind: wire.KindIn, Call: wire.CallAddress{
			Domain: wire.DomainToken(""), Type: wire.NameToken("shop.lookup"), Agent: wire.NameToken("desk"), Run: key, Call: entry.Head.Calls[0].Event(),
		}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		process(t, r, "order 7", to, `{"found": "a room for two nights, with a view"}`)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	// median of steps, of which one now and then grows a map or a slice.
	median := func() uint64 {
		const steps = 31
		var each []uint64
		for range steps {
			each = append(each, step())
		}
		slices.Sort(each)
		return each[steps/2]
	}
	early := median()
	for range 500 {
		step()
	}
	late := median()
	t.Logf("a step allocates %d times, and %d times after 530 others", early, late)
	if early > mostAllocations {
		t.Errorf("a step allocates %d times, and may %d times", early, mostAllocations)
	}
	if late > early+mostGrowth {
		t.Errorf("after 530 others, a step allocates %d times, where it had %d times", late, early)
	}
}
