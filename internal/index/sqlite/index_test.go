package sqlite

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const now = 1_790_000_000_000

func clock() time.Time { return time.UnixMilli(now) }

func opened(t testing.TB) *Index {
	t.Helper()
	x, err := Open(t.Context(), filepath.Join(t.TempDir(), "runs of a?b.db"), clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// synthetic is the nth of many runs.
func synthetic(n int) *index.Document {
	d := &index.Document{
		V: 1, Run: fmt.Sprint("order ", n), Spec: fmt.Sprint("spec-", n%5), Agent: []string{"travel.desk", "travel.hotel", "invoice.check"}[n%3], Rev: 3, Status: wire.StatusDone,
		Reason: wire.ReasonCompleted, Who: fmt.Sprint("person-", n%97), Started: now - int64(n)*1000 - 60_000, Changed: now - int64(n)*700,
		Deadline: now + 3_600_000, Turns: n % 11, Tokens: index.Tokens{In: int64(n*7919) % 100_000, Out: int64(n % 50)},
		Tags: map[string]string{"tenant": fmt.Sprint("t", n%1000), "order": fmt.Sprint(n)},
		Text: fmt.Sprintf("Two weeks in %s for customer %d, please, with a view of the sea", []string{"Lisbon", "Porto", "Faro", "Évora"}[n%4], n%5000),
	}
	switch n % 10 {
	case 0:
		d.Status, d.Reason, d.Due = wire.StatusWaiting, "", now+int64(n)
		d.Waits = []index.Wait{{Kind: "permission", Tool: "pay", ID: "c1"}, {Kind: "permission", Tool: "book", ID: "c2"}}
	case 1:
		d.Status, d.Reason, d.Waits = wire.StatusRunning, "", nil
	case 2:
		d.Reason, d.Code = wire.ReasonError, "model_failed"
	case 3:
		d.Status, d.Reason, d.Waits, d.Tags = wire.StatusWaiting, "", []index.Wait{{Kind: "service", Tool: "hotel", ID: "c1"}}, nil
	}
	return d
}

func fill(t testing.TB, x *Index, from, to int) {
	t.Helper()
	var items []Item
	for n := from; n < to; n++ {
		if items = append(items, itemOf(synthetic(n), uint64(n+1))); len(items) == batch || n == to-1 {
			if err := x.take(t.Context(), 1, items); err != nil {
				t.Fatal(err)
			}
			items = items[:0]
		}
	}
}

var filters = []string{
	"", "agent:travel.*", "agent:travel.desk agent:invoice.check status:waiting", "waits:permission", "waits:*", "-waits:*", "waits:permission tool:pay",
	"tool:b*", "tag.tenant:t7", "tag.tenant:*", "-tag.tenant:*", "tag.tenant:t7 tag.order:7", "tag.order:1*", "tag.tenant:t7 tag.tenant:t8", "who:person-3",
	`who:""`, `parent:""`, "reason:error", "-reason:completed", `reason:""`, "code:model_failed", "changed>-30s", "changed<-30s changed>-1m", "due<+1m",
	"deadline>+2h", "duration>90s", "duration<70s", "tokens>50000", "interactions<3", "lisbon", "LISBON sea", "lis*", `"weeks in porto"`, `-"weeks in porto"`,
	`"in por"*`, "évora", "evora", `"order 17"`, "17", "-status:done lisbon tag.tenant:t4", `run:"order 5"`, `run:"order 5"*`, "status:waiting waits:permission agent:travel.desk",
	"waits:permission waits:question waits:turn", "waits:permission waits:service tool:pay status:waiting", "waits:permission waits:service -tag.tenant:t7 tag.order:1*",
}

// TestIndex_AnswersAsTheFiltersSay compares the file with the index in memory, which asks Filter.Matches.
func TestIndex_AnswersAsTheFiltersSay(t *testing.T) {
	t.Parallel()
	const runs = 300
	x, memory := opened(t), index.NewMemory(clock)
	fill(t, x, 0, runs)
	for n := range runs {
		memory.Put(*synthetic(n))
	}
	some := 0
	for _, text := range filters {
		f, err := index.ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []index.Query{
			{Filter: f, Limit: 7},
			{Filter: f, Limit: 7, Oldest: true},
			{Filter: f, Limit: 100, Sort: index.SortStarted},
			{Filter: f, Limit: 100, Sort: index.SortTokens, Oldest: true},
			{Filter: f, Limit: 7, Sort: index.SortDuration},
			{Filter: f, Limit: 100, Sort: index.SortDuration, Oldest: true},
		} {
			want, got := pages(t, memory, q), pages(t, x, q)
			if some += len(want); !slices.Equal(want, got) {
				t.Errorf("%s (%+v)\n got %q\nwant %q", text, q, got, want)
			}
		}
		for _, by := range []index.CountBy{index.CountStatus, index.CountReason, index.CountAgent, index.CountWaits, index.CountSpec} {
			want, err := memory.Counts(t.Context(), f, by)
			if err != nil {
				t.Fatal(err)
			}
			got, err := x.Counts(t.Context(), f, by)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Groups, got.Groups); diff != "" {
				t.Errorf("%s by %s: -memory +file\n%s", text, by, diff)
			}
		}
	}
	if some < 5000 {
		t.Errorf("the filters select %d runs in all; they show nothing", some)
	}
}

// pages are the names of all runs that a query selects, page after page.
func pages(t *testing.T, x index.Index, q index.Query) (runs []string) {
	t.Helper()
	for {
		page, err := x.Query(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", q.Filter, err)
		}
		for _, d := range page.Documents {
			runs = append(runs, d.Run)
		}
		if q.After = page.Next; q.After == "" {
			return runs
		}
	}
}

func TestIndex_KeepsTheNewestDocumentOfARun(t *testing.T) {
	t.Parallel()
	x := opened(t)
	changes := x.Changes(t.Context())
	old, waits, done := synthetic(0), synthetic(0), synthetic(0)
	old.Rev, waits.Rev, done.Rev = 1, 2, 5
	done.Status, done.Reason, done.Waits, done.Tags = wire.StatusDone, wire.ReasonCompleted, nil, map[string]string{"tenant": "other"}
	for i, d := range []*index.Document{waits, done, old} {
		if err := x.take(t.Context(), 1, []Item{itemOf(d, uint64(i+1))}); err != nil {
			t.Fatal(err)
		}
	}
	got, known, err := x.Get(t.Context(), "order 0")
	if diff := cmp.Diff(*done, got, cmpopts.EquateEmpty()); err != nil || !known || diff != "" {
		t.Errorf("%v %v\n%s", known, err, diff)
	}
	for text, want := range map[string]int{"tag.tenant:t0": 0, "tag.tenant:other": 1, "waits:*": 0, "lisbon": 1, "status:waiting": 0} {
		f, err := index.ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(pages(t, x, index.Query{Filter: f})); n != want {
			t.Errorf("%s selects %d, want %d", text, n, want)
		}
	}
	if err := x.take(t.Context(), 1, []Item{{Token: wire.NewRunKey("order 0").Token, Sequence: 9}}); err != nil {
		t.Fatal(err)
	}
	if _, known, err = x.Get(t.Context(), "order 0"); known || err != nil || len(pages(t, x, index.Query{})) != 0 {
		t.Errorf("known %v, %v, although it was withdrawn", known, err)
	}
	if first, second := <-changes, <-changes; first[0].Rev != 2 || second[0].Rev != 5 {
		t.Errorf("told of revisions %d and %d, want 2 and 5", first[0].Rev, second[0].Rev)
	}
	if p, err := x.place(t.Context()); err != nil || p.sequence != 9 {
		t.Errorf("%+v %v, want the place 9", p, err)
	}
}

// What is taken up together leaves what it leaves one by one.
func TestIndex_TakesUpTogetherWhatItTakesUpOneByOne(t *testing.T) {
	t.Parallel()
	of := func(rev uint64) *index.Document {
		d := synthetic(0)
		d.Rev = rev
		return d
	}
	for name, documents := range map[string][]*index.Document{
		"a run that ends":                     {of(1), of(2), of(9)},
		"an older document comes later":       {of(1), of(9), of(2)},
		"one that is as old comes later":      {of(1), of(9), of(9)},
		"withdrawn":                           {of(1), nil},
		"withdrawn and begun anew":            {of(9), nil, of(1), of(2)},
		"withdrawn twice and begun anew":      {of(9), nil, nil, of(1)},
		"begun anew with what is there later": {nil, of(1), of(3), of(2)},
	} {
		for _, before := range []uint64{0, 5} {
			one, together := opened(t), opened(t)
			var items []Item
			for _, x := range []*Index{one, together} {
				if before == 0 {
					continue
				}
				if err := x.take(t.Context(), 1, []Item{itemOf(of(before), 1)}); err != nil {
					t.Fatal(err)
				}
			}
			for i, d := range documents {
				item := Item{Token: wire.NewRunKey("order 0").Token, Document: d, Sequence: uint64(i + 2)}
				items = append(items, item)
				if err := one.take(t.Context(), 1, []Item{item}); err != nil {
					t.Fatal(err)
				}
			}
			if err := together.take(t.Context(), 1, items); err != nil {
				t.Fatal(err)
			}
			want, was, err := one.Get(t.Context(), "order 0")
			got, is, getErr := together.Get(t.Context(), "order 0")
			if diff := cmp.Diff(want, got); err != nil || getErr != nil || is != was || diff != "" {
				t.Errorf("%s, after revision %d: %v %v, known %v, want %v\n%s", name, before, err, getErr, is, was, diff)
			}
		}
	}
}

func TestOpen_MakesAnIndexAnewThatItCannotUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	for range 2 {
		x, err := Open(t.Context(), path, clock)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, x, 0, 3)
		if got := pages(t, x, index.Query{}); !slices.Equal(got, []string{"order 0", "order 1", "order 2"}) {
			t.Errorf("%q", got)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		damaged, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 100; i < len(damaged); i++ {
			damaged[i] = 0xff
		}
		damaged[63]++ // and of another version
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What runs say is not for everybody on the machine, also where an index was made that everybody could read.
func TestOpen_NobodyElseReadsTheFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	for range 2 {
		x, err := Open(t.Context(), path, clock)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, x, 0, 3)
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o600 {
				t.Errorf("runs.db%s is %v", suffix, info.Mode())
			}
			if err := os.Chmod(path+suffix, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpen_KeepsAFileThatIsNotAnIndex: whoever mistypes a name loses nothing.
func TestOpen_KeepsAFileThatIsNotAnIndex(t *testing.T) {
	t.Parallel()
	another, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "another.db"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	if _, err := another.ExecContext(t.Context(), "CREATE TABLE t (c); VACUUM INTO ?", path); err != nil {
		t.Fatal(err)
	}
	if err := another.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{[]byte("agents:"), []byte(strings.Repeat("agents: ", 100)), database} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), path, clock); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.HasSuffix(err.Error(), "agentd.yaml is not an index of runs; name a file that does not exist yet, or delete it") {
			t.Errorf("%v", err)
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, data) {
			t.Errorf("%q %v, want what was there", kept, err)
		}
	}
}

