package bulk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"agentd/internal/bulk"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// kept is a bulk.Keeper in memory.
type kept map[string]struct {
	data     []byte
	revision uint64
}

func (k kept) Put(_ context.Context, key string, data []byte, revision uint64) (uint64, error) {
	is := k[key]
	if is.revision != revision {
		return 0, sdk.Errorf(sdk.CodeConflict, "%s is at %d", key, is.revision)
	}
	is.data, is.revision = data, revision+1
	k[key] = is
	return is.revision, nil
}

func (k kept) Get(_ context.Context, key string) ([]byte, uint64, error) {
	return k[key].data, k[key].revision, nil
}

func (k kept) Under(context.Context) ([]string, error) { return nil, nil }

// many are runs, or dead letters, of which every third is not what the filter wants by the time that something is done to it. Each action
// takes a while.
type many struct {
	n     int
	slow  time.Duration
	acted []time.Time
	// at is called at each action.
	at func()
}

func (m *many) act() error {
	m.acted = append(m.acted, time.Now())
	m.at()
	time.Sleep(m.slow)
	return nil
}

func (m *many) Documents(_ context.Context, _ index.Filter, each func(index.Document) error) error {
	for n := range m.n {
		if err := each(index.Document{Run: fmt.Sprint("run ", n), Agent: "desk"}); err != nil {
			return err
		}
	}
	return nil
}

func (m *many) Letters(_ context.Context, each func(bulk.Letter) error) error {
	for n := range m.n {
		l := bulk.Letter{Sequence: uint64(n + 1), Stream: "AGENTD_START", Origin: uint64(n + 1), Document: index.Document{Code: string(sdk.CodeInternal)}}
		if err := each(l); err != nil {
			return err
		}
	}
	return nil
}

func (m *many) Current(_ context.Context, d index.Document, _ index.Filter) (find.Run, bool, error) {
	n := 0
	_, err := fmt.Sscanf(d.Run, "run %d", &n)
	return find.Run{Document: d}, n%3 != 0, err
}

func (m *many) Settled(context.Context, string, uint64, uint64) (string, error) { return "", nil }
func (m *many) Redrive(context.Context, uint64, string) error                   { return m.act() }
func (m *many) Purge(context.Context, wire.RunKey) error                        { return m.act() }

func (m *many) Control(context.Context, wire.ControlVerb, string, wire.RunKey, string, wire.Event) error {
	return m.act()
}

func (m *many) Controlled(context.Context, wire.ControlVerb, string, wire.RunKey) (string, error) {
	return "", nil
}

// A job does nothing to more runs in any second than its rate says, and not much less where they are quick. However slowly it goes, no other
// program takes it to be free meanwhile. The time is the test's own.
func TestCarryOut_KeepsToItsRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb   bulk.Verb
		filter string
		rate   int
		slow   time.Duration
		// acted is to how many of the 240 something is done, and within at most how long.
		acted  int
		within time.Duration
	}{
		{bulk.VerbCancel, "run:*", 1, 0, 160, 161 * time.Second},
		{bulk.VerbCancel, "run:*", 0, 0, 160, 9 * time.Second}, // the default is 20
		{bulk.VerbPurge, "run:*", 50, time.Second, 160, 165 * time.Second},
		{bulk.VerbRedrive, "code:*", 5, 10 * time.Millisecond, 240, 52 * time.Second},
	} {
		t.Run(fmt.Sprint(c.verb, " ", c.rate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				keeper, now := kept{}, func() int64 { return time.Now().UnixMilli() }
				runs := &many{n: 240, slow: c.slow}
				b := bulk.New(keeper, runs, now)
				filter, err := index.ParseFilter(c.filter)
				if err != nil {
					t.Fatal(err)
				}
				job, err := b.Propose(t.Context(), bulk.Request{Verb: c.verb, Filter: filter, Rate: c.rate})
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Confirm(t.Context(), job, 240); err != nil {
					t.Fatal(err)
				}
				runs.at = func() {
					var is bulk.Job
					if err := json.Unmarshal(keeper[job.ID].data, &is); err != nil || !is.Held(now()) {
						t.Fatalf("%v: after %d another program may carry the job out", err, len(runs.acted))
					}
				}
				began := time.Now()
				if err := b.CarryOut(t.Context(), job, func(*bulk.Job) {}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); len(runs.acted) != c.acted || took > c.within {
					t.Errorf("something was done to %d in %s; want %d in at most %s", len(runs.acted), took, c.acted, c.within)
				}
				for i := job.Rate; i < len(runs.acted); i++ {
					if within := runs.acted[i].Sub(runs.acted[i-job.Rate]); within < time.Second {
						t.Fatalf("after %d, something was done to %d within %s; the rate is %d a second", i, job.Rate+1, within, job.Rate)
					}
				}
			})
		})
	}
}
