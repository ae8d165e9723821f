package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/proxy"
)

// nemesis hurts the world.
type nemesis struct {
	*world
	// hurting ends when the faults stop.
	hurting context.Context
	keys    rotation
}

// workers keeps a worker going at each of its places: one incarnation after the other, each with a failpoint, until faults
// stop, and then one without until all ends.
func (n *nemesis) workers(all context.Context, background *sync.WaitGroup) {
	for place := range n.options.workers {
		rng := n.rng(100 + uint64(place))
		background.Go(func() {
			log, err := n.logFile(fmt.Sprint("worker-", place))
			if err != nil {
				n.record.violate("%v", err)
				return
			}
			for life := 1; n.hurting.Err() == nil; life++ {
				n.live(fmt.Sprintf("w%d.%d", place, life), n.choose(rng), rng, log)
			}
			for life := 1; all.Err() == nil; life++ { // a run may end it, too
				last := n.hire(fmt.Sprintf("w%d.last.%d", place, life), armedSpec{}, rng, log, func(note) {})
				if last == nil {
					break
				}
				select {
				case <-last.ended:
				case <-all.Done():
					last.signal(syscall.SIGTERM)
					<-last.ended
				}
			}
			if err := log.Close(); err != nil {
				n.record.violate("%v", err)
			}
		})
	}
}

// choose picks a failpoint: the fewer its strikes so far, the more likely.
func (n *nemesis) choose(rng *rand.Rand) armedSpec {
	weights := make([]float64, len(failpoints))
	total := 0.0
	for i, f := range failpoints {
		strikes := float64(n.record.strikes(f.name))
		weights[i] = 1 / (1 + strikes*strikes)
		total += weights[i]
	}
	chosen := len(failpoints) - 1
	for x, i := rng.Float64()*total, 0; i < len(weights); i++ {
		if x -= weights[i]; x < 0 {
			chosen = i
			break
		}
	}
	f := failpoints[chosen]
	spec := armedSpec{Point: f.name, Action: f.actions[rng.IntN(len(f.actions))], Nth: 1}
	switch {
	case spec.Action == actionLose:
		spec.Nth = 1 + rng.IntN(10)
	case n.record.strikes(f.name) > 0: // what was never reached is struck at once
		spec.Nth = 1 + rng.IntN(20)
	}
	return spec
}

// mostAstray is how far the clock of a worker's machine is off at most.
const mostAstray = 6 * time.Hour

// reached is where a worker reaches NATS: through proxies.
func (n *nemesis) reached(rng *rand.Rand) string {
	if n.cluster != nil {
		return n.cluster.URL(rng.IntN(len(n.cluster.Nodes)))
	}
	return "nats://" + n.nats.proxy.Address()
}

// key is what a worker that begins now seals with. It stays as it is when the faults have stopped: workers live on then.
func (n *nemesis) key() int {
	if n.hurting.Err() != nil {
		return n.keys.last()
	}
	key, changed := n.keys.at(time.Since(n.began))
	if changed {
		n.record.fault("another key for what is stored")
	}
	return key
}

func (n *nemesis) hire(name string, spec armedSpec, rng *rand.Rand, log *os.File, onStop func(note)) *child {
	r := role{
		NATS: n.reached(rng), Model: n.model.url, Armed: spec,
		Ahead: time.Duration(rng.Int64N(int64(2*mostAstray))) - mostAstray, Key: n.key(),
	}
	if n.redis != nil {
		r.Redis = "redis://" + n.redis.proxy.Address()
	}
	c, err := n.play(name, r, log, func(got note) {
		n.record.note(got)
		if got.Kind == noteStruck && got.Action == actionStop {
			onStop(got)
		}
	})
	if err != nil {
		n.record.violate("%v", err)
		return nil
	}
	return c
}

// live is one incarnation of a worker, from its start to its end.
func (n *nemesis) live(name string, spec armedSpec, rng *rand.Rand, log *os.File) {
	zombie := make(chan struct{}, 1)
	c := n.hire(name, spec, rng, log, func(note) { zombie <- struct{}{} })
	if c == nil {
		return
	}
	span := time.NewTimer(time.Duration(500+rng.IntN(3500)) * time.Millisecond)
	defer span.Stop()
	select {
	case <-c.ended:
	case <-zombie:
		n.resurrect(c, rng)
	case <-span.C:
		n.end(c, rng)
	case <-n.hurting.Done():
		n.end(c, rng)
	}
	<-c.ended
	if code := c.exitCode(); code > 1 {
		n.record.violate("worker %s ended by itself with code %d", name, code)
	}
}

// resurrect lets a stopped worker go on when its leases have lapsed, and ends it a while later.
func (n *nemesis) resurrect(c *child, rng *rand.Rand) {
	// Both also when faults stop meanwhile: it is what a zombie does after its rest that is of interest.
	pause(context.Background(), ackWait+time.Duration(rng.IntN(2000))*time.Millisecond)
	c.signal(syscall.SIGCONT)
	pause(context.Background(), time.Duration(rng.IntN(1500))*time.Millisecond)
	n.kill(c)
}

// end ends a worker that no failpoint struck.
func (n *nemesis) end(c *child, rng *rand.Rand) {
	switch rng.IntN(6) {
	case 0:
		n.record.fault("SIGSTOP to a worker")
		n.record.cover("C23", 1)
		n.record.died(c.name, time.Now().UnixMilli())
		c.signal(syscall.SIGSTOP)
		n.resurrect(c, rng)
	case 1, 2:
		n.record.fault("SIGTERM to a worker")
		c.signal(syscall.SIGTERM)
		select {
		case <-c.ended:
		case <-time.After(20 * time.Second):
			n.record.fault("SIGKILL to a worker that did not stop")
			c.kill()
		}
	default:
		n.kill(c)
	}
}

