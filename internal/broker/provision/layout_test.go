package provision

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// runPartitions is how many partitions runs have.
const runPartitions = 256

// layouts are all that there can be.
func layouts(t *testing.T) []streams.Layout {
	t.Helper()
	var all []streams.Layout
	for n := 1; n <= runPartitions; n *= 2 {
		l, err := streams.NewLayout(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// filter is one of a stream's.
type filter struct{ stream, subject string }

// filters are those of the streams of a plan, by the kind of what they are for: matching all takes long.
func filters(l streams.Layout) map[string][]filter {
	all := map[string][]filter{}
	for _, s := range (Plan{Partitions: l.Partitions()}).Streams(wire.DefaultSubjects()) {
		for _, subject := range s.Subjects {
			kind := strings.SplitN(subject, ".", 3)[1]
			all[kind] = append(all[kind], filter{s.Name, subject})
		}
	}
	return all
}

// storing are the streams that store a subject.
func storing(all map[string][]filter, subject string) []string {
	var names []string
	for _, f := range all[strings.SplitN(subject, ".", 3)[1]] {
		if broker.Under(subject, f.subject) {
			names = append(names, f.stream)
		}
	}
	return names
}

// In every layout, each subject of a run is on exactly one stream, that which the layout says, and all of a run's are on streams of the same
// number.
func TestLayout_HasEachSubjectOnOneStream(t *testing.T) {
	t.Parallel()
	s := wire.DefaultSubjects()
	for _, l := range layouts(t) {
		all := filters(l)
		for p := range runPartitions {
			run := wire.RunKey{Partition: fmt.Sprintf("%03d", p), Token: testRun.Token}
			call := testCall
			call.Run = run
			on := map[streams.Zone][]string{
				streams.Timer: {s.Timer("desk", run), s.Fire("desk", run), s.Timer("017", run)},
				streams.Run:   {s.Journal(run), s.Blob(run, "digest"), s.Blob(run, "digest") + ".1"},
				streams.In:    {s.Reply(call), s.Reply(call) + ".jane", s.Control(wire.ControlCancel, "desk", run)},
				streams.Out:   {s.Call(call), s.Void(call)},
				streams.Done:  {s.Done("desk", run, "init")},
			}
			for z, subjects := range on {
				zones := l.Zones(z)
				want := zones[p*len(zones)/runPartitions]
				for _, subject := range subjects {
					if got := l.ZoneOf(subject); got != want {
						t.Fatalf("%d partitions: %s is in %s, want %s", l.Partitions(), subject, got, want)
					}
					if l.Partitions() > 4 && p%16 != 0 { // matching all subjects takes long
						continue
					}
					if got := storing(all, subject); !slices.Equal(got, []string{streams.Name(s, want)}) {
						t.Fatalf("%d partitions: %s is stored in %v, want %s", l.Partitions(), subject, got, streams.Name(s, want))
					}
				}
			}
		}
	}
}

// What belongs to no run is on the first stream.
func TestLayout_HasWhatBelongsToNoRunOnTheFirstStream(t *testing.T) {
	t.Parallel()
	subjects := wire.DefaultSubjects()
	for _, l := range layouts(t) {
		all := filters(l)
		for subject, z := range map[string]streams.Zone{
			"agentd.tmr.lease.writable": streams.Timer, "agentd.tmr.lease.reconcile_agent_017": streams.Timer, "agentd.tmr.lease.model.key": streams.Timer,
			"agentd.tmr.lease.model.017": streams.Timer, "agentd.tmr.parked.key.desk.255." + testRun.Token: streams.Timer,
			"agentd.tmr.parked.255.desk.255." + testRun.Token: streams.Timer, "agentd.spec.digest": streams.Run, "agentd.spec.digest.1": streams.Run,
		} {
			first := l.Zones(z)[0]
			if got := l.ZoneOf(subject); got != first {
				t.Errorf("%d partitions: %s is in %s, want %s", l.Partitions(), subject, got, first)
			}
			if got := storing(all, subject); !slices.Equal(got, []string{streams.Name(subjects, first)}) {
				t.Errorf("%d partitions: %s is stored in %v, want %s", l.Partitions(), subject, got, first)
			}
		}
	}
}

// One partition is what there was before there were any.
func TestLayout_OfOnePartitionDividesNothing(t *testing.T) {
	t.Parallel()
	want := map[string][]string{"AGENTD_TMR": {"agentd.tmr.>", "agentd.fire.>"}, "AGENTD_RUN": {"agentd.run.>", "agentd.blob.>", "agentd.spec.>"}}
	for _, p := range []Plan{{}, {Partitions: 1}} {
		seen := map[string]bool{}
		for _, s := range p.Streams(wire.DefaultSubjects()) {
			seen[s.Name] = true
			if subjects := want[s.Name]; subjects != nil && !slices.Equal(s.Subjects, subjects) {
				t.Errorf("%s stores %v", s.Name, s.Subjects)
			}
			if s.Metadata != nil {
				t.Errorf("%s has the metadata %v", s.Name, s.Metadata)
			}
		}
		if !seen["AGENTD_TMR"] || !seen["AGENTD_RUN"] {
			t.Errorf("the streams are %v", seen)
		}
	}
}
