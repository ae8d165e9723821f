package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/retry"
	"agentd/sdk"
)

const (
	// pingEvery is how often a quiet connection asks its server for a sign of life, and pingsLost how many of them may be missing: a
	// server that is frozen, or whose packets are lost, is left after 6 s.
	pingEvery = 2 * time.Second
	pingsLost = 2
	// leaveAfter is for how long a server may leave requests of JetStream without an answer, as one does that is cut off from the
	// others: longer than most elections of a leader take.
	leaveAfter = 8 * time.Second
	// sayAfter is for how long a request waits before somebody is told.
	sayAfter = time.Second
	// lookEvery is how often who reads looks whether its server reaches a leader of what it reads.
	lookEvery = 2 * time.Second
	// desertedAfter is how long a leader hears of none of a majority before it is taken to be cut off: longer than the others wait before
	// they elect another. The leader itself notices it after 10 to 20 s, and goes on answering until then.
	desertedAfter = 5 * time.Second
)

// leaving are the pauses between servers that are left: where no server has a majority, none is better than the others.
var leaving = retry.Pauses{First: leaveAfter, Longest: time.Minute, Spread: 0.2}

// contact notices that the server of a connection is cut off from the others.
type contact struct {
	mu sync.Mutex
	// probes are of what is read over the connection, in turn.
	probes []*probe
	// servers are those that the connection could use when there were several: their URLs, with who one is.
	servers []string
	// answered says that JetStream has answered at all: who may not ask is not answered either.
	answered bool
	// reads and writes are apart: a leader that is cut off goes on reading for up to 20 s, and stores nothing. Workers leave such a server.
	reads, writes, workers silence
	// connected is since when the connection is to its server, and stayUntil when it may be left at the earliest.
	connected, stayUntil time.Time
	pauses               *retry.Sequence
	// told is what somebody was told that requests wait for, since the last answer.
	told map[string]bool
}

// silence is since when requests have had no answer, and when the last one had none; zero while they have.
type silence struct{ since, last time.Time }

// followed is the JetStream of a connection that leaves a server which is cut off from the leaders of streams. What asks a leader waits
// for an election.
type followed struct {
	jetstream.JetStream
	contact  *contact
	refusals *refusals
	// heard is what its requests are counted with.
	heard *silence
	// These are the connection's. A field of its type would have the linker keep all of its methods, in each program.
	waits, leave func(what string, err error)
	streamOf     func(subject string) string
}

var _ leader.Listener = followed{}

// Unanswered implements leader.Listener.
func (f followed) Unanswered(what string, since time.Time, err error) {
	c, now := f.contact, time.Now()
	c.mu.Lock()
	if f.heard.since.IsZero() || since.Sub(f.heard.last) > leaveAfter { // nobody asked for so long: an earlier silence may have ended
		f.heard.since = since
	}
	f.heard.last = now
	say := now.Sub(since) >= sayAfter && !c.told[what]
	if say && c.told == nil {
		c.told = map[string]bool{}
	}
	if say {
		c.told[what] = true
	}
	here := now.Sub(latest(f.heard.since, c.connected))
	leave := here >= leaveAfter && (c.answered || leader.Leaderless(err))
	c.mu.Unlock()
	if say {
		f.waits(what, err)
	}
	if leave {
		f.leave(what, err)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Answered implements leader.Listener.
func (f followed) Answered() {
	c := f.contact
	c.mu.Lock()
	defer c.mu.Unlock()
	*f.heard = silence{}
	c.answered, c.told = true, nil
	if c.reads.since.IsZero() && c.writes.since.IsZero() && c.workers.since.IsZero() {
		c.pauses = nil
	}
}

// reconnected notes that the connection is to another server, or to the same one again.
func (x *contact) reconnected() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.connected = time.Now()
}

// leave connects to another server than the one that does not answer, if there is another and none was left a moment ago.
func (c *Conn) leave(what string, err error) {
	if len(c.nc.Servers()) < 2 || !c.nc.IsConnected() {
		return
	}
	c.contact.mu.Lock()
	early := time.Now().Before(c.contact.stayUntil)
	if !early {
		if c.contact.pauses == nil {
			c.contact.pauses = leaving.Start()
		}
		c.contact.stayUntil = time.Now().Add(c.contact.pauses.Next())
	}
	c.contact.mu.Unlock()
	if early {
		return
	}
	c.log.Warn("nobody answers over this NATS server, as over one that is cut off from the others; connecting to another",
		"server", c.nc.ConnectedServerName(), "asked", what, "error", err)
	if err := c.nc.ForceReconnect(); err != nil {
		c.log.Debug("the connection is closed", "error", err)
	}
}

// probe asks a leader what it hears of the others that have what it leads.
type probe struct {
	at  string
	ask func(context.Context) (*jetstream.ClusterInfo, error)
}

func (c *Conn) probeConsumer(ref ConsumerRef) *probe {
	return &probe{"consumer " + ref.Name, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
		consumer, err := c.js.Consumer(ctx, StreamName(c.subjects, ref.Zone), ref.Name)
		if err != nil {
			return nil, err
		}
		return consumer.CachedInfo().Cluster, nil
	}}
}

