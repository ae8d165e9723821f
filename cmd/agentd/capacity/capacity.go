// Package capacity is agentd capacity.
package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/streams"
	"agentd/internal/capacity"
	"agentd/internal/config"
	"agentd/internal/days"
	"agentd/internal/show"
	"agentd/internal/strict"
	"agentd/sdk"
)

const gib = 1 << 30

// asked are the flags; durations are as in agentd.yaml.
type asked struct {
	rate                                                                  float64
	turns, turnBytes, replicas, servers, partitions, memory, redis, cores int
	model, call, retention, answers                                       string
}

// Command is agentd capacity.
func Command(a *cli.App) *cobra.Command {
	var f asked
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Reckon what servers, memory and workers a load needs",
		Long: "capacity reckons, from what was measured, what a load needs when it has gone on for as long as anything is kept: messages and\n" +
			"bytes a second into each stream, what each keeps, memory and disk of each NATS server, memory of Redis, workers, and what ends\n" +
			"first. It connects to nothing. What no flag says is that of the configuration, if there is one.",
		Example: "  agentd capacity --runs-per-second 10 --turns 3\n  agentd capacity --runs-per-second 200 --turns 8 --retention 7d --redis redis://redis -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			load, err := f.load(a)
			if err != nil {
				return err
			}
			needs := capacity.Plan(load)
			return a.Print(needs, func(w io.Writer) error { return write(w, &needs) })
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "runs-per-second", 1, "how many runs are started")
	flags.IntVar(&f.turns, "turns", 3, "how many calls a run makes, one a turn, before its answer")
	flags.IntVar(&f.turnBytes, "turn-bytes", 900, "what a turn adds to a conversation: a third is what the model says, a third the argument, a third the result")
	flags.StringVar(&f.model, "model-time", "2s", "how long a model takes for a reply")
	flags.StringVar(&f.call, "call-time", "1s", "how long a service, or a person, takes for an answer")
	flags.StringVar(&f.retention, "retention", "", "how long runs keep their history (default retention.history)")
	flags.StringVar(&f.answers, "answers-age", "", "how long answers are kept (default nats.answers_age)")
	cli.CountVar(flags, &f.replicas, "replicas", 0, 1, "replicas of streams (default nats.replicas, else 3)")
	cli.CountVar(flags, &f.servers, "servers", 0, 1, "NATS servers (default as many as replicas)")
	cli.CountVar(flags, &f.partitions, "partitions", 0, 1, "streams that journals, timers, calls and answers are each divided into (default nats.partitions, else 1)")
	flags.IntVar(&f.memory, "memory", 16, "memory of each NATS server, in GiB")
	flags.IntVar(&f.redis, "redis-memory", 16, "memory of Redis, in GiB, where it is the store")
	flags.IntVar(&f.cores, "cores", 2, "cores of each worker")
	return cmd
}

