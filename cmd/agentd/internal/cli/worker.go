package cli

import (
	"log/slog"
	"os"

	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/sdk/worker"
)

// WorkerOptions are what serve and dev have in common: those of the file, with the flags above the environment, on the server
// at url. cfg is the same configuration.
func (a *App) WorkerOptions(cfg *config.Config, url string, logger *slog.Logger) (worker.Options, error) {
	registry, err := setup.Models(cfg)
	if err != nil {
		return worker.Options{}, err
	}
	if err := setup.CheckModels(cfg, registry); err != nil {
		return worker.Options{}, err
	}
	o, err := worker.File{Path: a.Config, Lookup: a.lookup, Logger: logger}.Options()
	o.URL = url
	return o, err
}

// lookup is the environment with the flags above it.
func (a *App) lookup(name string) (string, bool) {
	flags := map[string]string{"AGENTD_DATA": a.Data, "NATS_URL": a.NATS, "REDIS_URL": a.redis}
	if value := flags[name]; value != "" {
		return value, true
	}
	return os.LookupEnv(name)
}
