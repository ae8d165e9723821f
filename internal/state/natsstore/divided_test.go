package natsstore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// openDivided returns a store in four streams of a server of its own.
func openDivided(t *testing.T) divided {
	t.Helper()
	const parts = 4
	ns := startServer(t, t.TempDir(), func(c *jetstream.StreamConfig) { c.Name, c.Subjects = "OTHER", []string{"other"} })
	js, s := connect(t, ns.ClientURL()), wire.DefaultSubjects()
	var streams []string
	for i := range parts {
		cfg := jetstream.StreamConfig{Name: fmt.Sprintf("%s_%d", streamName, i), AllowDirect: true, AllowRollup: true}
		if i == 0 {
			cfg.Subjects = []string{s.All(wire.KindSpec)}
		}
		for p := i * partitions / parts; p < (i+1)*partitions/parts; p++ {
			cfg.Subjects = append(cfg.Subjects, fmt.Sprintf("agentd.run.%03d.>", p), fmt.Sprintf("agentd.blob.%03d.>", p))
		}
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, cfg.Name)
	}
	return Open(js, streams, s).(divided)
}

func TestDivided_PassesSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return openDivided(t) })
}

func TestDivided_ListsByPartition(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	for _, part := range d.parts {
		part.wholeList = 0
	}
	storetest.ListRuns(t, d)
}

// However small its pages are, a listing has each run once, in order.
func TestDivided_ListsOverTheEndsOfStreams(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	var want []string
	for n := range 12 {
		key := wire.NewRunKey(fmt.Sprint("run ", n))
		storetest.AppendN(t, d, key, runner.Version{}, 1)
		want = append(want, key.String())
	}
	slices.Sort(want)
	for size := 1; size <= len(want)+1; size++ {
		var got []string
		for cursor, pages := "", 0; pages <= len(want)+len(d.parts); pages++ {
			runs, next, err := d.Runs(t.Context(), cursor, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range runs {
				got = append(got, r.Run.String())
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d have %v, want %v", size, got, want)
		}
	}
}

// What was written last is told first, of whichever stream, and never that more is told than is.
func TestDivided_TellsOfRecentRuns(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	const runs = 3 * batchEntries
	written := map[wire.RunKey]int{}
	for n := range runs {
		key := wire.NewRunKey(fmt.Sprint("run ", n))
		storetest.AppendN(t, d, key, runner.Version{}, 1)
		written[key] = n
	}
	told, at := map[wire.RunKey]bool{}, map[wire.RunKey]int64{}
	for _, part := range d.parts {
		part.wholeList = 0
		messages, err := part.js.Stream(t.Context(), part.stream)
		if err != nil {
			t.Fatal(err)
		}
		info := messages.CachedInfo().State
		for sequence := info.FirstSeq; sequence <= info.LastSeq; sequence++ {
			m, err := messages.GetMsg(t.Context(), sequence)
			if err != nil {
				t.Fatal(err)
			}
			key, err := state.ParseCursor(m.Subject[len("agentd.run."):])
			if err != nil {
				t.Fatal(err)
			}
			at[key] = m.Time.UnixMilli()
		}
	}
	pieces := 0
	_, err := d.Recent(t.Context(), func(some []runner.StoredRun, since int64) (bool, error) {
		pieces++
		for _, r := range some {
			if told[r.Run] {
				t.Errorf("run %s is told twice", r.Run)
			}
			told[r.Run] = true
		}
		for key, stored := range at {
			if !told[key] && stored > since {
				t.Errorf("run %s was written at %d and is not told, where all since %d are said to be", key, stored, since)
			}
		}
		return true, nil
	})
	if err != nil || len(told) != runs || pieces < 4 {
		t.Errorf("%d runs of %d are told in %d pieces: %v", len(told), runs, pieces, err)
	}
}

// That one of the streams takes no writes is noticed.
func TestDivided_IsWritableWhereAllOfItIs(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	for range 2 {
		if err := d.Writable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range d.parts {
		stream, err := part.js.Stream(t.Context(), part.stream)
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != 1 {
			t.Errorf("%s has %d messages of what is written again and again", part.stream, n)
		}
	}
	if runs, _, err := d.Runs(t.Context(), "", 10); err != nil || len(runs) > 0 {
		t.Errorf("the probes are runs: %+v, %v", runs, err)
	}
	if err := d.parts[3].js.DeleteStream(t.Context(), d.parts[3].stream); err != nil {
		t.Fatal(err)
	}
	if err := d.Writable(t.Context()); err == nil {
		t.Error("a store without its last stream takes writes")
	}
}

// A stream that was emptied does not have the mark that the others have.
func TestDivided_IsMarkedWhereAllOfItIs(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	for _, part := range d.parts {
		if err := d.Mark(t.Context(), "desk", "mark"); err != nil {
			t.Fatal(err)
		}
		if marked, err := d.Marked(t.Context(), "desk", "mark"); err != nil || !marked {
			t.Errorf("after it is marked: %v, %v", marked, err)
		}
		stream, err := part.js.Stream(t.Context(), part.stream)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if marked, err := d.Marked(t.Context(), "desk", "mark"); err != nil || marked {
			t.Errorf("after %s was emptied: %v, %v", part.stream, marked, err)
		}
	}
}

// A stream that is read to its beginning does not end the search in one that goes back further.
func TestDivided_TellsOfRunsOfTheLongestStream(t *testing.T) {
	t.Parallel()
	d := openDivided(t)
	for _, part := range d.parts {
		part.wholeList = 0
	}
	const runs = 2*batchEntries + 1
	appended := 0
	for n := 0; appended < runs+1; n++ {
		want := 1
		if appended == runs { // the last one written is on a stream of its own
			want = 2
		}
		if key := wire.NewRunKey(fmt.Sprint("run ", n)); d.at(key.Partition) == want {
			storetest.AppendN(t, d, key, runner.Version{}, 1)
			appended++
		}
	}
	told := 0
	_, err := d.Recent(t.Context(), func(some []runner.StoredRun, _ int64) (bool, error) {
		told += len(some)
		return true, nil
	})
	if err != nil || told != runs+1 {
		t.Errorf("%d runs of %d are told: %v", told, runs+1, err)
	}
}
