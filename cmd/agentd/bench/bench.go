// Package bench is agentd bench.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/bench"
	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// defaultRoot is that of the streams which a bench makes.
const defaultRoot = "agentdbench"

type flags struct {
	root, monitor                                       string
	runs, clients, turns, workers, replicas, partitions int
	duration, latency                                   time.Duration
	remove                                              bool
}

// Command is agentd bench.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure runs on your servers: how many a second, how long, what each costs, and what limits",
		Long: "bench carries out runs on the servers of the configuration, or without NATS_URL on a NATS server of its own in a temporary\n" +
			"folder (of --data, to choose the disk), and prints runs/s, latencies, what each run costs there, and what limits. The model\n" +
			"is code that asks for one call a turn; a service of the bench answers; workers, service and clients are in this process.\n\n" +
			"All of it is under a root of its own, which it makes and removes, also when it is interrupted. A root that anybody uses is\n" +
			"refused. It needs a user who may make streams. Results are compared within one sitting: machines differ, and drift.",
		Example: "  agentd bench\n  agentd bench --nats nats://nats:4222 --redis redis://redis:6379/0 --clients 64 --duration 30s --monitor http://nats:8222",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), a, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", defaultRoot, "root of the streams and keys that are made, used, and removed")
	cli.CountVar(flags, &f.runs, "runs", 0, 1, "how many runs are carried out at once and after each other (default as many as --duration lets)")
	cli.DurationVar(flags, &f.duration, "duration", 10*time.Second, "for how long runs are started")
	flags.IntVar(&f.clients, "clients", 64, "how many runs there are at a time")
	flags.IntVar(&f.turns, "turns", 3, "how many calls a run makes, one a turn, before its answer")
	flags.IntVar(&f.workers, "workers", 1, "how many workers serve, each with slots of agentd.yaml")
	cli.CountVar(flags, &f.replicas, "replicas", 0, 1, "replicas of the streams (default nats.replicas, else 1)")
	cli.CountVar(flags, &f.partitions, "partitions", 0, 1, "into how many streams journals, timers, calls and answers are each divided (default nats.partitions, else 1)")
	cli.DurationVar(flags, &f.latency, "model-latency", 0, "how long the model takes for a reply")
	flags.StringVar(&f.monitor, "monitor", "", "monitoring address of the NATS server, such as http://nats:8222, to see whether it syncs every write, and its processors")
	flags.BoolVar(&f.remove, "remove", false, "only remove what a bench on this root left that was killed")
	cmd.MarkFlagsMutuallyExclusive("runs", "duration")
	return cmd
}

func (f flags) check(cfg *config.Config) error {
	switch {
	case f.root == cfg.NATS.Root:
		return cli.Usagef("--root %s: it is that of the configuration, in which agents run; choose another", f.root)
	case f.clients < 1 || f.turns < 0 || f.turns > 500 || f.workers < 1 || f.latency < 0 || f.duration <= 0:
		return cli.Usage(errors.New("want clients, workers and a duration above 0, 0 to 500 turns, and no negative number"))
	case f.replicas > 5:
		return cli.Usagef("--replicas %d: want 1 to 5", f.replicas)
	case f.partitions != 0:
		if _, err := streams.NewLayout(f.partitions); err != nil {
			return cli.Usagef("--partitions: %s", sdk.AsError(err).Message)
		}
	}
	return nil
}

func measure(ctx context.Context, a *cli.App, f flags) (err error) {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	if err := f.check(cfg); err != nil {
		return err
	}
	subjects, err := wire.NewSubjects(f.root)
	if err != nil {
		return cli.Usage(err)
	}
	cfg.NATS.Root = f.root
	o := bench.Options{
		Workers: f.workers, Slots: cfg.Slots, ModelLatency: f.latency, Replicas: cmp.Or(f.replicas, cfg.NATS.Replicas, 1),
		Partitions: cmp.Or(f.partitions, cfg.NATS.Partitions, 1), Monitor: f.monitor,
		Connect: func(ctx context.Context, _ string) (*broker.Conn, error) {
			c, err := a.Connect(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return c.Conn, nil
		},
	}
	if o.Store, err = setup.StoreOptions(cfg); err != nil {
		return err
	}
	if cfg.NATS.URL == "" {
		server, err := bench.StartServer(embedded.Options{Dir: a.Data})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		o.Connect, o.Embedded = server.Connect(subjects), server.Dir()
	}
	if f.remove {
		if err := bench.Remove(ctx, o); err != nil {
			return err
		}
		return a.Print(removed{f.root}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "removed what a bench had left on the root %s\n", f.root)
			return err
		})
	}
	fmt.Fprintln(a.Err, "agentd: measuring; an interruption ends it, and removes what it has made")
	report, err := bench.Measure(ctx, o, bench.Load{Turns: f.turns, Clients: f.clients, Runs: f.runs, Duration: f.duration, Alone: f.duration / 5})
	switch {
	case err == nil:
		return a.Print(&report, report.Write)
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return fmt.Errorf("%w; a bench makes streams of its own: use a user who may, maybe in an account of its own", err)
	case ctx.Err() != nil && onlyInterrupted(err):
		fmt.Fprintln(a.Err, "agentd: interrupted; nothing is left of it")
		return cli.Exit(cli.ExitInterrupted)
	}
	return err
}

// removed is what --remove prints as JSON.
type removed struct {
	Root string `json:"removed"`
}

// onlyInterrupted reports whether an error has nothing in it but that somebody interrupted the measurement: its tidying went well.
func onlyInterrupted(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if !onlyInterrupted(one) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, context.Canceled)
}
