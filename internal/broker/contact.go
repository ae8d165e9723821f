package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
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
	// forgottenAfter is how long after a request without an answer the next one begins another silence: desks ask each 12 s at least.
	forgottenAfter = 15 * time.Second
	// rememberedFor is how long a server is remembered that the connection is told of no more.
	rememberedFor = 10 * time.Minute
	// sayAfter is for how long a request waits before somebody is told.
	sayAfter = time.Second
	// lookEvery is how often a connection looks whether its server reaches a leader of what is read over it.
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
	// servers are those that the connection was told of, by host and port, with when it was last.
	servers map[string]time.Time
	// left is the id of the server that was left last, and names how many other names it may be reached by at most.
	left  string
	names int
	// answered says that JetStream has answered at all: who may not ask is not answered either.
	answered bool
	// reads and writes are apart: a leader that is cut off goes on reading for up to 20 s, and stores nothing. workers are requests that
	// workers answer: none of them is left on such a server.
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
	contact *contact
	// heard is what its requests are counted with.
	heard *silence
	// These are the connection's. A field of its type would have the linker keep all of its methods, in each program.
	waits, leave func(what string, err error)
	streamOf     func(subject string) string
	publishable  func(ctx context.Context, subject string) error
}

var _ leader.Listener = followed{}

// Unanswered implements leader.Listener.
func (f followed) Unanswered(what string, since time.Time, err error) {
	c, now := f.contact, time.Now()
	c.mu.Lock()
	if f.heard.since.IsZero() || since.Sub(f.heard.last) > forgottenAfter { // nobody asked for so long: an earlier silence may have ended
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
	leave := here >= leaveAfter && (c.answered || f.heard == &c.workers || leader.Leaderless(err))
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

// reconnected notes that the connection is to another server, or to the same one again. One that was just left may have another name, by which
// it is reached again at first: it is left once more.
func (c *Conn) reconnected() {
	c.contact.mu.Lock()
	c.contact.connected = time.Now()
	again := c.contact.names > 0 && c.contact.left == c.nc.ConnectedServerId()
	c.contact.names--
	c.contact.mu.Unlock()
	if again {
		c.forceReconnect()
	}
}

// leave connects to another server than the one that does not answer, if there is another and none was left a moment ago.
func (c *Conn) leave(what string, err error) {
	c.restoreServers()
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
		c.contact.left, c.contact.names = c.nc.ConnectedServerId(), len(c.nc.Servers())-1
	}
	c.contact.mu.Unlock()
	if early {
		return
	}
	c.log.Warn("this NATS server seems to be cut off from the others; connecting to another",
		"server", c.nc.ConnectedServerName(), "asked", what, "error", err)
	c.forceReconnect()
}

func (c *Conn) forceReconnect() {
	if err := c.nc.ForceReconnect(); err != nil {
		c.log.Debug("the connection is closed", "error", err)
	}
}

// probe asks a leader what it hears of the others that have what it leads.
type probe struct {
	what string
	ask  func(context.Context) (*jetstream.ClusterInfo, error)
}

func (c *Conn) probeConsumer(ref streams.ConsumerRef) *probe {
	return &probe{"consumer " + ref.Name, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
		consumer, err := c.js.Consumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name)
		if err != nil {
			return nil, err
		}
		return consumer.CachedInfo().Cluster, nil
	}}
}

func (c *Conn) probeStream(name string) *probe {
	return &probe{"stream " + name, func(ctx context.Context) (*jetstream.ClusterInfo, error) {
		s, err := c.js.Stream(ctx, name)
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
		c.rememberServers()
		if !c.nc.IsConnected() {
			c.restoreServers()
		}
		if c.nc.ConnectedClusterName() == "" {
			continue // it is alone
		}
		if p := c.contact.next(turn); p != nil {
			c.askProbe(ctx, p)
		}
	}
}

// rememberServers notes the servers that the connection is told of.
func (c *Conn) rememberServers() {
	now := time.Now()
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	if c.contact.servers == nil {
		c.contact.servers = map[string]time.Time{}
	}
	for _, text := range c.nc.DiscoveredServers() {
		if u, err := url.Parse(text); err == nil {
			c.contact.servers[u.Host] = now
		}
	}
	maps.DeleteFunc(c.contact.servers, func(_ string, told time.Time) bool { return now.Sub(told) > rememberedFor })
}

// restoreServers gives the connection the servers again that it was told of lately. A server that has lost all others tells its clients so, and
// these forget those whose URLs they were told and not given: they could go nowhere. Over TLS an address is not restored, because whose name is
// in its certificate is forgotten with it.
func (c *Conn) restoreServers() {
	pool := c.nc.ServerPool()
	if len(pool) == 0 {
		return
	}
	urls, known := make([]string, 0, len(pool)), map[string]bool{}
	for _, s := range pool {
		urls, known[s.URL.Host] = append(urls, s.URL.String()), true
	}
	model := *pool[0].URL
	_, err := c.nc.TLSConnectionState()
	encrypted := err == nil || model.Scheme == "tls" || model.Scheme == "wss"
	c.contact.mu.Lock()
	for host := range c.contact.servers {
		model.Host = host
		nameless := encrypted && net.ParseIP(model.Hostname()) != nil
		if !known[host] && !nameless {
			urls = append(urls, model.String())
		}
	}
	c.contact.mu.Unlock()
	if len(urls) == len(pool) {
		return
	}
	if err := c.nc.SetServerPool(urls); err != nil {
		c.log.Debug("other servers are forgotten", "error", err)
	}
}

func (c *Conn) askProbe(ctx context.Context, p *probe) {
	cluster, err := p.ask(ctx)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		c.contact.forget(p)
	case err != nil:
		c.log.Debug("whether the server is cut off cannot be seen", "probe", p.what, "error", err)
	case deserted(cluster):
		c.leave(p.what, fmt.Errorf("its leader has heard of no majority of its servers for %s", desertedAfter))
	}
}

// askedWorkers notes how a request to workers fared, where servers are a cluster: who asks nobody else notices by them that its server is cut
// off. One that was refused may not have reached any.
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
	err = leader.Patiently(ctx, f, "consumer "+stream+"/"+name, func(ctx context.Context) error {
		consumer, err = f.JetStream.Consumer(ctx, stream, name)
		return err
	})
	return consumer, err
}

// PublishMsg implements jetstream.JetStream.
func (f followed) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	if err := f.publishable(ctx, m.Subject); err != nil {
		return nil, err
	}
	f.heard = &f.contact.writes
	err = leader.PatientlyOnce(ctx, f, "stream "+f.streamOf(m.Subject), func(ctx context.Context) error {
		ack, err = f.JetStream.PublishMsg(ctx, m, o...)
		return err
	})
	return ack, err
}
