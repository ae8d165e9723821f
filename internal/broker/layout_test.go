package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// layouts are all that there can be.
func layouts(t *testing.T) []Layout {
	t.Helper()
	var all []Layout
	for n := 1; n <= runPartitions; n *= 2 {
		l, err := NewLayout(n)
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
func filters(c *Conn, l Layout) map[string][]filter {
	all := map[string][]filter{}
	for _, s := range c.streams(Plan{Partitions: l.Partitions()}) {
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
		if Under(subject, f.subject) {
			names = append(names, f.stream)
		}
	}
	return names
}

// In every layout, each subject of a run is on exactly one stream, that which the layout says, and all of a run's are on streams of the same
// number.
func TestLayout_HasEachSubjectOnOneStream(t *testing.T) {
	t.Parallel()
	c := &Conn{subjects: wire.DefaultSubjects()}
	s := c.subjects
	for _, l := range layouts(t) {
		all := filters(c, l)
		for p := range runPartitions {
			run := wire.RunKey{Partition: fmt.Sprintf("%03d", p), Token: testRun.Token}
			call := testCall
			call.Run = run
			on := map[Zone][]string{
				ZoneTimer: {s.Timer("desk", run), s.Fire("desk", run), s.Timer("017", run)},
				ZoneRun:   {s.Journal(run), s.Blob(run, "digest"), s.Blob(run, "digest") + ".1"},
				ZoneIn:    {s.Reply(call), s.Reply(call) + ".jane", s.Control(wire.ControlCancel, "desk", run)},
				ZoneOut:   {s.Call(call), s.Void(call)},
				ZoneDone:  {s.Done("desk", run, "init")},
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
					if got := storing(all, subject); !slices.Equal(got, []string{StreamName(s, want)}) {
						t.Fatalf("%d partitions: %s is stored in %v, want %s", l.Partitions(), subject, got, StreamName(s, want))
					}
				}
			}
		}
	}
}

// What belongs to no run is on the first stream.
func TestLayout_HasWhatBelongsToNoRunOnTheFirstStream(t *testing.T) {
	t.Parallel()
	c := &Conn{subjects: wire.DefaultSubjects()}
	for _, l := range layouts(t) {
		all := filters(c, l)
		for subject, z := range map[string]Zone{
			c.leaseSubject("writable"): ZoneTimer, c.leaseSubject("reconcile_agent_017"): ZoneTimer, c.leaseSubject(outageLease("key")): ZoneTimer,
			c.leaseSubject(outageLease("017")): ZoneTimer, c.mark("key", "desk", "255", testRun.Token): ZoneTimer,
			c.mark("255", "desk", "255", testRun.Token): ZoneTimer, c.subjects.Spec("digest"): ZoneRun, c.subjects.Spec("digest") + ".1": ZoneRun,
		} {
			first := l.Zones(z)[0]
			if got := l.ZoneOf(subject); got != first {
				t.Errorf("%d partitions: %s is in %s, want %s", l.Partitions(), subject, got, first)
			}
			if got := storing(all, subject); !slices.Equal(got, []string{StreamName(c.subjects, first)}) {
				t.Errorf("%d partitions: %s is stored in %v, want %s", l.Partitions(), subject, got, first)
			}
		}
	}
}

// One partition is what there was before there were any.
func TestLayout_OfOnePartitionDividesNothing(t *testing.T) {
	t.Parallel()
	c := &Conn{subjects: wire.DefaultSubjects()}
	want := map[string][]string{"AGENTD_TMR": {"agentd.tmr.>", "agentd.fire.>"}, "AGENTD_RUN": {"agentd.run.>", "agentd.blob.>", "agentd.spec.>"}}
	for _, p := range []Plan{{}, {Partitions: 1}} {
		for _, s := range c.streams(p) {
			if subjects := want[s.Name]; subjects != nil && !slices.Equal(s.Subjects, subjects) {
				t.Errorf("%s stores %v", s.Name, s.Subjects)
			}
			if s.Metadata != nil {
				t.Errorf("%s has the metadata %v", s.Name, s.Metadata)
			}
		}
		if got := Streams(c.subjects, p); !slices.Contains(got, "AGENTD_TMR") || !slices.Contains(got, "AGENTD_RUN") {
			t.Errorf("the streams are %v", got)
		}
	}
}

func TestLayout_SaysWhatAFilterCanBeOn(t *testing.T) {
	t.Parallel()
	l := Layout{4}
	for filter, want := range map[string][]Zone{
		"agentd.tmr.*.255." + testRun.Token: {"TMR_3"},
		"agentd.fire.desk.064.x":            {"TMR_1"},
		"agentd.fire.desk.063.x":            {"TMR_0"},
		"agentd.tmr.*.128.>":                {"TMR_2"},
		"agentd.fire.desk.>":                {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.*.*.x":                  {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.>":                      {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		">":                                 {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.parked.key.desk.>":      {"TMR_0"},
		"agentd.tmr.lease.reconcile":        {"TMR_0"},
	} {
		if got := l.Holding(ZoneTimer, filter); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	if got := l.Holding(ZoneStart, "agentd.start.>"); !slices.Equal(got, []Zone{ZoneStart}) {
		t.Errorf("init events are in %v", got)
	}
}

func TestNewLayout_RefusesOtherNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 3, 100, 255, 512} {
		if _, err := NewLayout(n); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("%d partitions: %v", n, err)
		}
	}
}
