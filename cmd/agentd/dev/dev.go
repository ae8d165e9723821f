// Package dev is agentd dev: everything on one machine.
package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
)

type devFlags struct {
	port       int
	serverOnly bool
}

// Command is agentd dev.
func Command(a *cli.App) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: NATS server, streams and a worker",
		Long: "dev starts a NATS server with JetStream on the data folder, makes the streams, runs the agents of the\n" +
			"configuration and shows what their runs do. Changed files are loaded at once; runs keep the agent that they\n" +
			"started with. Everything survives kill -9.\n\n" +
			"The server listens on 127.0.0.1:4222, or on a free port when that is taken, and writes its address to the data\n" +
			"folder, where the other commands find it when NATS_URL is not set.",
		Example: "  agentd dev\n  agentd dev --config examples/traveldesk/agentd.yaml --data /tmp/desk\n  agentd dev --server-only --port 4333",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return dev(cmd.Context(), a, f) },
	}
	cmd.Flags().IntVar(&f.port, "port", 0, "port to listen on, and no other (default: 4222, else a free one)")
	cmd.Flags().BoolVar(&f.serverOnly, "server-only", false, "only the NATS server, with the streams of the configured agents if there are any")
	return cmd
}

// devGrace is short: what a stopped dev leaves undone goes on when it is started again.
const devGrace = 3 * time.Second

func dev(ctx context.Context, a *cli.App, f devFlags) error {
	load := a.WithAgents
	if f.serverOnly {
		load = a.Settings
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	server, err := embedded.Start(embedded.Options{
		Dir: cfg.Data, Listen: true, Port: f.port, PortOnly: f.port != 0, Logger: a.QuietLogger(),
	})
	if err != nil {
		return err
	}
	err = devOn(ctx, a, server, cfg, f)
	return errors.Join(err, server.Close())
}

func devOn(ctx context.Context, a *cli.App, server *embedded.Server, cfg *config.Config, f devFlags) error {
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		InProcess: server, Name: "agentd dev", Subjects: setup.Subjects(cfg), Logger: a.LoggerAt(cli.DevLevel, cfg.Log.Format),
	})
	if err != nil {
		return err
	}
	d := &devServer{a: a, conn: conn, url: server.URL(), failed: make(chan error, 1)}
	if f.serverOnly {
		err = d.serverOnly(ctx, cfg)
	} else {
		err = d.run(ctx, cfg)
	}
	return errors.Join(err, conn.Close())
}

// devServer is a running agentd dev.
type devServer struct {
	a    *cli.App
	conn *broker.Conn
	url  string
	// progress shows what all runs do.
	progress *show.Progress
	// failed gets the error of a worker that ended by itself.
	failed chan error
	// waiting is why no worker of the configuration has started yet: it needs contracts that the registry does not have.
	waiting string
	// generations are the workers that have not ended: one serves, those before it finish their steps.
	generations []*generation
}

// generation is the worker of one state of the configuration.
type generation struct {
	stop context.CancelFunc
	done chan struct{}
}

func (d *devServer) serverOnly(ctx context.Context, cfg *config.Config) error {
	if len(cfg.Agents) > 0 {
		if _, err := d.conn.Provision(ctx, setup.Plan(cfg)); err != nil {
			return err
		}
	}
	d.announce(cfg, "ready (only the server: no agents run here)")
	<-ctx.Done()
	return nil
}

func (d *devServer) run(ctx context.Context, cfg *config.Config) error {
	d.progress = d.a.Progress(d.a.Out)
	d.progress.JSON, d.progress.Many = d.a.Output == cli.OutputJSON, true
	stop, err := d.conn.WatchLive(d.conn.Subjects().All(wire.KindStream), d.progress.Show)
	if err != nil {
		return err
	}
	problem := d.start(ctx, cfg)
	if err = problem; problem != nil {
		err = d.wait(problem)
	}
	if err == nil {
		err = d.withDesk(ctx, cfg, func() error {
			if problem == nil {
				d.announce(cfg, "ready")
			} else {
				fmt.Fprintf(d.a.Err, "agentd: the server is at %s; the agents start when the registry has the contracts\n", d.url)
			}
			return d.reload(ctx, cfg)
		})
	}
	for _, g := range d.generations {
		g.stop()
	}
	for _, g := range d.generations {
		<-g.done
	}
	return errors.Join(err, stop())
}

// wait reports contracts that are missing, once. Services that start, or agentd contracts push, publish them. Any other
// error is returned.
func (d *devServer) wait(err error) error {
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeContractMissing}) {
		return err
	}
	if err.Error() != d.waiting {
		d.a.Report(err)
	}
	d.waiting = err.Error()
	return nil
}

