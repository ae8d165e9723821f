package bulk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"agentd/internal/bulk"
	"agentd/internal/index"
	"agentd/sdk"
)

// scanned are runs that are found slowly, as without an index. at is called before each.
type scanned struct {
	many
	at func(n int)
}

func (s *scanned) Documents(_ context.Context, _ index.Filter, each func(index.Document) error) error {
	for n := range s.n {
		s.at(n)
		time.Sleep(s.slow)
		if err := each(index.Document{Run: fmt.Sprint("run ", n), Agent: "desk"}); err != nil {
			return err
		}
	}
	return nil
}

func (k kept) job(t *testing.T, id string) *bulk.Job {
	t.Helper()
	var job bulk.Job
	if err := json.Unmarshal(k[id].data, &job); err != nil {
		t.Fatal(err)
	}
	return &job
}

func everything(t *testing.T) bulk.Request {
	t.Helper()
	filter, err := index.ParseFilter("run:*")
	if err != nil {
		t.Fatal(err)
	}
	return bulk.Request{Verb: bulk.VerbCancel, Filter: filter}
}

// While its runs are found a job says how many there are so far, and somebody has it; nothing can be done with it before they are.
func TestFind_SaysHowFarItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keeper, now := kept{}, func() int64 { return time.Now().UnixMilli() }
		runs := &scanned{many: many{n: 1000, slow: 20 * time.Millisecond}}
		b := bulk.New(keeper, runs, now)
		job, err := b.Make(t.Context(), everything(t))
		if err != nil {
			t.Fatal(err)
		}
		runs.at = func(n int) {
			is := keeper.job(t, job.ID)
			if said := n / 100 * 100; is.State != bulk.Finding || is.Runs != said || !is.Held(now()) {
				t.Fatalf("after %d the job is %s with %d runs", n, is.State, is.Runs)
			}
			if err := b.Confirm(t.Context(), is, is.Runs); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
				t.Fatalf("after %d the job begins: %v", n, err)
			}
		}
		if err := b.Find(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		is := keeper.job(t, job.ID)
		if is.State != bulk.Proposed || is.Runs != 1000 || is.Chunks != 10 || is.Held(now()) {
			t.Errorf("the job is %+v", is)
		}
		if err := b.Confirm(t.Context(), job, 1000); err != nil {
			t.Error(err)
		}
	})
}

// A job whose runs cannot be found says why, and nothing can be done with it.
func TestFind_SaysWhyItFails(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		runs    int
		ctx     context.Context
		at      func(int)
		code    sdk.Code
		problem string
	}{
		"too many": {bulk.MaxRuns + 1, t.Context(), func(int) {}, sdk.CodeTooLarge, "the filter selects more than 100000 runs; narrow it down, by started> and started< for example"},
		"ended":    {101, ended, func(n int) { end() }, sdk.CodeInternal, "the program that looked for them has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keeper := strict{kept{}}
			b := bulk.New(keeper, &scanned{many: many{n: c.runs}, at: c.at}, func() int64 { return 1_790_000_000_000 })
			job, err := b.Make(t.Context(), everything(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Find(c.ctx, job); err == nil || sdk.AsError(err).Code != c.code {
				t.Errorf("the runs are found: %v", err)
			}
			if is := keeper.job(t, job.ID); is.State != bulk.Unfound || is.Problem != c.problem || is.Held(0) {
				t.Errorf("the job is %s: %s", is.State, is.Problem)
			}
			if err := b.Confirm(t.Context(), job, job.Runs); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
				t.Errorf("it begins: %v", err)
			}
		})
	}
}

// A job whose program was killed while it looked for the runs does not look for them for ever.
func TestConfirm_SaysThatNobodyFindsTheRuns(t *testing.T) {
	t.Parallel()
	now := int64(1_790_000_000_000)
	b := bulk.New(kept{}, &scanned{}, func() int64 { return now })
	job, err := b.Make(t.Context(), everything(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{10*time.Minute - time.Millisecond, "is still looking for its runs"},
		{time.Millisecond, "has not found its runs (no program looks for them any more); propose it again"},
	} {
		now += c.after.Milliseconds()
		if err := b.Confirm(t.Context(), job, 0); sdk.AsError(err).Message != "bulk job "+job.ID+" "+c.want {
			t.Errorf("after %s it is refused with %v, want %s", c.after, err, c.want)
		}
	}
}

// strict keeps nothing for a context that has ended.
type strict struct{ kept }

func (s strict) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return s.kept.Put(ctx, key, data, revision)
}
