package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"agentd/internal/broker/streams"
	"agentd/test/cluster"
)

func main() {
	if code, ok := playRole(); ok {
		os.Exit(code)
	}
	if code, ok := cluster.Serve(); ok {
		os.Exit(code)
	}
	o, err := read(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := chaos(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// read reads the command line, and writes to help what there is to say to whoever asks for it with -h.
func read(args []string, help io.Writer) (options, error) {
	o := options{rest: 10 * time.Minute, out: os.Stdout}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(io.Discard) // its errors are returned
	f.DurationVar(&o.faults, "d", 5*time.Minute, "how long faults happen, over all stores")
	f.StringVar(&o.store, "store", "", "jetstream or redis; both, one after the other, if empty")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the choices; 0 is a new one")
	f.IntVar(&o.workers, "workers", 4, "worker processes")
	f.IntVar(&o.running, "c", 128, "runs that clients keep going")
	servers := f.Int("cluster", 1, "NATS servers: 1, or 3 in a cluster")
	f.BoolVar(&o.setsBack, "set-back", false, "have the NATS server confirm calls, terminal events and timers before they are written, and come back to older files of them")
	partitions := f.Int("partitions", 1, "how many streams journals, timers, calls and answers are each divided into")
	f.StringVar(&o.dir, "keep", "", "folder for the evidence, kept in any case; else it is kept if something is violated")
	if err := f.Parse(args); err != nil {
		if f.SetOutput(help); errors.Is(err, flag.ErrHelp) {
			f.PrintDefaults()
		}
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is no flag, and what comes after it would not count: want flags alone, such as -d 1h", f.Arg(0))
	case *servers != 1 && *servers != 3 || *servers == 3 && o.setsBack:
		return o, errors.New("-cluster is 1 or 3, and 1 with -set-back: a cluster has no such streams")
	case o.store != "" && o.store != storeJetStream && o.store != storeRedis:
		return o, fmt.Errorf("-store %q: want %s or %s", o.store, storeJetStream, storeRedis)
	case o.faults <= 0 || o.workers < 1 || o.running < 1:
		return o, errors.New("want a duration, workers and runs above 0")
	}
	o.clustered = *servers > 1
	var err error
	if o.layout, err = streams.NewLayout(*partitions); err != nil {
		return o, fmt.Errorf("-partitions: %w", err)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000) + 1
	}
	return o, nil
}

// chaos hurts a world with the store, or where none is named with each in turn. Its error says that something is violated or not covered.
func chaos(ctx context.Context, o options) error {
	stores := []string{storeJetStream, storeRedis}
	if o.store != "" {
		stores = []string{o.store}
	}
	o.faults /= time.Duration(len(stores))
	root, kept := o.dir, o.dir != ""
	if !kept {
		var err error
		if root, err = os.MkdirTemp("", "agentd-chaos-"); err != nil {
			return err
		}
	}
	var errs []error
	for _, name := range stores {
		o.store, o.dir = name, filepath.Join(root, name)
		fmt.Fprintf(o.out, "\n== store %s: %s of faults, seed %d\n", name, o.faults, o.seed)
		if err := chaosOn(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", name, err))
		}
	}
	if len(errs) == 0 && !kept {
		return os.RemoveAll(root)
	}
	fmt.Fprintf(o.out, "\nevidence: %s\n", root)
	return errors.Join(errs...)
}

// chaosOn hurts a world with one store, and demands that nothing is violated and every crash point is met.
func chaosOn(ctx context.Context, o options) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(o.dir, "report.txt"))
	if err != nil {
		return err
	}
	o.out = io.MultiWriter(o.out, file)
	r, err := play(ctx, o)
	if err == nil {
		r.print()
		err = errors.Join(r.problem(), r.gap(), r.writeSlowest())
	}
	return errors.Join(err, file.Close())
}

// problem is nil when all promises were kept.
func (r *report) problem() error {
	if n := len(r.violations); n > 0 {
		return fmt.Errorf("%d violations, the first: %s", n, r.violations[0])
	}
	return nil
}

