package survey

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A leader that has never heard of a replica says so with no time at all: since when it leads tells a server that is away from one that
// is about to be heard of.
func TestExamined_TellsAwayFromBehind(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_795_229_924_408)
	for name, c := range map[string]struct {
		replica jetstream.PeerInfo
		leads   time.Duration
		away    time.Duration
		behind  bool
	}{
		"it answers":                       {jetstream.PeerInfo{Current: true, Active: time.Second}, time.Hour, 0, false},
		"it is told by another as current": {jetstream.PeerInfo{Current: true}, time.Hour, 0, false},
		"it catches up":                    {jetstream.PeerInfo{Active: time.Second, Lag: 3}, time.Hour, 0, true},
		"it lacks many":                    {jetstream.PeerInfo{Current: true, Active: time.Second, Lag: 1001}, time.Hour, 0, true},
		"it has fallen silent":             {jetstream.PeerInfo{Active: 11 * time.Second, Lag: 3}, time.Hour, 11 * time.Second, false},
		"it was away when the leader came": {jetstream.PeerInfo{Lag: 3}, 12 * time.Second, 12 * time.Second, false},
		"an election is just over":         {jetstream.PeerInfo{Lag: 3}, time.Second, 0, true},
		"it is about to join":              {jetstream.PeerInfo{Pending: true}, time.Hour, 0, true},
		"it has said that it goes":         {jetstream.PeerInfo{Offline: true, Active: 2 * time.Second}, time.Hour, 2 * time.Second, false},
	} {
		c.replica.Name = "n1"
		since := now.Add(-c.leads)
		x := &examined{Servers: Servers{Leads: map[string]int{}}, away: map[string]absence{}, behind: map[string][]string{}}
		x.saw(&jetstream.StreamInfo{
			Config: jetstream.StreamConfig{Name: "AGENTD_RUN", Replicas: 3}, TimeStamp: now,
			Cluster: &jetstream.ClusterInfo{Leader: "n2", LeaderSince: &since, Replicas: []*jetstream.PeerInfo{&c.replica}},
		}, 3)
		if got := x.away["n1"].silent; got != c.away {
			t.Errorf("%s: away for %s, want %s", name, got, c.away)
		}
		if got := slices.Collect(maps.Keys(x.behind)); (len(got) == 1) != c.behind {
			t.Errorf("%s: behind are %v, want %v", name, got, c.behind)
		}
	}
}
