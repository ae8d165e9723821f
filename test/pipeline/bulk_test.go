package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/broker/buckets"
	"agentd/internal/bulk"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// bulkVariable is the environment variable with how many runs the bulk test has.
const bulkVariable = "AGENTD_TEST_BULK"

var errKilled = errors.New("killed")

// mortal is a program that carries out a bulk job until it is killed: after so many messages to runs, or at a write of what became of them.
type mortal struct {
	bulk.Live
	buckets.Jobs
	messages int
	// at is a part of the keys whose write it is killed at, after so many writes of it.
	at     string
	writes int
	dead   bool
}

func (m *mortal) Control(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who string, event wire.Event) error {
	if m.dead {
		return errKilled
	}
	if err := m.Conn.Control(ctx, verb, agent, run, who, event); err != nil {
		return err
	}
	if m.messages--; m.messages == 0 {
		m.dead = true
	}
	return nil
}

func (m *mortal) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if m.at != "" && strings.Contains(key, m.at) {
		m.dead = m.dead || m.writes == 0
		m.writes--
	}
	if m.dead {
		return 0, errKilled
	}
	return m.Jobs.Put(ctx, key, data, revision)
}

// operator is who carries out bulk jobs in tests.
type operator struct {
	t    *testing.T
	h    *harness.Harness
	live bulk.Live
	jobs buckets.Jobs
	// later is how far its clock is ahead, in milliseconds: a lease of a program that was killed ends.
	later int64
}

func operate(t *testing.T, h *harness.Harness) *operator {
	t.Helper()
	jobs, err := buckets.OpenJobs(t.Context(), h.Conn())
	if err != nil {
		t.Fatal(err)
	}
	store := natsStore(h.Conn()).(state.Store)
	return &operator{t: t, h: h, jobs: jobs, live: bulk.Live{Finder: find.Finder{Conn: h.Conn(), Store: store}, Conn: h.Conn(), Histories: store}}
}

// program is one that is killed as m says.
func (o *operator) program(m *mortal) bulk.Bulk {
	m.Live, m.Jobs = o.live, o.jobs
	return bulk.Bulk{
		Keeper: m, Runs: m, Now: func() int64 { return o.h.Conn().Now() + o.later },
		Pause: func(context.Context, time.Duration) error { return nil },
	}
}

func (o *operator) propose(verb bulk.Verb, filter string) *bulk.Job {
	o.t.Helper()
	f, err := index.ParseFilter(filter)
	if err != nil {
		o.t.Fatal(err)
	}
	job, err := o.program(&mortal{}).Propose(o.t.Context(), bulk.Request{Verb: verb, Filter: f, Said: "the test"})
	if err != nil {
		o.t.Fatal(err)
	}
	return job
}

