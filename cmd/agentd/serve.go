package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"agentd/internal/config"
	"agentd/internal/llm"
	"agentd/sdk"
	"agentd/sdk/worker"
)

type serveFlags struct {
	provision bool
	http      string
	grace     time.Duration
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the configured agents as a worker",
		Long: "serve runs a worker for the agents of the configuration, on the NATS servers of NATS_URL. Runs are kept in\n" +
			"JetStream, or in Redis when REDIS_URL is set. Any number of workers share the work.\n\n" +
			"Servers that are away, at the start or later, are waited for. SIGTERM and Ctrl-C make the worker take no\n" +
			"further message and finish the steps it is at; what remains goes on in other workers. No run is cancelled.\n\n" +
			"Traces and metrics go where the standard OTEL_* variables say; --http serves metrics to Prometheus.\n\n" +
			"Streams and consumers must be there (agentd provision), unless --provision makes them.",
		Example: "  NATS_URL=nats://nats:4222 agentd serve --http :8080\n" +
			"  NATS_URL=nats://nats:4222 REDIS_URL=redis://redis:6379/0 agentd serve --provision",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	cmd.Flags().BoolVar(&f.provision, "provision", false, "make the streams and consumers that the agents need")
	cmd.Flags().StringVar(&f.http, "http", "", "address for GET /livez, /readyz and /metrics, such as :8080")
	cmd.Flags().DurationVar(&f.grace, "grace", 30*time.Second, "how long a stopping worker finishes its steps")
	return cmd
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	cfg, err := a.withAgents()
	if err != nil {
		return err
	}
	url, err := address(cfg)
	if err != nil {
		return err
	}
	o, err := a.workerOptions(cfg, url)
	if err != nil {
		return err
	}
	if o.Logger, err = a.logger(cfg); err != nil {
		return err
	}
	o.Provision, o.Replicas, o.HTTP, o.Grace = f.provision, plan(cfg).Replicas, f.http, f.grace
	o.Serving = func() {
		o.Logger.Info("serving", "agents", agentNames(cfg), "store", string(cfg.StoreKind()),
			"encryption", cmp.Or(cfg.Encryption.Current, "off"), "slots", o.Slots)
	}
	err = worker.Run(ctx, o)
	if err == nil {
		o.Logger.Info("stopped")
	}
	return err
}

// workerOptions are what serve and dev have in common.
func (a *app) workerOptions(cfg *config.Config, url string) (worker.Options, error) {
	registry, err := models(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	if err := checkModels(cfg, registry); err != nil {
		return worker.Options{}, err
	}
	keys, err := encryption(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	logger, err := a.logger(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	served, err := withServers(cfg, agents(cfg), logger)
	if err != nil {
		return worker.Options{}, err
	}
	return worker.Options{
		URL: url, Login: worker.Login(login(cfg)), RedisURL: redisURL(cfg),
		RedisTLS: worker.RedisTLS{RedisCA: cfg.Redis.CA, RedisCert: cfg.Redis.Cert, RedisKey: cfg.Redis.Key},
		Root:     cfg.NATS.Root, Encryption: keys,
		Agents: served, Models: registry.Provider, Slots: cfg.Slots,
		Identity: cfg.Identity, Keys: cfg.Keys,
		ReconcileEvery: period(cfg.Reconcile.Interval), LostAfter: cfg.Reconcile.OlderThan, History: period(cfg.Retention.History),
	}, nil
}

// period is a setting for which 0 is never, as an option of a worker, for which 0 is the default.
func period(setting time.Duration) time.Duration { return cmp.Or(setting, -1) }

// checkModels says what to do about models that cannot be asked.
func checkModels(cfg *config.Config, registry *llm.Registry) error {
	var faults []error
	for _, spec := range cfg.Agents {
		if _, err := registry.Provider(spec.Model); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "a model cannot be asked; set its key (OPENAI_API_KEY, or api_key_env in models:), "+
		"or OPENAI_BASE_URL for a server that needs none, such as: agentd mock-llm").WithCause(errors.Join(faults...))
}

func agentNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Agents))
	for i, spec := range cfg.Agents {
		names[i] = spec.Name
	}
	return names
}
