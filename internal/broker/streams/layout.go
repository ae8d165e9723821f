package streams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// runPartitions is how many partitions runs have: the first byte of a digest. wire.RunKey has it as three digits.
const runPartitions = 256

// Layout says how many streams the zones of runs are divided into, and what is on which. With n of them the i-th has the runs whose
// partition is one of the 256/n from i·256/n on. What belongs to no run, such as leases, is on the first. The zero value divides nothing.
type Layout struct{ n int }

// NewLayout is the layout with so many partitions: a power of two up to 256, of which 1 divides nothing.
func NewLayout(partitions int) (Layout, error) {
	if partitions < 1 || partitions > runPartitions || partitions&(partitions-1) != 0 {
		return Layout{}, sdk.Errorf(sdk.CodeConfig, "nats.partitions: expected a power of two from 1 to %d, got %d", runPartitions, partitions)
	}
	return Layout{partitions}, nil
}

// Partitions is how many streams a divided zone has.
func (l Layout) Partitions() int { return max(l.n, 1) }

// divided are the zones that a layout divides: those that have several messages of each run. A part of one is a zone too, such as "RUN_3".
var divided = []Zone{Run, Timer, In, Out}

// Zones are the zones that a zone is divided into, in the order of the runs' partitions; of one that is not divided it is that zone.
func (l Layout) Zones(z Zone) []Zone {
	if l.n <= 1 || !z.Divided() {
		return []Zone{z}
	}
	zones := make([]Zone, l.n)
	for i := range zones {
		zones[i] = l.part(z, i)
	}
	return zones
}

func (l Layout) part(z Zone, i int) Zone { return z + "_" + Zone(strconv.Itoa(i)) }

// Divided reports whether layouts divide a zone.
func (z Zone) Divided() bool { return slices.Contains(divided, z) }

// First is the first of the zones that a zone is divided into.
func (z Zone) First() Zone { return Layout{2}.part(z, 0) }

// Whole is the name that a stream, or a zone, would have if the zone were not divided.
func Whole[Named ~string](name Named) Named {
	i := strings.LastIndex(string(name), "_")
	if _, err := strconv.ParseUint(string(name[i+1:]), 10, 8); i < 0 || err != nil {
		return name
	}
	return name[:i]
}

// Consumers are consumers of undivided zones, as they are in this layout: each is on all streams of its zone.
func (l Layout) Consumers(refs ...ConsumerRef) []ConsumerRef {
	var all []ConsumerRef
	for _, ref := range refs {
		for _, z := range l.Zones(ref.Zone) {
			all = append(all, ConsumerRef{z, ref.Name})
		}
	}
	return all
}

// Holding are the zones of a zone's in which there can be messages on a subject or filter.
func (l Layout) Holding(z Zone, filter string) []Zone {
	zones := l.Zones(z)
	if len(zones) == 1 {
		return zones
	}
	tokens := strings.Split(filter, ".")
	if i, ok := l.index(tokens); ok {
		return zones[i : i+1]
	}
	return zones
}

// OfRun is the zone of a zone's that has what is of a run.
func (l Layout) OfRun(z Zone, run wire.RunKey) Zone {
	zones := l.Zones(z)
	p, _ := strconv.Atoi(run.Partition) // the zero key is of no run
	return zones[p*len(zones)/runPartitions]
}

// ZoneOf is the zone that has what is on a subject. It is "" for one that none has.
func (l Layout) ZoneOf(subject string) Zone {
	_, rest, _ := strings.Cut(subject, ".")
	kind, _, _ := strings.Cut(rest, ".")
	z := zoneOf[wire.Kind(kind)]
	if l.n <= 1 || !z.Divided() {
		return z
	}
	return l.Holding(z, subject)[0]
}

// runAt says where the partition of a run is among the tokens after root and kind.
var runAt = map[wire.Kind]int{
	wire.KindTimer: 1, wire.KindFire: 1, wire.KindRun: 0, wire.KindBlob: 0,
	wire.KindOut: 3, wire.KindVoid: 3, wire.KindIn: 3, wire.KindCtl: 2,
}

// index is the place of the stream that has a subject. ok is false for a filter that more than one may have messages on.
func (l Layout) index(tokens []string) (i int, ok bool) {
	if len(tokens) < 3 {
		return 0, false
	}
	kind, rest := wire.Kind(tokens[1]), tokens[2:]
	at, ofRuns := runAt[kind]
	switch {
	case !ofRuns: // it belongs to no run
		return 0, kind == wire.KindSpec
	case kind == wire.KindTimer && (rest[0] == LeaseToken && len(rest) != 3 || rest[0] == ParkedToken && len(rest) > 3):
		return 0, true
	case slices.Contains(rest[:min(at+1, len(rest))], ">") || len(rest) <= at:
		return 0, false
	}
	if p, err := strconv.Atoi(rest[at]); err == nil && len(rest[at]) == 3 && p >= 0 && p < runPartitions {
		return p * l.n / runPartitions, true
	}
	return 0, kind == wire.KindTimer && rest[at] != "*" // a lease of two tokens
}

// Subjects are the subjects of a zone's i-th stream. The server takes no two that overlap, and bears hundreds: a message costs the
// same, and making a stream a few milliseconds.
func (l Layout) Subjects(s wire.Subjects, i int, kinds []wire.Kind) []string {
	if l.n <= 1 {
		subjects := make([]string, len(kinds))
		for j, k := range kinds {
			subjects[j] = s.All(k)
		}
		return subjects
	}
	var subjects []string
	on := func(k wire.Kind, rest ...string) {
		subjects = append(subjects, s.Root()+"."+string(k)+"."+strings.Join(rest, "."))
	}
	for _, k := range kinds {
		at, ofRuns := runAt[k]
		if !ofRuns && i == 0 {
			subjects = append(subjects, s.All(k))
		}
		if !ofRuns {
			continue
		}
		if k == wire.KindTimer && i == 0 {
			on(k, LeaseToken, "*")
			on(k, LeaseToken, OutageLease("*"))
			on(k, ParkedToken, "*", "*", "*", "*")
		}
		for p := i * runPartitions / l.n; p < (i+1)*runPartitions/l.n; p++ {
			rest := append(slices.Repeat([]string{"*"}, at), fmt.Sprintf("%03d", p), ">")
			if k == wire.KindTimer { // marks have more tokens
				rest[len(rest)-1] = "*"
			}
			on(k, rest...)
		}
	}
	return subjects
}

// partitionsKey is the metadata, of streams and of consumers of divided ones, that says how many partitions there are. Where nothing is divided
// it is not there.
const partitionsKey = "agentd-partitions"

// Metadata is that of streams and consumers that were made for the layout.
func (l Layout) Metadata() map[string]string {
	if l.n <= 1 {
		return nil
	}
	return map[string]string{partitionsKey: strconv.Itoa(l.n)}
}

// LayoutIn is the layout that a stream was made for.
func LayoutIn(cfg jetstream.StreamConfig) (Layout, error) {
	return LayoutOf("stream "+cfg.Name, cfg.Metadata)
}

// LayoutOf is the layout that what, which has the metadata, was made for.
func LayoutOf(what string, metadata map[string]string) (Layout, error) {
	text, ok := metadata[partitionsKey]
	if !ok {
		return Layout{1}, nil
	}
	n, err := strconv.Atoi(text)
	if err == nil {
		var l Layout
		if l, err = NewLayout(n); err == nil {
			return l, nil
		}
	}
	return Layout{}, sdk.Errorf(sdk.CodeConfig, "%s says that there are %q partitions", what, text).WithCause(err)
}
