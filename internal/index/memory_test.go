package index_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func filled() *index.Memory {
	m := index.NewMemory(func() time.Time { return time.UnixMilli(now) })
	for i := range 5 {
		m.Put(index.Document{
			V: 1, Run: fmt.Sprint("r", i), Agent: "a", Rev: 2, Status: wire.StatusWaiting, Changed: now - int64(i/2), Started: now - 100 + int64(i),
			Waits: []index.Wait{{Kind: "turn"}, {Kind: "turn"}},
		})
	}
	return m
}

func TestMemory_PagesThroughAll(t *testing.T) {
	t.Parallel()
	m := filled()
	for _, c := range []struct {
		q    index.Query
		want []string
	}{
		{index.Query{Limit: 2}, []string{"r0", "r1", "r2", "r3", "r4"}},
		{index.Query{Limit: 2, Oldest: true}, []string{"r4", "r2", "r3", "r0", "r1"}},
		{index.Query{Limit: 3, Sort: index.SortStarted}, []string{"r4", "r3", "r2", "r1", "r0"}},
		{index.Query{Limit: 1, Sort: index.SortTokens}, []string{"r0", "r1", "r2", "r3", "r4"}},
	} {
		var runs []string
		for {
			page, err := m.Query(t.Context(), c.q)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Documents {
				runs = append(runs, d.Run)
			}
			if c.q.After = page.Next; c.q.After == "" {
				break
			}
		}
		if !slices.Equal(runs, c.want) {
			t.Errorf("%+v: %q, want %q", c.q, runs, c.want)
		}
	}
}

// The pages of a query measure runs that go on up to the same moment: none is in two of them, and none in no page, however much later the
// next page is asked for.
func TestMemory_SortsByDurationAsOfTheFirstPage(t *testing.T) {
	t.Parallel()
	at := int64(now)
	m := index.NewMemory(func() time.Time { return time.UnixMilli(at) })
	put := func(run string, status wire.Status, started, changed int64) {
		m.Put(index.Document{V: 1, Run: run, Rev: 1, Status: status, Started: started, Changed: changed})
	}
	put("took 50", wire.StatusDone, now-100, now-50)
	put("takes 40", wire.StatusWaiting, now-40, now-1)
	put("took 30", wire.StatusDone, now-30, now)
	put("takes 20", wire.StatusRunning, now-20, now)
	put("nobody knows", wire.StatusRunning, 0, now)
	for _, c := range []struct {
		oldest bool
		want   []string
	}{
		{false, []string{"took 50", "takes 40", "took 30", "takes 20", "nobody knows"}},
		{true, []string{"nobody knows", "takes 20", "took 30", "takes 40", "took 50"}},
	} {
		at = now
		var runs []string
		for q := (index.Query{Sort: index.SortDuration, Oldest: c.oldest, Limit: 1}); ; {
			page, err := m.Query(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Documents {
				runs = append(runs, d.Run)
			}
			if len(runs) > len(c.want) {
				t.Fatalf("oldest %v: %q do not end", c.oldest, runs)
			}
			at += 15 // what goes on takes longer meanwhile
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(runs, c.want) {
			t.Errorf("oldest %v: %q, want %q", c.oldest, runs, c.want)
		}
	}
}

func TestMemory_RefusesTheCursorOfAnotherQuery(t *testing.T) {
	t.Parallel()
	m := filled()
	page, err := m.Query(t.Context(), index.Query{Limit: 2})
	if err != nil || page.Next == "" {
		t.Fatal(page.Next, err)
	}
	for _, q := range []index.Query{
		{After: page.Next, Sort: index.SortStarted}, {After: page.Next, Filter: index.Failed()}, {After: "?"}, {Sort: "name"},
	} {
		if _, err := m.Query(t.Context(), q); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestMemory_TellsOfChanges(t *testing.T) {
	t.Parallel()
	m := filled()
	changes := m.Changes(t.Context())
	m.Put(index.Document{Run: "r0", Rev: 1})
	m.Put(index.Document{Run: "r0", Rev: 3, Status: wire.StatusDone, Reason: wire.ReasonError})
	if d := <-changes; len(d) != 1 || d[0].Run != "r0" || d[0].Rev != 3 {
		t.Errorf("%+v, want revision 3 of r0", d)
	}
	counts, err := m.Counts(t.Context(), index.Filter{}, index.CountWaits)
	if err != nil || !slices.Equal(counts.Groups, []index.Count{{Value: "turn", N: 4}}) {
		t.Errorf("%+v %v, want 4 that wait for a turn", counts.Groups, err)
	}
	counts, err = m.Counts(t.Context(), index.Failed(), index.CountReason)
	if err != nil || !slices.Equal(counts.Groups, []index.Count{{Value: "error", N: 1}}) {
		t.Errorf("%+v %v, want 1 that ended with an error", counts.Groups, err)
	}
	for i := range 300 { // nobody reads
		m.Put(index.Document{Run: fmt.Sprint("new", i), Rev: 1})
	}
	n := 0
	for range changes {
		n++
	}
	if n != 64 {
		t.Errorf("%d changes before the channel was closed, want 64", n)
	}
}
