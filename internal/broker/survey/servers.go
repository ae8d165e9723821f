// Package survey looks at what is on a broker, and at its servers: what the streams hold, and whether servers, their disks, their users and
// their data folder are as they should be. Whether the streams are is package provision's to say.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/finding"
	"agentd/sdk"
)

const (
	// lookWithin bounds the look at one stream: who examines a cluster wants to know that nobody leads it, and does not wait for it.
	lookWithin = 3 * time.Second
	// heardWithin is how lately a leader must have heard of a server that has a replica: they tell each other every second.
	heardWithin = 10 * time.Second
	// mostBehind is how many messages a replica may lack while others write.
	mostBehind = 1000
)

// Servers are what CheckServers saw of a cluster.
type Servers struct {
	// Cluster is its name; empty is a server that is alone.
	Cluster string
	// Leads is how many streams each server leads, by the servers' names.
	Leads map[string]int
	// Leaderless are the streams for whose leader nobody answers.
	Leaderless []string
}

// CheckServers finds servers of the cluster that are away or behind, streams that nobody leads, and those with too few replicas.
func CheckServers(ctx context.Context, c *broker.Conn, p provision.Plan) (Servers, []finding.Finding, error) {
	js, err := c.Impatient()
	if err != nil {
		return Servers{}, nil, err
	}
	if l := lookBriefly(ctx, js, streams.Name(c.Subjects(), streams.Start)); l.err == nil {
		layout, err := streams.LayoutIn(l.info.Config)
		if err != nil {
			return Servers{}, nil, err
		}
		p.Partitions = layout.Partitions()
	}
	planned := p.Streams(c.Subjects())
	looks := make([]streamLook, len(planned))
	var looking sync.WaitGroup
	for i, want := range planned {
		looking.Go(func() { looks[i] = lookBriefly(ctx, js, want.Name) })
	}
	looking.Wait()
	x := &examined{
		Servers: Servers{Cluster: js.Conn().ConnectedClusterName(), Leads: map[string]int{}}, away: map[string]absence{}, behind: map[string][]string{},
	}
	for _, l := range looks {
		switch {
		case leader.Unanswered(l.err):
			x.Leaderless = append(x.Leaderless, l.name)
		case l.err == nil:
			x.saw(l.info, p.Replicas)
		case ctx.Err() != nil:
			return Servers{}, nil, ctx.Err()
		case errors.Is(l.err, jetstream.ErrStreamNotFound), errors.Is(l.err, &sdk.Error{Code: sdk.CodePermissionDenied}):
			// provision.Verify says it.
		default:
			return Servers{}, nil, fmt.Errorf("look at stream %s: %w", l.name, l.err)
		}
	}
	return x.Servers, x.findings(js.Conn().ConnectedServerName(), p.Replicas), nil
}

// streamLook is what came of a look at a stream.
type streamLook struct {
	name string
	info *jetstream.StreamInfo
	err  error
}

func lookBriefly(ctx context.Context, js jetstream.JetStream, name string) streamLook {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return streamLook{name: name, err: err}
	}
	return streamLook{name: name, info: s.CachedInfo()}
}

// examined gathers what streams say of the servers that have them.
type examined struct {
	Servers
	away   map[string]absence
	behind map[string][]string
	// few are the streams with fewer replicas than are wanted, single those with one where nothing is wanted.
	few, single []string
}

// absence is a server that leaders do not hear of.
type absence struct {
	streams []string
	// silent is for how long the leader that heard of it last has not.
	silent time.Duration
}

func (x *examined) saw(info *jetstream.StreamInfo, wanted int) {
	name := info.Config.Name
	switch {
	case info.Config.Replicas < wanted:
		x.few = append(x.few, name)
	case wanted == 0 && info.Config.Replicas == 1 && x.Cluster != "":
		x.single = append(x.single, name)
	}
	if info.Cluster == nil {
		return
	}
	if info.Cluster.Leader != "" {
		x.Leads[info.Cluster.Leader]++
	}
	for _, r := range info.Cluster.Replicas {
		x.Leads[r.Name] += 0 // a server that leads nothing is there, too
		silence := unheard(info, r)
		switch {
		case r.Offline || silence > heardWithin:
			a, known := x.away[r.Name]
			a.streams = append(a.streams, name)
			if !known || silence < a.silent {
				a.silent = silence
			}
			x.away[r.Name] = a
		case !r.Current || r.Lag > mostBehind:
			x.behind[r.Name] = append(x.behind[r.Name], fmt.Sprintf("%s (%d messages)", name, r.Lag))
		}
	}
}

// unheard is for how long a leader has not heard of a replica: of one that it has never heard of, since it leads. One that joins is not
// heard of before it has.
func unheard(info *jetstream.StreamInfo, r *jetstream.PeerInfo) time.Duration {
	if r.Active != 0 || r.Current || r.Pending || info.Cluster.LeaderSince == nil {
		return r.Active
	}
	return info.TimeStamp.Sub(*info.Cluster.LeaderSince)
}

func (x *examined) findings(here string, wanted int) []finding.Finding {
	var f []finding.Finding
	if len(x.Leaderless) > 0 {
		f = append(f, finding.Error("no_leader",
			fmt.Sprintf("server %s, which this command is connected to, reaches no leader of %s", cmp.Or(here, "of no name"), finding.Some(x.Leaderless)),
			"see that a majority of the servers runs and that they reach each other; an election takes up to 20 s: run agentd doctor again after that"))
	}
	for _, name := range slices.Sorted(maps.Keys(x.away)) {
		a := x.away[name]
		f = append(f, finding.Error("server_away",
			fmt.Sprintf("server %s has not been heard of for %s by the leaders of %s: if another server is lost, nothing goes on",
				name, a.silent.Round(time.Second), finding.Some(a.streams)),
			"start it again, or see why it does not answer; one that is gone for good: nats server cluster peer-remove, after another has joined"))
	}
	for _, name := range slices.Sorted(maps.Keys(x.behind)) {
		f = append(f, finding.Warning("server_behind",
			fmt.Sprintf("server %s has not caught up with %s: until then its replicas do not count", name, finding.Some(x.behind[name])),
			"wait until it has; if it does not get on, look at its log and its disk"))
	}
	if len(x.few) > 0 {
		f = append(f, finding.Error("replicas", fmt.Sprintf("nats.replicas is %d, and these streams have fewer: %s", wanted, strings.Join(x.few, ", ")),
			streams.Remedy))
	}
	if len(x.single) > 0 {
		f = append(f, finding.Warning("single_replica",
			fmt.Sprintf("on one server of the cluster alone are %s: while it is away nothing goes on, and its disk is all there is",
				strings.Join(x.single, ", ")),
			"set nats.replicas to 3, and run: agentd provision"))
	}
	return f
}