// gap is nil when every crash point was met.
func (r *report) gap() error {
	if missing := r.uncovered(); len(missing) > 0 {
		return fmt.Errorf("nothing happened at %q; give it more time", missing)
	}
	return nil
}

// play lets one chaos happen and judges it. An error says that there is nothing to judge.
func play(ctx context.Context, o options) (_ *report, err error) {
	w, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	all, end := context.WithCancel(ctx)
	hurting, calm := context.WithTimeout(all, o.faults)
	defer calm()
	var work, approving, background sync.WaitGroup
	// Whatever happens, every process has ended before the world is closed.
	defer func() {
		end()
		work.Wait()
		approving.Wait()
		background.Wait()
	}()
	n := &nemesis{world: w, hurting: hurting}
	endTelling := w.tell(all, &background)
	hurt := w.disturb(n, all, &background)
	s := &services{world: w, rng: w.rng(3)}
	people := &approvers{world: w, rng: w.rng(5)}
	background.Go(func() { s.serve(all) })
	deciding, hush := context.WithCancel(all)
	defer hush()
	approving.Go(func() { people.decide(deciding, &approving) })
	background.Go(func() { w.clients.await(all) })
	for z, filter := range purged() {
		background.Go(func() { w.see(all, z, filter) })
	}
	if w.cluster != nil {
		background.Go(func() { w.commands(all, w.conn) })
		background.Go(func() {
			if err := w.machine(all); err != nil {
				w.record.violate("look how long the machine takes: %v", err)
			}
		})
	}
	work.Go(func() { w.clients.work(hurting, all, &background) })
	hurt.Wait()
	work.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.printf("faults stopped after %s with %d runs open\n", time.Since(w.began).Round(time.Second), w.clients.open())
	stopped := time.Now()
	rested := w.settle(ctx)
	hush() // what people send while the streams are read would be judged by half
	approving.Wait()
	rested = w.settle(ctx) && rested
	w.printf("at rest after %s: %t\n", time.Since(stopped).Round(100*time.Millisecond), rested)
	w.awaitHeard(ctx)
	endTelling()
	e, found, err := w.check(ctx)
	if err != nil {
		return nil, err
	}
	return e.judge(found), nil
}

// disturb begins all faults and returns what waits for their end.
func (w *world) disturb(n *nemesis, all context.Context, background *sync.WaitGroup) *sync.WaitGroup {
	var hurt sync.WaitGroup
	n.workers(all, background)
	crashes := map[*server][]string{w.nats: {"C26"}}
	if w.redis != nil {
		crashes[w.redis] = []string{"C25"}
	} else {
		crashes[w.nats] = []string{"C25", "C26"} // it is the store, too
	}
	purpose := uint64(200)
	if w.cluster != nil {
		ends, breaks := w.rng(8), w.rng(9)
		hurt.Go(func() { n.servers(ends) })
		hurt.Go(func() { n.networks(breaks) })
	}
	for _, s := range []*server{w.nats, w.redis} {
		if s == nil {
			continue
		}
		ends, breaks := w.rng(purpose), w.rng(purpose+1)
		purpose += 2
		hurt.Go(func() { n.server(s, ends, crashes[s]) })
		hurt.Go(func() { n.network(s, breaks) })
	}
	absences, poisons := w.rng(6), w.rng(7)
	hurt.Go(func() { n.outages(absences) })
	hurt.Go(func() { n.poison(all, poisons) })
	times := w.rng(4)
	hurt.Go(func() { n.timers(all, times, background) })
	return &hurt
}

// settle waits until every init event has its terminal event and no worker has anything left to do, and reports whether
// it came to that.
func (w *world) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.rest)
	defer cancel()
	for ctx.Err() == nil {
		if w.clients.open() == 0 && w.idle(ctx) && w.refilled(ctx) {
			return true
		}
		pause(ctx, 100*time.Millisecond)
	}
	return false
}

func (w *world) idle(ctx context.Context) bool {
	states, err := w.consumers(ctx)
	if err != nil {
		return false
	}
	for _, s := range states {
		if !s.idle() {
			return false
		}
	}
	return true
}
