package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"agentd/internal/config"
	"agentd/internal/telemetry"
	"agentd/sdk"
)

const defaultConfig = "agentd.yaml"

// Settings are the flags over the environment over the configuration file. Without a file there are the defaults, unless
// one was asked for.
func (a *App) Settings() (*config.Config, error) {
	cfg, err := config.Load(a.Config)
	if _, missing := os.Stat(a.Config); errors.Is(missing, fs.ErrNotExist) && !a.ConfigGiven {
		cfg, err = config.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.ApplyEnv(os.LookupEnv); err != nil {
		return nil, err
	}
	for _, f := range []struct{ flag, key, value string }{
		{"--data", "data", a.Data}, {"--nats", "nats.url", a.NATS}, {"--redis", "redis.url", a.redis},
	} {
		if err := cfg.Set(f.flag, f.key, f.value); err != nil {
			return nil, err
		}
	}
	return cfg, cfg.Check()
}

// ToServe is settings for commands that serve the agents as the file has them, without code in Go.
func (a *App) ToServe() (*config.Config, error) {
	cfg, err := a.WithAgents()
	if err != nil {
		return nil, err
	}
	return cfg, cfg.CheckTools()
}

// WithAgents is settings for commands that are about the agents.
func (a *App) WithAgents() (*config.Config, error) {
	cfg, err := a.Settings()
	if err != nil {
		return nil, err
	}
	if len(cfg.Agents) == 0 {
		if _, err := os.Stat(a.Config); err != nil {
			return nil, a.unread(err)
		}
		return nil, sdk.Errorf(sdk.CodeConfig, "%s has no agents", a.Config)
	}
	return cfg, nil
}

// Exists says what to do when the configuration cannot be found.
func (a *App) Exists() error {
	if _, err := os.Stat(a.Config); err != nil {
		return a.unread(err)
	}
	return nil
}

func (a *App) unread(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return sdk.Errorf(sdk.CodeConfig, "%s is missing here; name another with --config, or make a project: agentd init NAME", a.Config)
	}
	return sdk.Errorf(sdk.CodeConfig, "%s cannot be read", a.Config).WithCause(err)
}

// Logger logs as configured, for commands that serve.
func (a *App) Logger(cfg *config.Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	return a.LoggerAt(level, cfg.Log.Format), nil
}

// QuietLogger is for commands that print: only what they cannot show otherwise is logged.
func (a *App) QuietLogger() *slog.Logger { return a.LoggerAt(slog.LevelError, config.DefaultLogForm) }

// LoggerAt logs from a level on; with --verbose everything.
func (a *App) LoggerAt(level slog.Level, form string) *slog.Logger {
	if a.Verbose {
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if form == OutputJSON {
		return slog.New(telemetry.Logged(slog.NewJSONHandler(a.Err, o)))
	}
	return slog.New(telemetry.Logged(slog.NewTextHandler(a.Err, o)))
}
