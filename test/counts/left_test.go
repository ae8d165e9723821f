package counts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"agentd/internal/broker/provision"
	"agentd/internal/capacity"
	"agentd/internal/reconcile"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// zones are what is weighed: all but the answers, which leave by their age alone.
var zones = []string{capacity.Start, capacity.Out, capacity.Done, capacity.Timers, capacity.Runs, "IDX"}

// TestLeft_OfARunThatHasEnded weighs what a run has on the broker, the index included, when it has ended, an hour later, and when its
// history was removed. An hour later its calls and timers are gone, at the cost of one request for the run and one for all timers.
func TestLeft_OfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		open openStore
		// later and forgotten are the subjects that a run has in an hour, and without its history.
		later, forgotten float64
	}{
		"redis":     {redisServer, 2, 1},
		"jetstream": {jetStream, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, of.open, usual, func(p *provision.Plan) { p.Index = true })
			s.run("the first, which connects and learns")
			s.settle()
			s.indexes(1)
			s.clear()
			before := s.kept()
			var keys []wire.RunKey
			for n := range 10 {
				keys = append(keys, s.run(fmt.Sprint("run ", n)))
			}
			s.settle()
			s.indexes(1 + len(keys))
			ended := s.left("when it has ended", before, len(keys))
			s.worker.reset()
			if n := s.clear(); n != len(keys) {
				t.Errorf("%d runs lost their calls, want %d", n, len(keys))
			}
			// One for each run, and one for the timers of the agent.
			if asked := s.worker.reset()["api STREAM.PURGE"]; asked != len(keys)+1 {
				t.Errorf("%d requests removed what %d runs left", asked, len(keys))
			}
			later := s.left("an hour later", before, len(keys))
			for _, zone := range []string{capacity.Out, capacity.Timers} {
				if later[zone].Messages != 0 || ended[zone].Messages == 0 {
					t.Errorf("%s has %+v of each run, and had %+v", zone, later[zone], ended[zone])
				}
			}
			for _, key := range keys {
				check(t, reconcile.Purge(t.Context(), s.control, s.packed.(state.Store), key))
			}
			forgotten := s.left("without its history", before, len(keys))
			if got := total(later).Subjects; got != of.later {
				t.Errorf("an hour later a run has %.1f subjects, want %.0f", got, of.later)
			}
			if got := total(forgotten).Subjects - forgotten["IDX"].Subjects; got != of.forgotten {
				t.Errorf("without its history a run has %.1f subjects, want %.0f", got, of.forgotten)
			}
		})
	}
}

// indexes waits until so many runs are in the index, with their end.
func (s *system) indexes(runs int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for s.kept()["IDX"].Subjects < float64(runs) {
		check(s.t, ctx.Err())
	}
}

// clear removes what runs have left that have ended, as if it were an hour later, and returns how many lost their calls.
func (s *system) clear() int {
	s.t.Helper()
	o, err := s.serves.Reconciling(s.t.Context())
	check(s.t, err)
	o.Calls, o.Now = sdk.DefaultCallsKept, func() time.Time { return time.Now().Add(time.Hour) }
	o.Found = func(f reconcile.Finding) { s.t.Errorf("found: %+v", f) }
	for _, a := range o.Agents {
		check(s.t, o.Conn.NoteRefilled(s.t.Context(), wire.NameToken(a.Name), o.Conn.Server()))
	}
	report, err := reconcile.Clear(s.t.Context(), o)
	check(s.t, err)
	return report.Cleared
}

// left is what each run has on the broker more than there was before.
func (s *system) left(when string, before map[string]capacity.Cost, runs int) map[string]capacity.Cost {
	s.t.Helper()
	now, each := s.kept(), map[string]capacity.Cost{}
	for _, zone := range zones {
		a, b := now[zone], before[zone]
		each[zone] = capacity.Cost{
			Messages: (a.Messages - b.Messages) / float64(runs), Subjects: (a.Subjects - b.Subjects) / float64(runs),
			Bytes: (a.Bytes - b.Bytes) / float64(runs),
		}
		s.t.Logf("%-20s %-6s %5.1f messages %5.1f subjects %8.0f bytes", when, zone, each[zone].Messages, each[zone].Subjects, each[zone].Bytes)
	}
	all := total(each)
	s.t.Logf("%-20s %-6s %5.1f messages %5.1f subjects %8.0f bytes", when, "all", all.Messages, all.Subjects, all.Bytes)
	return each
}

func total(of map[string]capacity.Cost) (all capacity.Cost) {
	for _, zone := range zones {
		all.Messages += of[zone].Messages
		all.Subjects += of[zone].Subjects
		all.Bytes += of[zone].Bytes
	}
	return all
}
