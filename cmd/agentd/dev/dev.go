// Package dev is agentd dev: everything on one machine.
package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/config"
	"agentd/internal/devserver"
	"agentd/internal/setup"
	store "agentd/internal/worker"
	"agentd/sdk/worker"
)

type devFlags struct {
	port       int
	console    string
	serverOnly bool
}

// Command is agentd dev.
func Command(a *cli.App) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: NATS server, streams, a worker and the console",
		Long: "dev starts a NATS server with JetStream on the data folder, makes the streams, runs the agents of the\n" +
			"configuration and shows what their runs do. Changed files are loaded at once; runs keep the agent that they\n" +
			"started with. Everything survives kill -9.\n\n" +
			"The server listens on 127.0.0.1:4222, or on a free port when that is taken, and writes its address to the data\n" +
			"folder, where the other commands find it when NATS_URL is not set. The console in which runs are seen, decided and steered is\n" +
			"at 127.0.0.1:4280, or on a free port, which is the first line that dev prints. Both are where they were before when dev is\n" +
			"started again on the folder.",
		Example: "  agentd dev\n  agentd dev --config examples/traveldesk/agentd.yaml --data /tmp/desk\n  agentd dev --server-only --port 4333",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.port > math.MaxUint16 {
				return cli.Usagef("--port %d: want 1 to %d", f.port, math.MaxUint16)
			}
			return dev(cmd.Context(), a, f)
		},
	}
	cli.CountVar(cmd.Flags(), &f.port, "port", 0, 1, "port to listen on, and no other (default: the one before, else 4222, else a free one)")
	cmd.Flags().StringVar(&f.console, "console", "", "address of the console, which must be of this machine (default: the one before, else 127.0.0.1:4280, else on a free port); off is none")
	cmd.Flags().BoolVar(&f.serverOnly, "server-only", false, "only the NATS server, with the streams of the configured agents if there are any")
	return cmd
}

func dev(ctx context.Context, a *cli.App, f devFlags) error {
	cli.GrowHeap(cli.StartGrowth)
	load := a.ToServe
	if f.serverOnly {
		load = a.Settings
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	server, err := started(ctx, func() (*embedded.Server, error) {
		return embedded.Start(embedded.Options{
			Dir: cfg.Data, Listen: true, Port: f.port, PortOnly: f.port != 0, Logger: a.QuietLogger(),
		})
	}, time.After(slowStart), func() {
		fmt.Fprintln(a.Err, "agentd: the server is still reading what is in "+cfg.Data+"; Ctrl-C ends it")
	})
	if err != nil {
		return err
	}
	return errors.Join(devOn(ctx, a, server, cfg, f), server.Close())
}

// slowStart is how long a server may take to start before somebody is told why.
const slowStart = 2 * time.Second

// started starts a server, which reads all that is in its folder first, however long that takes. tell is called when it is slow. When ctx ends it
// is left alone: the folder bears that it is killed, as it is when the process ends, or it is closed.
func started(ctx context.Context, start func() (*embedded.Server, error), slow <-chan time.Time, tell func()) (*embedded.Server, error) {
	type result struct {
		server *embedded.Server
		err    error
	}
	ready := make(chan result, 1)
	go func() {
		server, err := start()
		ready <- result{server, err}
	}()
	for {
		select {
		case r := <-ready:
			return r.server, r.err
		case <-slow:
			tell()
		case <-ctx.Done():
			go func() {
				if r := <-ready; r.err == nil {
					_ = r.server.Close() // nobody has used it
				}
			}()
			return nil, fmt.Errorf("start the server: %w", ctx.Err())
		}
	}
}

func devOn(ctx context.Context, a *cli.App, server *embedded.Server, cfg *config.Config, f devFlags) error {
	log := a.LoggerAt(logLevel, cfg.Log.Format)
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		InProcess: server, Name: "agentd dev", Subjects: setup.Subjects(cfg), Logger: log,
	})
	if err != nil {
		return err
	}
	t := teller{a, server.URL()}
	if f.serverOnly {
		err = serverOnly(ctx, conn, cfg, t)
	} else {
		progress := a.Progress(a.Out)
		progress.JSON, progress.Many = a.Output == cli.OutputJSON, true
		err = devserver.Run(ctx, devserver.Options{
			Conn: conn, URL: t.url, Consoles: f.consoles(cfg.Data), Load: a.ToServe, Logger: log, Live: progress.Show, Tell: t,
			Worker: func(cfg *config.Config) (worker.Options, error) { return workerOptions(a, cfg, t.url) },
		}, cfg)
		if errors.Is(err, store.ErrOtherStore) {
			t.note("commands reach this server while it runs: agentd dev --server-only")
		}
	}
	return errors.Join(err, conn.Close())
}

