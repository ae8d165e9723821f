package setup

import (
	"cmp"
	"log/slog"
	"time"

	"agentd/internal/config"
	"agentd/sdk/worker"
)

// WorkerOptions are what serve and dev have in common.
func WorkerOptions(cfg *config.Config, url string, logger *slog.Logger) (worker.Options, error) {
	registry, err := Models(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	if err := CheckModels(cfg, registry); err != nil {
		return worker.Options{}, err
	}
	keys, err := encryption(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	served, err := withServers(cfg, Agents(cfg), logger)
	if err != nil {
		return worker.Options{}, err
	}
	return worker.Options{
		URL: url, Login: worker.Login(Login(cfg)), RedisURL: RedisURL(cfg),
		RedisTLS: worker.RedisTLS{RedisCA: cfg.Redis.CA, RedisCert: cfg.Redis.Cert, RedisKey: cfg.Redis.Key},
		Root:     cfg.NATS.Root, Encryption: keys,
		Agents: served, Models: registry.Provider, Slots: cfg.Slots,
		Identity: cfg.Identity, Keys: cfg.Keys,
		ReconcileEvery: period(cfg.Reconcile.Interval), LostAfter: cfg.Reconcile.OlderThan, History: period(cfg.Retention.History),
	}, nil
}

// period is a setting for which 0 is never, as an option of a worker, for which 0 is the default.
func period(setting time.Duration) time.Duration { return cmp.Or(setting, -1) }