func (n *nemesis) kill(c *child) {
	n.record.fault("SIGKILL to a worker")
	n.record.died(c.name, time.Now().UnixMilli())
	c.kill()
}

// servers kills and stops a server now and then. first is the pause before the first time.
func (n *nemesis) server(s *server, rng *rand.Rand, crashes []string) {
	for {
		pause(n.hurting, time.Duration(2500+rng.IntN(6000))*time.Millisecond)
		if n.hurting.Err() != nil {
			return
		}
		for _, crash := range crashes {
			n.record.cover(crash, 1)
		}
		if rng.IntN(3) == 0 {
			n.record.fault("SIGSTOP to " + s.name)
			frozen := time.Now()
			s.process().signal(syscall.SIGSTOP)
			pause(n.hurting, time.Duration(200+rng.IntN(3000))*time.Millisecond)
			s.process().signal(syscall.SIGCONT)
			n.hurts.absent(s.name, frozen)
			continue
		}
		if err := n.killed(s, rng); err != nil {
			n.record.violate("%v", err)
			return
		}
		killed := time.Now()
		pause(n.hurting, time.Duration(rng.IntN(1000))*time.Millisecond)
		if err := s.start(context.WithoutCancel(n.hurting)); err != nil {
			n.record.violate("%s does not start again: %v", s.name, err)
			return
		}
		n.hurts.absent(s.name, killed)
	}
}

// outages has the model go away now and then, for as long as it takes to be noticed.
func (n *nemesis) outages(rng *rand.Rand) {
	defer n.model.comeBack()
	ways := []int{hangUp, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusUnauthorized}
	for {
		pause(n.hurting, time.Duration(10_000+rng.IntN(25_000))*time.Millisecond)
		if n.hurting.Err() != nil {
			return
		}
		n.record.fault("the model goes away")
		gone := time.Now()
		n.model.goAway(ways[rng.IntN(len(ways))])
		pause(n.hurting, time.Duration(500+rng.IntN(6000))*time.Millisecond)
		n.model.comeBack()
		n.hurts.absent("the model", gone)
	}
}

// poison begins a run now and then that kills whoever drives it.
func (n *nemesis) poison(all context.Context, rng *rand.Rand) {
	list := scenarios()
	poison := &list[slices.IndexFunc(list, func(s scenario) bool { return s.name == poisonScenario })]
	for {
		pause(n.hurting, time.Duration(8000+rng.IntN(15_000))*time.Millisecond)
		if n.hurting.Err() != nil {
			return
		}
		n.clients.begin(all, start{agent: poison.agent, scenario: poison, fails: poison.fails})
	}
}

// network cuts connections to a server, silences them, and slows them down.
func (n *nemesis) network(s *server, rng *rand.Rand) {
	n.cuts(s.name, rng, func() *proxy.Proxy { return s.proxy })
}

func (n *nemesis) cuts(name string, rng *rand.Rand, choose func() *proxy.Proxy) {
	for {
		pause(n.hurting, time.Duration(1000+rng.IntN(4000))*time.Millisecond)
		if n.hurting.Err() != nil {
			return
		}
		switch p := choose(); rng.IntN(6) {
		case 0, 1:
			n.record.fault("silence between workers and " + name)
			p.Silence()
			pause(n.hurting, time.Duration(100+rng.IntN(1500))*time.Millisecond)
			p.Speak()
		case 2:
			n.record.fault("slow connections between workers and " + name)
			p.Slow((16 + rng.IntN(256)) << 10)
			pause(n.hurting, time.Duration(500+rng.IntN(4000))*time.Millisecond)
			p.Slow(0)
		default:
			n.record.fault("connections to " + name + " cut")
			p.Cut(func() bool { return rng.IntN(2) == 0 })
		}
	}
}

// timers makes armed timers fire early, twice, and when the run is over.
func (n *nemesis) timers(all context.Context, rng *rand.Rand, background *sync.WaitGroup) {
	fires := func(subject string, data []byte, at time.Time) {
		background.Go(func() {
			if pause(all, time.Until(at)); all.Err() == nil {
				n.publishRaw(all, subject, data)
			}
		})
	}
	notTimers := []string{streams.LeaseToken, streams.ParkedToken}
	watch := func(d broker.Delivery) bool {
		// Leases and the marks of parked runs are on the same stream.
		if slices.Contains(notTimers, strings.Split(d.Subject(), ".")[2]) {
			return true
		}
		var armed struct {
			Due int64 `json:"due"`
		}
		target := d.Header("Nats-Schedule-Target")
		if err := json.Unmarshal(d.Data(), &armed); err != nil || target == "" {
			n.record.violate("a timer cannot be read: %s %s", d.Subject(), d.Data())
			return true
		}
		due := time.UnixMilli(armed.Due)
		switch rng.IntN(20) {
		case 0:
			n.record.count("timers fired early", 1)
			fires(target, d.Data(), time.Now())
		case 1:
			n.record.count("timers fired twice", 1)
			fires(target, d.Data(), due.Add(time.Duration(rng.IntN(20))*time.Millisecond))
		case 2:
			n.record.count("timers fired late", 1)
			fires(target, d.Data(), due.Add(time.Duration(rng.IntN(4000))*time.Millisecond))
		default:
			return true
		}
		n.record.cover("C22", 1)
		return true
	}
	filter := []string{subjects.All(wire.KindTimer)}
	for n.hurting.Err() == nil {
		if err := n.conn.WatchNew(n.hurting, streams.Timer, filter, watch); err != nil {
			pause(n.hurting, 200*time.Millisecond) // the server is away
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