func (f *asked) load(a *cli.App) (capacity.Load, error) {
	cfg, err := a.Settings()
	if err != nil {
		return capacity.Load{}, err
	}
	l := capacity.Load{
		RunsPerSecond: f.rate, Turns: f.turns, TurnBytes: f.turnBytes, History: cfg.Retention.History,
		AnswersAge: max(cfg.NATS.AnswersAge, cfg.AnswersNeeded().For), Deadline: longestRun(cfg),
		Replicas: cmp.Or(f.replicas, cfg.NATS.Replicas, 3), Partitions: cmp.Or(f.partitions, cfg.NATS.Partitions, 1), Memory: float64(f.memory) * gib,
		Redis: cfg.StoreKind() == config.StoreRedis, RedisMemory: float64(f.redis) * gib, Slots: cfg.Slots, Cores: f.cores,
	}
	l.Servers = cmp.Or(f.servers, l.Replicas)
	if cfg.Retention.Calls > 0 && cfg.Reconcile.Interval > 0 { // workers look four times an interval
		l.CallsKept = cfg.Retention.Calls + cfg.Reconcile.Interval/4
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{
		{"--model-time", f.model, &l.ModelTime},
		{"--call-time", f.call, &l.CallTime},
		{"--retention", f.retention, &l.History},
		{"--answers-age", f.answers, &l.AnswersAge},
	} {
		if d.text == "" {
			continue
		}
		if *d.to, err = strict.ParseDuration(d.text); err != nil {
			return l, cli.Usage(fmt.Errorf("%s: %w", d.flag, err))
		}
	}
	if _, err := streams.NewLayout(l.Partitions); err != nil {
		return l, cli.Usage(err)
	}
	switch {
	case l.RunsPerSecond <= 0, l.Turns < 0, l.TurnBytes < 0, f.memory < 1, f.redis < 1, f.cores < 1:
		return l, cli.Usage(errors.New("want runs per second, memory and cores above 0, and turns and bytes not below"))
	case l.Replicas < 1 || l.Replicas > 5 || l.Servers < l.Replicas:
		return l, cli.Usage(fmt.Errorf("want 1 to 5 replicas, and at least as many servers; got %d and %d", l.Replicas, l.Servers))
	case l.History == 0:
		return l, cli.Usage(fmt.Errorf("histories are kept for ever (retention.history: 0), so that no memory is enough: say --retention"))
	}
	return l, nil
}

// longestRun is the longest deadline of the agents.
func longestRun(cfg *config.Config) time.Duration {
	var longest time.Duration
	for i := range cfg.Agents {
		longest = max(longest, time.Duration(cmp.Or(cfg.Agents[i].Limits.DeadlineMillis, sdk.DefaultRunDeadline.Milliseconds()))*time.Millisecond)
	}
	return cmp.Or(longest, sdk.DefaultRunDeadline)
}

func write(w io.Writer, n *capacity.Needs) error {
	l := &n.Load
	store := "JetStream"
	if l.Redis {
		store = "Redis"
	}
	fmt.Fprintf(w, "%s runs/s of %s, each adding %s; journals in %s; %s, %s\n\n", number(l.RunsPerSecond), show.Count(l.Turns, "turn"),
		show.Size(float64(l.TurnBytes)), store, show.Count(l.Servers, "NATS server"), show.Count(l.Replicas, "replica"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "stream\tmessages/s\tbytes/s\tkept for\tmessages\tsubjects\tdisk of a replica\t")
	for _, s := range n.Streams {
		name := s.Name
		if s.Partitions > 1 {
			name = fmt.Sprintf("%d × %s", s.Partitions, s.Name)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, number(s.MessagesPerSecond), show.Size(s.BytesPerSecond), days.Text(s.Kept),
			number(s.Messages), number(s.Subjects), show.Size(s.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\neach NATS server  %s of memory for %s subjects, %s of disk, %s synced writes/s\n",
		show.Size(n.ServerMemory), number(n.ServerSubjects), show.Size(n.ServerDisk), number(n.Syncs))
	if l.Redis {
		fmt.Fprintf(w, "Redis             %s of memory\n", show.Size(n.RedisMemory))
	}
	fmt.Fprintf(w, "workers           %d with %s and %s each: %s runs in hand, %s busy cores in all, services and servers included\n", n.Workers,
		show.Count(l.Slots, "slot"), show.Count(l.Cores, "core"), number(n.Driven), number(n.CPU))
	fmt.Fprintf(w, "runs that wait    %s, in no worker's memory\n\nwhat ends first, with 30 %% to spare\n", number(n.Waiting))
	for _, limit := range n.Limits {
		fmt.Fprintf(w, "  %s at %s runs/s\n", limit.What, number(limit.At))
	}
	return nil
}

// number is a number of two digits or more, in thousands, millions or billions.
func number(x float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e5, " k"}} {
		if x >= unit.of {
			if unit.of == 1e5 {
				unit.of = 1e3
			}
			return fmt.Sprintf("%.3g%s", x/unit.of, unit.name)
		}
	}
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
