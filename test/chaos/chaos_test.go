package main

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk/wire"
	"agentd/test/cluster"
)

func TestMain(m *testing.M) {
	if code, ok := playRole(); ok { // the test's binary is its own child processes, too
		os.Exit(code)
	}
	if code, ok := cluster.Serve(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// A few seconds of everything that `make chaos` does for minutes. Which crash points are met is left to chance here.
func TestChaos_NothingIsLostAndNothingHappensTwice(t *testing.T) {
	for _, name := range []string{storeJetStream, storeRedis} {
		t.Run(name, func(t *testing.T) {
			r, err := play(t.Context(), options{
				store: name, faults: 6 * time.Second, rest: 3 * time.Minute, seed: 1, workers: 3, running: 24, dir: t.TempDir(),
				out: t.Output(),
			})
			if err != nil {
				t.Fatal(err)
			}
			r.print()
			if err := r.problem(); err != nil {
				t.Error(err)
			}
			if r.ends[""] == 0 || len(r.record.deaths) == 0 || len(r.journals) == 0 {
				t.Errorf("%d runs ended well and %d workers died: nothing is shown", r.ends[""], len(r.record.deaths))
			}
		})
	}
}

// Every failpoint stands for a crash point, and a crash point without one is something that the driver does.
func TestFailpoints_CoverTheCrashPoints(t *testing.T) {
	t.Parallel()
	byDriver := []string{"C23", "C24", "C25", "C26", "C27"}
	for _, c := range crashPoints {
		has := slices.ContainsFunc(failpoints, func(f failpoint) bool { return f.crash == c.name })
		if has == slices.Contains(byDriver, c.name) {
			t.Errorf("crash point %s: a failpoint: %t", c.name, has)
		}
	}
	for _, f := range failpoints {
		known := false
		for _, c := range crashPoints {
			known = known || c.name == f.crash
		}
		if !known || len(f.actions) == 0 {
			t.Errorf("failpoint %q of %q with actions %v", f.name, f.crash, f.actions)
		}
	}
}

func TestRecovery_IsFromADeathToTheNextProgressOfItsRun(t *testing.T) {
	t.Parallel()
	cause := core.Cause{Stream: "AGENTD_START", Sequence: 7}
	entry := func(at int64, kind string, status core.Status, sequence uint64) core.Entry {
		e := core.Entry{At: at, Change: core.Change{Kind: kind, Head: core.Head{Status: status}}}
		if status == core.StatusRunning {
			e.Head.Driver = &core.Driver{Stream: cause.Stream, Sequence: sequence}
		}
		return e
	}
	journal := []core.Entry{
		entry(100, "started", core.StatusRunning, 7), entry(200, "replied", core.StatusRunning, 7),
		entry(1500, "answered", core.StatusRunning, 7), entry(2000, "taken_over", core.StatusRunning, 7),
		entry(2100, "returned", core.StatusWaiting, 0), entry(9000, "answered", core.StatusRunning, 8),
		entry(9100, "replied", core.StatusRunning, 8), entry(9700, "taken_over", core.StatusRunning, 8),
		entry(9800, "parked", core.StatusWaiting, 0), entry(40_000, "fired", core.StatusRunning, 8), entry(40_100, "replied", core.StatusDone, 0),
	}
	for _, c := range []struct {
		name     string
		since    int64
		want     time.Duration
		happened bool
	}{
		{"while it drove the run", 300, 1800 * time.Millisecond, true},
		{"before the run began", 50, 0, false},
		{"when the run waited", 2500, 0, false},
		{"while another message drove the run", 9050, 0, false},
	} {
		if got, ok := recovery(journal, cause, c.since); got != c.want || ok != c.happened {
			t.Errorf("a death %s: recovered %t after %s, want %t after %s", c.name, ok, got, c.happened, c.want)
		}
	}
	cause.Sequence = 8
	if got, ok := recovery(journal, cause, 9500); got != 300*time.Millisecond || !ok {
		t.Errorf("a death before its model was away: recovered %t after %s, want it when that was noticed", ok, got)
	}
}

// What a worker asked a model in vain, no entry tells: of a message that came again, and of an answer that others overtook.
func TestUntold_AreMessagesOfWhichNoEntryTells(t *testing.T) {
	t.Parallel()
	at := func(z streams.Zone, sequence uint64) core.Cause {
		return core.Cause{Stream: streams.Name(subjects, z), Sequence: sequence}
	}
	start, again, joint, overtaken, late, timer := at(streams.Start, 1), at(streams.Start, 2), at(streams.In, 1), at(streams.In, 2),
		at(streams.In, 3), at(streams.Timer, 1)
	run := wire.NewRunKey("one")
	e := &evidence{world: &world{}, record: &record{}, drives: map[core.Cause]wire.RunKey{}, journals: map[wire.RunKey][]core.Entry{run: {
		{Cause: start}, {Cause: joint, Change: core.Change{Absorbed: &core.Change{}}}, {Cause: overtaken}, {Cause: timer},
	}}}
	for _, cause := range []core.Cause{start, again, again, joint, overtaken, late, timer} {
		e.drives[cause] = run
		e.record.notes = append(e.record.notes, note{Kind: noteDelivered, Stream: cause.Stream, Sequence: cause.Sequence})
	}
	got := e.untold()[run]
	slices.SortFunc(got, func(a, b core.Cause) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Sequence, b.Sequence))
	})
	if want := []core.Cause{overtaken, late, again}; !slices.Equal(got, want) {
		t.Errorf("no entry tells of %v; want %v", got, want)
	}
}