func (c *Conn) probeStream(name string) *probe {
	return &probe{"stream " + name, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
		s, err := c.look(ctx, name)
		if err != nil {
			return nil, err
		}
		return s.CachedInfo().Cluster, nil
	}}
}

// stayInContact looks, until the returned function is called, whether the leaders of what is read are reached, and reach others. It needs no
// right beyond that of looking at them: who has not even that is not asked again.
func (c *Conn) stayInContact(probes ...*probe) (stop func()) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	c.contact.probes = append(c.contact.probes, probes...)
	return func() { c.contact.forget(probes...) }
}

// forget ends probes; one that has ended is none.
func (x *contact) forget(probes ...*probe) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.probes = slices.DeleteFunc(x.probes, func(p *probe) bool { return slices.Contains(probes, p) })
}

// next is the probe whose turn it is, or nil.
func (x *contact) next(turn int) *probe {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.probes) == 0 {
		return nil
	}
	return x.probes[turn%len(x.probes)]
}

// lookAround looks until the connection is closed.
func (c *Conn) lookAround() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.looking.Go(func() {
		<-c.closed
		cancel()
	})
	for turn := 0; retry.Sleep(ctx, lookEvery) == nil; turn++ {
		c.keepServers()
		if c.nc.ConnectedClusterName() == "" {
			continue // it is alone
		}
		if p := c.contact.next(turn); p != nil {
			c.probe(ctx, p)
		}
	}
}

// keepServers has the connection know the other servers also when its own says that there are none. A server that loses all others says so to its
// clients, and these forget those whose URLs they were told and not given: they could go nowhere. And it has no majority.
func (c *Conn) keepServers() {
	pool := c.nc.ServerPool()
	c.contact.mu.Lock()
	if len(pool) > 1 {
		c.contact.servers = nil
		for _, s := range pool {
			c.contact.servers = append(c.contact.servers, s.URL.String())
		}
	}
	servers := c.contact.servers
	c.contact.mu.Unlock()
	if len(pool) > 1 || len(servers) < 2 {
		return
	}
	if err := c.nc.SetServerPool(servers); err != nil {
		c.log.Debug("the other servers are forgotten", "error", err)
		return
	}
	c.leave("its servers", errors.New("it says that it has lost all others of its cluster"))
}

func (c *Conn) probe(ctx context.Context, p *probe) {
	cluster, err := p.ask(ctx)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		c.contact.forget(p)
	case err != nil:
		c.log.Debug("whether the server is cut off cannot be seen", "probe", p.at, "error", err)
	case deserted(cluster):
		c.leave(p.at, fmt.Errorf("its leader has heard of no majority of its servers for %s", desertedAfter))
	}
}

// askedWorkers notes how a request to workers fared, where servers are a cluster: who asks nobody else notices by them that its server is cut
// off.
func (c *Conn) askedWorkers(what string, since time.Time, err error) {
	f, ok := c.js.(followed)
	if !ok || c.nc.ConnectedClusterName() == "" {
		return
	}
	f.heard = &c.contact.workers
	switch {
	case err == nil:
		f.Answered()
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		f.Unanswered(what, since, err)
	}
}

// deserted reports whether a leader hears of no majority of the servers that have what it leads.
func deserted(cluster *jetstream.ClusterInfo) bool {
	if cluster == nil {
		return false
	}
	heard := 1
	for _, r := range cluster.Replicas {
		if r.Active <= desertedAfter { // 0 where it has not heard of it since it leads
			heard++
		}
	}
	return 2*heard <= len(cluster.Replicas)+1
}

// Stream implements jetstream.JetStream.
func (f followed) Stream(ctx context.Context, name string) (s jetstream.Stream, err error) {
	err = leader.Patiently(ctx, f, "stream "+name, func(ctx context.Context) error {
		s, err = f.JetStream.Stream(ctx, name)
		return err
	})
	return s, err
}

// Consumer implements jetstream.JetStream.
func (f followed) Consumer(ctx context.Context, stream, name string) (consumer jetstream.Consumer, err error) {
	ctx, explain, stop := f.refusals.until(ctx, "$JS.API.CONSUMER.INFO."+stream+"."+name)
	defer stop()
	err = leader.Patiently(ctx, f, "consumer "+stream+"/"+name, func(ctx context.Context) error {
		consumer, err = f.JetStream.Consumer(ctx, stream, name)
		return err
	})
	return consumer, explain(err)
}

// PublishMsg implements jetstream.JetStream.
func (f followed) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	f.heard = &f.contact.writes
	err = leader.PatientlyOnce(ctx, f, "stream "+f.streamOf(m.Subject), func(ctx context.Context) error {
		ack, err = f.JetStream.PublishMsg(ctx, m, o...)
		return err
	})
	return ack, err
}