// TestBulk_CancelsEachRunOnce with programs that are killed in the middle of each piece, before they keep what became of it, and before
// they say that they did.
func TestBulk_CancelsEachRunOnce(t *testing.T) {
	t.Parallel()
	runs := 130
	if n, err := strconv.Atoi(os.Getenv(bulkVariable)); err == nil {
		runs = n
	}
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		return sdktest.Ask(add(1, 2)), nil
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: model})
	var mu sync.Mutex
	cancels := map[string]int{}
	untail, err := h.Conn().Tail(h.Conn().Subjects().Root()+".ctl.cancel.>", func(subject string, _ map[string][]string, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		cancels[subject]++
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []harness.Run
	for n := range runs {
		init := h.Init("desk", hello())
		init.Subject, init.ID = fmt.Sprintf("run %d", n), fmt.Sprintf("run-%d", n)
		init.Extensions = map[string]any{wire.TagsAttribute: "tenant=acme"}
		all = append(all, h.Send("desk", init))
	}
	other := h.Run("desk", hello())
	for _, r := range append(all, other) {
		h.Suspended(r, 1)
	}

	o := operate(t, h)
	job := o.propose(bulk.VerbCancel, "tag.tenant:acme")
	if job.Runs != runs || len(job.Samples) != 10 || job.State != bulk.Proposed || job.Filter.String() != "tag.tenant:acme -status:done" {
		t.Fatalf("%+v", job)
	}
	if err := o.program(&mortal{}).Confirm(t.Context(), job, runs-1); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		t.Errorf("confirmed with another number: %v", err)
	}
	if err := o.program(&mortal{}).CarryOut(t.Context(), job, func(*bulk.Job) {}); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		t.Errorf("carried out without a confirmation: %v", err)
	}
	h.Cancel(all[0], "somebody else was first")
	h.Done(all[0])
	if err := o.program(&mortal{}).Confirm(t.Context(), job, runs); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for attempt := 0; job.State != bulk.Finished; attempt++ {
		m := []*mortal{{messages: 20}, {at: ".results."}, {at: job.ID, writes: 2}}[attempt%3]
		err := o.program(m).CarryOut(t.Context(), job, func(*bulk.Job) {})
		if err == nil != (job.State == bulk.Finished) || attempt > 4+runs/20 {
			t.Fatalf("attempt %d: %v, %+v", attempt, err, job)
		}
		if err == nil {
			break
		}
		killed++
		if job, err = o.program(&mortal{}).Get(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		if job.Holder != "" {
			if err := o.program(&mortal{}).CarryOut(t.Context(), job, func(*bulk.Job) {}); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
				t.Fatalf("two programs carry it out: %v", err)
			}
		}
		o.later += 31_000
	}
	t.Logf("%d runs, %d programs were killed", runs, killed)
	if killed != 3*((runs+99)/100) || job.Counts[bulk.Asked] != runs-1 || job.Counts[bulk.Skipped] != 1 || job.Counts[bulk.Failed] != 0 {
		t.Errorf("%d programs were killed; %+v", killed, job.Counts)
	}
	results := map[string]bulk.Result{}
	err = o.program(&mortal{}).Results(t.Context(), job, func(some []bulk.Result) error {
		for _, r := range some {
			results[r.Run] = r
		}
		return nil
	})
	if err != nil || len(results) != runs || results["run 0"].Problem != "the filter does not select it any more" {
		t.Errorf("%v, what became of %d runs is kept; of the first: %+v", err, len(results), results["run 0"])
	}
	for _, r := range all[1:] {
		s := h.Until(r, "cancelled", func(s core.State) bool { return s.Status == core.StatusDone })
		if s.Reason != wire.ReasonCancelled {
			t.Errorf("%s: %s", r.Subject, s.Reason)
		}
	}
	if err := untail(); err != nil {
		t.Fatal(err)
	}
	for subject, n := range cancels {
		if n != 1 {
			t.Errorf("%s has %d messages", subject, n)
		}
	}
	if len(cancels) != runs || h.State(other).Status != core.StatusWaiting {
		t.Errorf("%d runs were asked, of %d; the other is %s", len(cancels), runs, h.State(other).Status)
	}
	h.NoDeadLetter()
}

// TestBulk_PurgesWhatHasEnded also refuses what has not, and leaves tombstones that begin no run again.
func TestBulk_PurgesWhatHasEnded(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		if asked.Add(1) == 1 {
			return sdktest.Say("3"), nil
		}
		return sdktest.Ask(add(1, 2)), nil
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: desk()}}, Model: model})
	init := h.Init("desk", hello())
	ended := h.Send("desk", init)
	h.Done(ended)
	second := h.Init("desk", hello())
	second.Subject, second.ID = "waiting", "waiting"
	waiting := h.Send("desk", second)
	h.Suspended(waiting, 1)

	o := operate(t, h)
	if err := o.live.Purge(t.Context(), wire.NewRunKey("waiting")); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) || !strings.Contains(err.Error(), "only the history of a run that has ended can be removed") {
		t.Errorf("a run that waits is purged: %v", err)
	}
	job := o.propose(bulk.VerbPurge, "run:*")
	if job.Runs != 1 || job.Samples[0] != ended.Subject {
		t.Fatalf("%+v", job)
	}
	entries := len(h.Journal(ended))
	b := o.program(&mortal{})
	for _, err := range []error{b.Confirm(t.Context(), job, 1), b.CarryOut(t.Context(), job, func(*bulk.Job) {})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if job.Counts[bulk.Done] != 1 {
		t.Errorf("%+v", job.Counts)
	}
	for range 2 { // it may be repeated
		left := h.Journal(ended)
		if len(left) != 1 || left[0].Head.Purged == nil || left[0].Head.Purged.Rev != uint64(entries) || left[0].Head.Reason != wire.ReasonCompleted {
			t.Errorf("%d entries of %d are left: %+v", len(left), entries, left[0].Head)
		}
		if err := o.live.Purge(t.Context(), wire.NewRunKey(ended.Subject)); err != nil {
			t.Error(err)
		}
	}
	if h.State(waiting).Status != core.StatusWaiting {
		t.Errorf("the other run is %s", h.State(waiting).Status)
	}
	if err := o.live.Purge(t.Context(), wire.NewRunKey("nobody")); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("a run that does not exist is purged: %v", err)
	}
	h.Send("desk", init)
	third := h.Init("desk", hello())
	third.Subject, third.ID = "third", "third"
	h.Suspended(h.Send("desk", third), 1)
	if left := h.Journal(ended); len(left) != 1 {
		t.Errorf("its init event began a run again that was purged: %d entries", len(left))
	}
}