// announce tells people, or in JSON programs, where the server is.
func (d *devServer) announce(cfg *config.Config, state string) {
	if d.a.Output == cli.OutputJSON {
		// Nowhere else to report to.
		_ = json.NewEncoder(d.a.Out).Encode(map[string]any{"ready": true, "nats": d.url, "data": cfg.Data, "agents": setup.AgentNames(cfg)})
		return
	}
	fmt.Fprintf(d.a.Out, "nats      %s\ndata      %s\nstore     %s\n", d.url, cfg.Data, cfg.StoreKind())
	if len(cfg.Agents) > 0 {
		fmt.Fprintf(d.a.Out, "agents    %s\n", strings.Join(setup.AgentNames(cfg), ", "))
	}
	if other := os.Getenv("NATS_URL"); other != "" && other != d.url {
		fmt.Fprintln(d.a.Err, "agentd: NATS_URL is set to another server; commands that see it do not talk to this one")
	} else if d.a.Data != "" || d.a.ConfigGiven {
		fmt.Fprintf(d.a.Out, "elsewhere export NATS_URL=%s\n", d.url)
	}
	fmt.Fprintln(d.a.Out, state)
}

// provision makes what cfg needs on the broker, and looks up what its agents have from the registry.
func (d *devServer) provision(ctx context.Context, cfg *config.Config) error {
	if _, err := d.conn.Provision(ctx, setup.Plan(cfg)); err != nil || len(cfg.References) == 0 {
		return err
	}
	faults, err := setup.LookUp(ctx, d.conn.Registry(), cfg)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(cfg.Agents, func(spec sdk.AgentSpec) bool { return len(contracts.Unresolved(spec)) > 0 }) {
		return setup.MissingContracts(faults)
	}
	_, err = d.conn.Provision(ctx, setup.Plan(cfg))
	return err
}

// start makes what cfg needs on the broker and starts a worker. The one before goes on until this one serves.
func (d *devServer) start(ctx context.Context, cfg *config.Config) error {
	if err := d.provision(ctx, cfg); err != nil {
		return err
	}
	logger, err := d.a.Logger(cfg)
	if err != nil {
		return err
	}
	o, err := d.a.WorkerOptions(cfg, d.url, logger)
	if err != nil {
		return err
	}
	serving := make(chan struct{})
	o.Login, o.Grace, o.Logger, o.Serving = worker.Login{}, devGrace, d.a.LoggerAt(cli.DevLevel, cfg.Log.Format), func() { close(serving) }
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &generation{stop: stop, done: make(chan struct{})}
	var failure error
	go func() {
		defer close(g.done)
		if failure = worker.Run(working, o); failure != nil && working.Err() == nil {
			select {
			case d.failed <- failure:
			default: // another worker's error ends the program already
			}
		}
	}()
	select {
	case <-serving:
	case <-g.done:
		stop()
		return failure
	case <-ctx.Done():
		stop()
		<-g.done
		return nil
	}
	for _, before := range d.generations {
		before.stop()
	}
	d.generations = append(d.generations, g)
	return nil
}

// reload starts a new worker whenever the configuration changes, until ctx ends. A configuration with faults is
// reported and not used.
func (d *devServer) reload(ctx context.Context, cfg *config.Config) error {
	seen := stamps(cfg.Files)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.failed:
			return err
		case <-tick.C:
		}
		if last := d.progress.LastEvent(); last != rested && time.Since(last) > restAfter {
			rested = last
			debug.FreeOSMemory()
		}
		now := stamps(cfg.Files)
		if now == seen && d.waiting == "" {
			continue
		}
		changed := now != seen
		seen = now
		next, err := d.a.WithAgents()
		if err == nil {
			err = d.start(ctx, next)
		}
		if err == nil {
			d.started(next)
			cfg, seen = next, stamps(next.Files)
			continue
		}
		if err = d.wait(err); err != nil {
			d.waiting = ""
			d.a.Report(err)
		}
		if changed && len(d.generations) > 0 {
			fmt.Fprintln(d.a.Err, "agentd: the configuration before stays in use")
		}
	}
}

// started says that a new worker serves.
func (d *devServer) started(cfg *config.Config) {
	d.waiting = ""
	if len(d.generations) == 1 {
		d.announce(cfg, "ready")
		return
	}
	fmt.Fprintln(d.a.Err, "agentd: configuration reloaded; new runs use it")
}

// restAfter is how long nothing must happen before memory is given back: the program shares the machine with the
// developer's others, and Go by itself keeps what a burst of runs needed.
const restAfter = 5 * time.Second

// stamps changes when one of the files or folders does. Modification times are polled: unlike notifications they work on
// every file system and with every editor, and there are few files.
func stamps(files []string) string {
	var b strings.Builder
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			fmt.Fprintf(&b, "%s: gone\n", f)
			continue
		}
		fmt.Fprintf(&b, "%s: %d %d\n", f, info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}
