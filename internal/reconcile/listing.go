package reconcile

import (
	"context"
	"fmt"
	"strings"

	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// wholeList is up to how many subjects of a stream are listed all at once, not one partition after the other.
const wholeList = 20_000

// belongings is what runs have on the broker.
type belongings interface {
	// runOf returns the subjects of one kind that a run has.
	runOf(ctx context.Context, kind wire.Kind, run wire.RunKey) ([]string, error)
	// indexed is the revision in the index of runs; 0 where the run has no document.
	indexed(ctx context.Context, run wire.RunKey) (uint64, error)
}

// listing is what all runs have, for passes over all of them, by kind of subject. It holds one partition; of small streams all.
type listing struct {
	p *pass
	// lists are the subjects by kind and partition, each by the run's token.
	lists map[wire.Kind]map[string]map[string][]string
	// revisions are those of the documents of a partition, by the run's token.
	revisions map[string]uint64
	partition string
}

func newListing(p *pass) *listing {
	return &listing{p: p, lists: map[wire.Kind]map[string]map[string][]string{}}
}

// places say where the partition is among the tokens after the kind, and whether more follow after the run.
var places = map[wire.Kind]struct {
	zone streams.Zone
	at   int
	more bool
}{
	wire.KindOut:   {streams.Out, 3, true},
	wire.KindVoid:  {streams.Out, 3, true},
	wire.KindIn:    {streams.In, 3, true},
	wire.KindDone:  {streams.Done, 1, true},
	wire.KindTimer: {streams.Timer, 1, false},
	wire.KindFire:  {streams.Timer, 1, false},
}

// of returns the subjects of one kind that runs of a partition have, by the run's token.
func (x *listing) of(ctx context.Context, kind wire.Kind, partition string) (map[string][]string, error) {
	if list, ok := x.lists[kind][partition]; ok {
		return list, nil
	}
	l, wanted := places[kind], partition
	var held uint64
	for _, z := range x.p.layout.Zones(l.zone) {
		held += x.p.states[z].Subjects
	}
	whole := held <= wholeList && !x.p.byPartition
	if whole && x.lists[kind] != nil {
		return nil, nil // there are none
	}
	if whole {
		wanted = "*"
	}
	filter := fmt.Sprintf("%s.%s%s.%s.>", x.p.subjects.Root(), kind, strings.Repeat(".*", l.at), wanted)
	subjects, err := x.p.Conn.SubjectsUnder(ctx, l.zone, filter)
	if err != nil {
		return nil, err
	}
	list := map[string]map[string][]string{}
	if !whole {
		list[partition] = map[string][]string{}
	}
	for _, s := range subjects {
		tokens := strings.Split(s, ".")
		if len(tokens) < l.at+4 {
			continue
		}
		of, run := tokens[l.at+2], tokens[l.at+3]
		if list[of] == nil {
			list[of] = map[string][]string{}
		}
		list[of][run] = append(list[of][run], s)
	}
	x.lists[kind] = list
	return list[partition], nil
}

// runOf returns the subjects of one kind that a run has.
func (x *listing) runOf(ctx context.Context, kind wire.Kind, run wire.RunKey) ([]string, error) {
	list, err := x.of(ctx, kind, run.Partition)
	return list[run.Token], err
}

func (x *listing) indexed(ctx context.Context, run wire.RunKey) (uint64, error) {
	if x.partition != run.Partition {
		revisions, err := x.p.Conn.IndexedRevisions(ctx, run.Partition)
		if err != nil {
			return 0, err
		}
		x.revisions, x.partition = revisions, run.Partition
	}
	return x.revisions[run.Token], nil
}

// lookup asks for what one run has, for passes over few of them.
type lookup struct{ p *pass }

func (l lookup) runOf(ctx context.Context, kind wire.Kind, run wire.RunKey) ([]string, error) {
	at := places[kind]
	filter := fmt.Sprintf("%s.%s%s.%s.%s", l.p.subjects.Root(), kind, strings.Repeat(".*", at.at), run.Partition, run.Token)
	if at.more {
		filter += ".>"
	}
	return l.p.Conn.SubjectsUnder(ctx, at.zone, filter)
}

func (l lookup) indexed(ctx context.Context, run wire.RunKey) (uint64, error) {
	i, err := l.p.Conn.Indexed(ctx, run)
	return i.Revision, err
}