// plan is how a statement is carried out, step by step.
func (x *Index) plan(t *testing.T, c *clause) (steps []string) {
	t.Helper()
	rows, err := x.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+c.text.String(), c.arguments...)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	return steps
}

// Lists by duration are read in the order of an index: sorting a million runs for one page would take seconds.
func TestQuery_ByDurationSortsNoMoreThanAPage(t *testing.T) {
	t.Parallel()
	x := opened(t)
	for _, at := range []*index.Position{nil, {Value: 5000, Run: "order 7"}} {
		sorts, reads := 0, 0
		for _, step := range x.plan(t, x.page(index.Query{Sort: index.SortDuration, Now: now}, at, 51)) {
			if strings.Contains(step, "TEMP B-TREE") {
				sorts++
			}
			if strings.Contains(step, "r USING INDEX runs_span") {
				reads++
			}
		}
		if sorts != 1 || reads != 2 {
			t.Errorf("%d sorts, want that of both halves' pages alone; %d reads in order, want 2", sorts, reads)
		}
	}
}

// The specs that runs keep are counted in an index, and without those that are done: of a spec there may be a million.
func TestCounts_OfSpecsReadTheRunsUnderWayAlone(t *testing.T) {
	t.Parallel()
	x := opened(t)
	f, err := index.ParseFilter("status:running status:waiting agent:travel.desk")
	if err != nil {
		t.Fatal(err)
	}
	want := "SEARCH r USING COVERING INDEX runs_spec (spec=? AND agent=? AND status=?)"
	if got := x.plan(t, x.counting(f, index.CountSpec, "spec-1")); !slices.Contains(got, want) {
		t.Errorf("they are counted by %q; want %q", got, want)
	}
}

// itemOf is the item of a document that is not in a stream.
func itemOf(d *index.Document, sequence uint64) Item {
	return Item{Token: wire.NewRunKey(d.Run).Token, Document: d, Sequence: sequence, At: d.Changed}
}
