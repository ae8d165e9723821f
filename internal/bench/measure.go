package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/borrow"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/broker/survey"
	"agentd/internal/state/redisstore"
	"agentd/sdk/wire"
)

// Load says how hard a System is worked.
type Load struct {
	// Turns of each run, with a call each, and how many Clients wait for a run each at a time.
	Turns, Clients int
	// Runs is how many runs there are in all; 0 is as many as Duration lets.
	Runs     int
	Duration time.Duration
	// Alone is for how long runs are carried out one after the other first, and mostAlone of them at most; fewest of them at least.
	Alone time.Duration
}

const (
	mostAlone, fewestAlone = 200, 5
	// sampled is how many journals are read.
	sampled = 20
)

// measure loads the System, and reports. The first run, which connects and learns, is in no figure. redis is nil where JetStream is the
// store.
func (s *System) measure(ctx context.Context, l Load, redis *redisstore.Store) (r Report, err error) {
	if _, err := s.Run(ctx, l.Turns, 1); err != nil {
		return r, err
	}
	if r.Probe, err = s.probe(ctx, l.Clients, redis); err != nil {
		return r, err
	}
	alone, err := s.Each(ctx, l.Turns, l.Alone)
	if err != nil {
		return r, err
	}
	r.Alone = spread(alone)
	s.steps.reset()
	before, err := s.snapshot(ctx, redis)
	if err != nil {
		return r, err
	}
	took, err := s.Work(ctx, l)
	if err != nil {
		return r, err
	}
	after, err := s.snapshot(ctx, redis)
	if err != nil {
		return r, err
	}
	if r.Setting, err = s.setting(ctx, l, redis); err != nil {
		return r, err
	}
	r.Runs, r.Seconds = len(took), after.at.Sub(before.at).Seconds()
	r.RunsPerSecond = float64(r.Runs) / r.Seconds
	r.Run, r.NextStep = spread(took), spread(s.steps.reset())
	r.count(before, after)
	if err := s.journals(ctx, &r); err != nil {
		return r, err
	}
	r.judge()
	return r, nil
}

