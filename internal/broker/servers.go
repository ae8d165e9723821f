package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/address"
	"agentd/internal/broker/leader"
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
func (c *Conn) CheckServers(ctx context.Context, p Plan) (Servers, []finding.Finding, error) {
	js, err := jetstream.New(c.nc) // one that does not wait for elections
	if err != nil {
		return Servers{}, nil, fmt.Errorf("JetStream: %w", err)
	}
	if l := c.lookBriefly(ctx, js, StreamName(c.subjects, ZoneStart)); l.err == nil {
		layout, err := layoutIn(l.info.Config)
		if err != nil {
			return Servers{}, nil, err
		}
		p.Partitions = layout.n
	}
	planned := c.streams(p)
	looks := make([]streamLook, len(planned))
	var looking sync.WaitGroup
	for i, want := range planned {
		looking.Go(func() { looks[i] = c.lookBriefly(ctx, js, want.Name) })
	}
	looking.Wait()
	x := &examined{
		Servers: Servers{Cluster: c.nc.ConnectedClusterName(), Leads: map[string]int{}}, away: map[string]absence{}, behind: map[string][]string{},
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
			// Verify says it.
		default:
			return Servers{}, nil, fmt.Errorf("look at stream %s: %w", l.name, l.err)
		}
	}
	return x.Servers, x.findings(c.nc.ConnectedServerName(), p.Replicas), nil
}

// streamLook is what came of a look at a stream.
type streamLook struct {
	name string
	info *jetstream.StreamInfo
	err  error
}

func (c *Conn) lookBriefly(ctx context.Context, js jetstream.JetStream, name string) streamLook {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	ctx, explain, stop := c.refusals.until(ctx, "$JS.API.STREAM.INFO."+name)
	defer stop()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return streamLook{name: name, err: explain(err)}
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
			fmt.Sprintf("server %s, which this command is connected to, reaches no leader of %s", cmp.Or(here, "of no name"), summary(x.Leaderless)),
			"see that a majority of the servers runs and that they reach each other; an election takes up to 20 s: run agentd doctor again after that"))
	}
	for _, name := range slices.Sorted(maps.Keys(x.away)) {
		a := x.away[name]
		f = append(f, finding.Error("server_away",
			fmt.Sprintf("server %s has not been heard of for %s by the leaders of %s: if another server is lost, nothing goes on",
				name, a.silent.Round(time.Second), summary(a.streams)),
			"start it again, or see why it does not answer; one that is gone for good: nats server cluster peer-remove, after another has joined"))
	}
	for _, name := range slices.Sorted(maps.Keys(x.behind)) {
		f = append(f, finding.Warning("server_behind",
			fmt.Sprintf("server %s has not caught up with %s: until then its replicas do not count", name, summary(x.behind[name])),
			"wait until it has; if it does not get on, look at its log and its disk"))
	}
	if len(x.few) > 0 {
		f = append(f, finding.Error("replicas", fmt.Sprintf("nats.replicas is %d, and these streams have fewer: %s", wanted, strings.Join(x.few, ", ")),
			remedyProvision))
	}
	if len(x.single) > 0 {
		f = append(f, finding.Warning("single_replica",
			fmt.Sprintf("on one server of the cluster alone are %s: while it is away nothing goes on, and its disk is all there is",
				strings.Join(x.single, ", ")),
			"set nats.replicas to 3, and run: agentd provision"))
	}
	return f
}

// dialWithin bounds the look at one URL.
const dialWithin = 2 * time.Second

// Away are those of a comma-separated list of URLs, without who one is, where nobody listens.
func Away(ctx context.Context, urls string) []string {
	list := address.Servers(urls)
	away := make([]string, len(list))
	var looking sync.WaitGroup
	for i, text := range list {
		looking.Go(func() {
			if !listens(ctx, text) {
				away[i] = address.Hide(text)
			}
		})
	}
	looking.Wait()
	return slices.DeleteFunc(away, func(url string) bool { return url == "" })
}

func listens(ctx context.Context, text string) bool {
	url, err := address.Parse(text)
	if err != nil {
		return true // connecting has said what is wrong with it
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(url.Hostname(), cmp.Or(url.Port(), "4222")))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was said
	return true
}

// tellAway says which servers of a list are away, of which this connection needs one only.
func (c *Conn) tellAway(urls string) {
	if !strings.Contains(urls, ",") {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.looking.Go(func() {
		defer cancel()
		for _, url := range Away(ctx, urls) {
			c.log.Warn("a NATS server of the list cannot be reached; others are used", "url", url)
		}
	})
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
}