// consoles are the addresses for the console: the one that was chosen, or where it usually is.
func (f devFlags) consoles(data string) []string {
	switch f.console {
	case "off":
		return nil
	case "":
		return devserver.UsualConsoles(data)
	default:
		return []string{f.console}
	}
}

func serverOnly(ctx context.Context, conn *broker.Conn, cfg *config.Config, t teller) error {
	if len(cfg.Agents) > 0 {
		if _, err := provision.Apply(ctx, conn, setup.Plan(cfg)); err != nil {
			return err
		}
	}
	t.announce(cfg, "ready (only the server: no agents run here)")
	<-ctx.Done()
	return nil
}

// logLevel keeps the log from hiding the events; --verbose shows more.
const logLevel = slog.LevelWarn

// workerOptions are those of serve, with a log that does not hide the events. The toolsets log as configured.
func workerOptions(a *cli.App, cfg *config.Config, url string) (worker.Options, error) {
	logger, err := a.Logger(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	o, err := a.WorkerOptions(cfg, url, logger)
	o.Logger = a.LoggerAt(logLevel, cfg.Log.Format)
	return o, err
}

// teller implements devserver.Teller.
type teller struct {
	a   *cli.App
	url string
}

// Ready implements devserver.Teller.
func (t teller) Ready(cfg *config.Config) { t.announce(cfg, "ready") }

// Reloaded implements devserver.Teller.
func (t teller) Reloaded() { t.note("configuration reloaded; new runs use it") }

// Kept implements devserver.Teller.
func (t teller) Kept() { t.note("the configuration before stays in use") }

// Waiting implements devserver.Teller.
func (t teller) Waiting() {
	t.note("the server is at " + t.url + "; the agents start when the registry has the contracts")
}

// Problem implements devserver.Teller.
func (t teller) Problem(err error) { t.a.Report(err) }

// Desk implements devserver.Teller.
func (t teller) Desk(address net.Addr, as setup.Principal) {
	if t.a.Output != cli.OutputJSON {
		fmt.Fprintf(t.a.Out, "approvals http://%s/v1/requests, as %s\n", address, as)
	}
}

// Console implements devserver.Teller.
func (t teller) Console(address net.Addr) {
	if t.a.Output != cli.OutputJSON {
		fmt.Fprintf(t.a.Out, "console   http://%s/\n", address)
	}
}

func (t teller) note(text string) { fmt.Fprintln(t.a.Err, "agentd:", text) }

// announce tells people, or in JSON programs, where the server is, which has started then.
func (t teller) announce(cfg *config.Config, state string) {
	cli.GrowHeap(cli.UsualGrowth)
	if t.a.Output == cli.OutputJSON {
		// Nowhere else to report to.
		_ = cli.WriteJSON(t.a.Out, map[string]any{"ready": true, "nats": t.url, "data": cfg.Data, "agents": setup.AgentNames(cfg)}, "")
		return
	}
	fmt.Fprintf(t.a.Out, "nats      %s\ndata      %s\nstore     %s\n", t.url, cfg.Data, cfg.StoreKind())
	if len(cfg.Agents) > 0 {
		fmt.Fprintf(t.a.Out, "agents    %s\n", strings.Join(setup.AgentNames(cfg), ", "))
	}
	if other := os.Getenv("NATS_URL"); other != "" && other != t.url {
		t.note("NATS_URL is set to another server; commands that see it do not talk to this one")
	} else if t.a.Data != "" || t.a.ConfigGiven {
		fmt.Fprintf(t.a.Out, "elsewhere export NATS_URL=%s\n", t.url)
	}
	fmt.Fprintln(t.a.Out, state)
}