// Work keeps Clients runs going, and returns how long each took, the shortest first.
func (s *System) Work(ctx context.Context, l Load) ([]time.Duration, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	var took []time.Duration
	begun, until := 0, time.Now().Add(l.Duration)
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || l.Runs > 0 && begun >= l.Runs || l.Runs == 0 && time.Now().After(until) {
			return false
		}
		begun++
		return true
	}
	var clients sync.WaitGroup
	for range l.Clients {
		clients.Go(func() {
			for more() {
				began := time.Now()
				if _, err := s.Run(ctx, l.Turns, 1); err != nil {
					stop(err) // the first one counts
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	slices.Sort(took)
	return took, context.Cause(ctx)
}

// Each carries out one run after the other for about d, and returns how long each took, the shortest first.
func (s *System) Each(ctx context.Context, turns int, d time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for began := time.Now(); len(took) < fewestAlone || len(took) < mostAlone && time.Since(began) < d; {
		t := time.Now()
		if _, err := s.Run(ctx, turns, 1); err != nil {
			return nil, err
		}
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	return took, nil
}

// probing is for how long the server is asked to store messages at once.
const probing = 300 * time.Millisecond

// probe measures what the servers take for one thing, with nothing else to do.
func (s *System) probe(ctx context.Context, atOnce int, redis *redisstore.Store) (p Probe, err error) {
	write := func() error { return borrow.Publish(ctx, s.client, []byte(text("probe"))) }
	few := func(do func() (time.Duration, error)) (float64, error) {
		var took []time.Duration
		for range 20 {
			d, err := do()
			if err != nil {
				return 0, err
			}
			took = append(took, d)
		}
		slices.Sort(took)
		return spread(took).P50, nil
	}
	if p.RoundTripMS, err = few(s.client.RoundTrip); err != nil {
		return p, fmt.Errorf("ask the NATS server for a sign of life: %w", err)
	}
	p.WriteMS, err = few(func() (time.Duration, error) {
		began := time.Now()
		err := write()
		return time.Since(began), err
	})
	if err == nil && redis != nil {
		p.RedisRoundTripMS, err = few(func() (time.Duration, error) { return redis.RoundTrip(ctx) })
	}
	if err != nil {
		return p, err
	}
	p.WritesPerSecond, err = rate(atOnce, probing, write)
	return p, err
}

// rate is how often do succeeds in a second, so many at once.
func rate(atOnce int, d time.Duration, do func() error) (float64, error) {
	var mu sync.Mutex
	var failed error
	done, began := 0, time.Now()
	var doing sync.WaitGroup
	for range atOnce {
		doing.Go(func() {
			for time.Since(began) < d {
				err := do()
				mu.Lock()
				done++
				failed = errors.Join(failed, err)
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	doing.Wait()
	return float64(done) / time.Since(began).Seconds(), failed
}

// snapshot is what was counted up to a moment.
type snapshot struct {
	at                      time.Time
	worker, service, client broker.Traffic
	streams                 map[string]Stream
	redis                   map[string]int64
	memory                  redisstore.Weight
	processor               time.Duration
	machine                 machine
	allocations             uint64
}

// zones are the streams that runs write to, without the journal where Redis has it.
func (s *System) zones() []streams.Zone {
	layout := provision.Plan{Partitions: s.o.Partitions}.Layout()
	whole := []streams.Zone{streams.Start, streams.Out, streams.In, streams.Done, streams.DLQ, streams.Timer}
	if s.o.Store.RedisURL == "" {
		whole = append(whole, streams.Run)
	}
	var zones []streams.Zone
	for _, z := range whole {
		zones = append(zones, layout.Zones(z)...)
	}
	return zones
}

func (s *System) snapshot(ctx context.Context, redis *redisstore.Store) (shot snapshot, err error) {
	shot = snapshot{
		at: time.Now(), service: s.service.Traffic(), client: s.client.Traffic(), redis: s.redisCommands(), streams: map[string]Stream{},
		processor: Processor(), machine: readMachine(), allocations: allocations(),
	}
	for _, conn := range s.serving {
		t := conn.Traffic()
		shot.worker.Sent += t.Sent
		shot.worker.SentBytes += t.SentBytes
	}
	for _, zone := range s.zones() {
		state, err := s.Control.ZoneState(ctx, zone)
		if err != nil {
			return shot, err
		}
		shot.streams[string(zone)] = Stream{Stored: float64(state.Last), Bytes: float64(state.Bytes), PersistMode: state.PersistMode}
	}
	if redis != nil {
		shot.memory, err = redis.Weigh(ctx)
	}
	return shot, err
}

// allocations is how many objects this process has allocated.
func allocations() uint64 {
	of := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(of)
	return of[0].Value.Uint64()
}

// count has what each run cost between two moments.
func (r *Report) count(before, after snapshot) {
	each := func(a, b uint64) float64 { return float64(a-b) / float64(r.Runs) }
	r.Messages = Messages{
		Worker: each(after.worker.Sent, before.worker.Sent), Service: each(after.service.Sent, before.service.Sent),
		Client: each(after.client.Sent, before.client.Sent),
	}
	r.Messages.All = r.Messages.Worker + r.Messages.Service + r.Messages.Client
	r.MessageBytes = each(after.worker.SentBytes+after.service.SentBytes+after.client.SentBytes,
		before.worker.SentBytes+before.service.SentBytes+before.client.SentBytes)
	r.Streams = map[string]Stream{}
	for zone, a := range after.streams {
		b := before.streams[zone]
		of := Stream{Stored: (a.Stored - b.Stored) / float64(r.Runs), Bytes: (a.Bytes - b.Bytes) / float64(r.Runs)}
		if of != (Stream{}) {
			of.PersistMode = a.PersistMode
			r.Streams[zone] = of
		}
		r.Stored += of.Stored
		if a.PersistMode != streams.PersistAsync {
			r.Awaited += of.Stored
		}
		r.StoredBytes += of.Bytes
	}
	for name, n := range after.redis {
		if n -= before.redis[name]; n > 0 {
			if r.Redis == nil {
				r.Redis = &Redis{Commands: map[string]float64{}}
			}
			r.Redis.Commands[name] = float64(n) / float64(r.Runs)
			r.Redis.All += float64(n) / float64(r.Runs)
		}
	}
	if r.Redis != nil {
		r.Redis.MemoryBytes = float64(after.memory.Bytes-before.memory.Bytes) / float64(r.Runs)
	}
	spent := after.processor - before.processor
	r.ProcessorMS = ms(spent) / float64(r.Runs)
	r.Allocations = each(after.allocations, before.allocations)
	r.Busy = spent.Seconds() / r.Seconds / float64(runtime.GOMAXPROCS(0))
	r.MachineBusy = after.machine.busySince(before.machine)
}

// journals reads some journals of the runs that were last.
func (s *System) journals(ctx context.Context, r *Report) error {
	last := s.next.Load()
	read := 0
	for n := last; n > max(0, last-sampled); n-- {
		entries, err := s.workers[0].Runner().Journal(ctx, wire.NewRunKey(fmt.Sprintf("bench-%d", n)))
		if err != nil {
			return fmt.Errorf("read the journal of run bench-%d: %w", n, err)
		}
		for i := range entries {
			data, err := entries[i].Encode()
			if err != nil {
				return err
			}
			r.Journal.Bytes += float64(len(data))
		}
		r.Journal.Entries += float64(len(entries))
		read++
	}
	r.Journal.Entries /= float64(read)
	r.Journal.Bytes /= float64(read)
	return nil
}

func (s *System) setting(ctx context.Context, l Load, redis *redisstore.Store) (Setting, error) {
	set := Setting{
		Server: s.Control.ServerVersion(), Embedded: s.o.Embedded, NATSSync: SyncUnknown, Store: "jetstream", Turns: l.Turns, Clients: l.Clients,
		Workers: s.o.Workers, Slots: s.o.Slots, Replicas: max(s.o.Replicas, 1), Partitions: max(s.o.Partitions, 1), ModelLatencyMS: ms(s.o.ModelLatency), Processors: runtime.GOMAXPROCS(0),
	}
	if redis != nil {
		set.Store, set.RedisSync = "redis", redis.Durability(ctx)
	}
	switch {
	case s.o.Embedded != "":
		set.NATSSync = SyncAlways
	case s.o.Monitor != "":
		seen, err := survey.Monitor(ctx, s.o.Monitor)
		if err != nil {
			return set, err
		}
		set.NATSSync, set.NATSProcessors, set.NATSCores = SyncLater, seen.CPU/100, seen.Cores
		if seen.Syncs {
			set.NATSSync = SyncAlways
		}
	}
	return set, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// spread is of times in order.
func spread(sorted []time.Duration) Spread {
	if len(sorted) == 0 {
		return Spread{}
	}
	slices.Sort(sorted)
	return Spread{P50: ms(sorted[len(sorted)/2]), P99: ms(sorted[len(sorted)*99/100])}
}
