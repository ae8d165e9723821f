// Package serve is agentd serve.
package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/setup"
	"agentd/sdk/worker"
)

type serveFlags struct {
	provision bool
	http      string
	grace     time.Duration
}

// Command is agentd serve.
func Command(a *cli.App) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the configured agents as a worker",
		Long: "serve runs a worker for the agents of the configuration, on the NATS servers of NATS_URL. Runs are kept in\n" +
			"JetStream, or in Redis when REDIS_URL is set. Any number of workers share the work.\n\n" +
			"Servers that are away, at the start or later, are waited for. SIGTERM and Ctrl-C make the worker take no\n" +
			"further message and finish the steps it is at; what remains goes on in other workers. No run is cancelled.\n\n" +
			"SIGHUP makes it read the configuration again: what it says is served without a pause, and a configuration with\n" +
			"faults is not used. --http and the OTEL_* variables stay as they were.\n\n" +
			"Traces and metrics go where the standard OTEL_* variables say; --http serves metrics to Prometheus.\n\n" +
			"Streams and consumers must be there (agentd provision), unless --provision makes them.",
		Example: "  NATS_URL=nats://nats:4222 agentd serve --http :8080\n" +
			"  NATS_URL=nats://nats:4222 REDIS_URL=redis://redis:6379/0 agentd serve --provision",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.grace <= 0 { // the worker would take its default
				return cli.Usagef("--grace %s: want a duration above 0", f.grace)
			}
			return serve(cmd.Context(), a, f)
		},
	}
	cmd.Flags().BoolVar(&f.provision, "provision", false, "make the streams and consumers that the agents need")
	cmd.Flags().StringVar(&f.http, "http", "", "address for GET /livez, /readyz and /metrics, such as :8080")
	cli.DurationVar(cmd.Flags(), &f.grace, "grace", 30*time.Second, "how long a stopping worker finishes its steps")
	return cmd
}

// heapGrowth is by how many percent a worker's heap may grow before garbage is collected. It keeps little and allocates much: with Go's 100
// a busy one spends a tenth of its time on that, with this a twentieth, for 10 MB.
const heapGrowth = 200

func serve(ctx context.Context, a *cli.App, f serveFlags) error {
	cli.GrowHeap(cli.StartGrowth)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	var started sync.Once
	o, err := options(a, f, &started)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	replaced, done := make(chan worker.Options), make(chan struct{})
	o.Replaced = replaced
	go func() {
		defer close(done)
		reload(ctx, hangup, func() (worker.Options, error) { return options(a, f, &started) }, replaced, o.Logger)
	}()
	err = worker.Run(ctx, o)
	stop()
	<-done
	if err == nil {
		o.Logger.Info("stopped")
	}
	return err
}

// options are those of the worker, as the configuration is now; the first that serves has started the program.
func options(a *cli.App, f serveFlags, started *sync.Once) (worker.Options, error) {
	cfg, err := a.ToServe()
	if err != nil {
		return worker.Options{}, err
	}
	url, err := setup.Address(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	logger, err := a.Logger(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	o, err := a.WorkerOptions(cfg, url, logger)
	if err != nil {
		return worker.Options{}, err
	}
	o.Logger = logger
	o.Provision, o.Replicas, o.HTTP, o.Grace = f.provision, setup.Plan(cfg).Replicas, f.http, f.grace
	o.Serving = func() {
		o.Logger.Info("serving", "agents", setup.AgentNames(cfg), "store", string(cfg.StoreKind()),
			"encryption", cmp.Or(cfg.Encryption.Current, "off"), "slots", o.Slots)
		cli.GrowHeap(heapGrowth)
		started.Do(func() { go settle(o.Logger) })
	}
	return o, nil
}

// settle gives back the memory that starting took: a worker that waits needs little of it.
func settle(logger *slog.Logger) {
	debug.FreeOSMemory()
	if err := cli.ReleaseProgram(); err != nil {
		logger.Debug("memory is not given back", "error", err)
	}
}

// reload reads the configuration again at each signal, and has it take the place of the one that is served, until ctx ends.
func reload(
	ctx context.Context, signals <-chan os.Signal, read func() (worker.Options, error), replaced chan<- worker.Options, logger *slog.Logger,
) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		logger.Info("reading the configuration again")
		o, err := read()
		if err != nil {
			tellKept(logger, err)
			continue
		}
		logger = o.Logger
		o.Kept = func(err error) { tellKept(o.Logger, err) }
		select {
		case replaced <- o:
		case <-ctx.Done():
			return
		}
	}
}

func tellKept(logger *slog.Logger, err error) {
	if errors.Is(err, worker.ErrReplaced) {
		logger.Info("configuration was not served, because it was read again")
		return
	}
	logger.Error("configuration cannot be used; the one before stays in use", "error", err)
}
