// Package devserver serves the agents of a configuration on a server of their own, and follows the configuration as it changes:
// changed files are loaded at once, and runs keep the agent that they started with.
package devserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
)

// grace is short: what a stopped worker leaves undone goes on when it is started again.
const grace = 3 * time.Second

// Options are what a Server is made with. All are needed.
type Options struct {
	// Conn is a connection to the server at URL.
	Conn *broker.Conn
	URL  string
	// Load reads the configuration, also when a file of it has changed, and Worker what it means to a worker.
	Load   func() (*config.Config, error)
	Worker func(*config.Config) (worker.Options, error)
	// Consoles are addresses for the console, which is at the first that is free; none is no console.
	Consoles []string
	// Logger is for the desk and the console.
	Logger *slog.Logger
	// Live is told of what all runs do, Tell of everything else.
	Live func(wire.Live)
	Tell Teller
}

// Teller tells people what happens.
type Teller interface {
	// Ready says that the agents of a configuration are served.
	Ready(*config.Config)
	// Reloaded says that a changed configuration is used, Kept that the one before is.
	Reloaded()
	Kept()
	// Waiting says that the agents are served when the registry has the contracts that they refer to.
	Waiting()
	// Desk says where the desk is served, and as whom, and Console where the console is, whose pages say as whom.
	Desk(address net.Addr, as setup.Principal)
	Console(address net.Addr)
	Problem(error)
}

// Server is a running worker that follows its configuration.
type Server struct {
	o Options
	// last is when the last live event came, in Unix nanoseconds.
	last atomic.Int64
	// failed gets the error of what ended by itself.
	failed chan error
	// running is nil until a worker serves.
	running *running
	// waiting is why no worker of the configuration has started yet: it needs contracts that the registry does not have.
	waiting string
	// current is the configuration that is used.
	current atomic.Pointer[config.Config]
}

// running is the worker, whose options are replaced as the configuration changes.
type running struct {
	stop     context.CancelFunc
	replaced chan worker.Options
	// ended is closed when it has ended, with err.
	ended chan struct{}
	err   error
}

// Run serves a configuration, and what it is changed to, until ctx ends.
func Run(ctx context.Context, o Options, cfg *config.Config) error {
	d := &Server{o: o, failed: make(chan error, 1)}
	d.current.Store(cfg)
	stop, err := o.Conn.WatchLive("", wire.RunKey{}, func(l wire.Live) {
		d.last.Store(time.Now().UnixNano())
		o.Live(l)
	}, func(error) {})
	if err != nil {
		return err
	}
	if len(o.Consoles) > 0 { // the console keeps the index, and the worker finds it when it starts
		if err := provision.Index(ctx, o.Conn); err != nil {
			return errors.Join(err, stop())
		}
	}
	problem := d.start(ctx, cfg)
	if err = problem; problem != nil {
		err = d.wait(problem)
	}
	if err == nil {
		err = d.withConsole(ctx, cfg, func() error {
			return d.withDesk(ctx, cfg, func() error {
				if problem == nil {
					o.Tell.Ready(cfg)
				} else {
					o.Tell.Waiting()
				}
				return d.reload(ctx, cfg)
			})
		})
	}
	if d.running != nil {
		d.running.stop()
		<-d.running.ended
	}
	return errors.Join(err, stop())
}

// wait reports contracts that are missing, once. Services that start, or agentd contracts push, publish them. Any other
// error is returned.
func (d *Server) wait(err error) error {
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) {
		return err
	}
	if err.Error() != d.waiting {
		d.o.Tell.Problem(err)
	}
	d.waiting = err.Error()
	return nil
}

// provision makes what cfg needs on the broker, and looks up what its agents have from the registry.
func (d *Server) provision(ctx context.Context, cfg *config.Config) error {
	if _, err := provision.Apply(ctx, d.o.Conn, setup.Plan(cfg)); err != nil || len(cfg.References) == 0 {
		return err
	}
	faults, err := setup.LookUp(ctx, d.o.Conn.Registry(), cfg)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(cfg.Agents, func(spec sdk.AgentSpec) bool { return len(contracts.Unresolved(spec)) > 0 }) {
		return setup.MissingContracts(faults)
	}
	_, err = provision.Apply(ctx, d.o.Conn, setup.Plan(cfg))
	return err
}

// start makes what cfg needs on the broker and has a worker serve it. What was served before goes on until then.
func (d *Server) start(ctx context.Context, cfg *config.Config) error {
	if err := d.provision(ctx, cfg); err != nil {
		return err
	}
	o, err := d.o.Worker(cfg)
	if err != nil {
		return err
	}
	outcome := make(chan error, 1)
	o.URL, o.Login, o.Grace = d.o.URL, worker.Login{}, grace
	o.Serving, o.Kept = func() { outcome <- nil }, func(err error) { outcome <- err }
	if d.running == nil {
		return d.begin(ctx, o, outcome)
	}
	select {
	case d.running.replaced <- o:
	case <-d.running.ended:
		return d.running.err
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-outcome:
		return err
	case <-d.running.ended:
		return d.running.err
	case <-ctx.Done():
		return nil
	}
}

// begin starts the worker.
func (d *Server) begin(ctx context.Context, o worker.Options, serving <-chan error) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{stop: stop, replaced: make(chan worker.Options), ended: make(chan struct{})}
	o.Replaced = r.replaced
	go func() {
		defer close(r.ended)
		r.err = worker.Run(working, o)
	}()
	select {
	case err := <-serving:
		d.running = r
		go func() {
			<-r.ended
			if r.err != nil && working.Err() == nil {
				d.fail(r.err)
			}
		}()
		return err
	case <-r.ended:
		stop()
		return r.err
	case <-ctx.Done():
		stop()
		<-r.ended
		return nil
	}
}

// reload has another configuration served whenever it changes, until ctx ends. A configuration with faults is
// reported and not used.
func (d *Server) reload(ctx context.Context, cfg *config.Config) error {
	seen := cfg.Stamp()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var rested int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.failed:
			return err
		case <-tick.C:
		}
		if last := d.last.Load(); last != rested && time.Since(time.Unix(0, last)) > restAfter {
			rested = last
			debug.FreeOSMemory()
		}
		now := config.Stamp(cfg.Files)
		if now == seen && d.waiting == "" {
			continue
		}
		changed := now != seen
		seen = now
		first := d.running == nil
		next, err := d.o.Load()
		if err == nil {
			err = d.start(ctx, next)
		}
		if err == nil {
			d.use(next)
			if first {
				d.o.Tell.Ready(next)
			} else {
				d.o.Tell.Reloaded()
			}
			cfg, seen = next, next.Stamp()
			continue
		}
		if err = d.wait(err); err != nil {
			d.waiting = ""
			d.o.Tell.Problem(err)
		}
		if changed && !first {
			d.o.Tell.Kept()
		}
	}
}

// use takes a configuration that is served as the current one.
func (d *Server) use(cfg *config.Config) {
	d.waiting = ""
	d.current.Store(cfg)
}

// fail ends the program, unless it ends already.
func (d *Server) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// restAfter is how long nothing must happen before memory is given back: the program shares the machine with the
// developer's others, and Go by itself keeps what a burst of runs needed.
const restAfter = 5 * time.Second
