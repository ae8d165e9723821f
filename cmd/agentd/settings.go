package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/llm"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/sealed"
	"agentd/internal/telemetry"
	"agentd/internal/worker"
	"agentd/sdk"
)

const defaultConfig = "agentd.yaml"

// settings are the flags over the environment over the configuration file. Without a file there are the defaults, unless
// one was asked for.
func (a *app) settings() (*config.Config, error) {
	cfg, err := config.Load(a.config)
	if _, missing := os.Stat(a.config); errors.Is(missing, fs.ErrNotExist) && !a.configGiven {
		cfg, err = config.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.ApplyEnv(os.LookupEnv); err != nil {
		return nil, err
	}
	override(&cfg.Data, a.data)
	override(&cfg.NATS.URL, a.nats)
	override(&cfg.Redis.URL, a.redis)
	return cfg, cfg.Check()
}

func override[T ~string](setting *T, flag string) {
	if flag != "" {
		*setting = T(flag)
	}
}

// withAgents is settings for commands that serve agents.
func (a *app) withAgents() (*config.Config, error) {
	cfg, err := a.settings()
	if err != nil {
		return nil, err
	}
	if len(cfg.Agents) == 0 {
		if _, err := os.Stat(a.config); err != nil {
			return nil, sdk.Errorf(sdk.CodeConfig, "there is no %s here; write one, or name it with --config", a.config)
		}
		return nil, sdk.Errorf(sdk.CodeConfig, "%s has no agents", a.config)
	}
	return cfg, nil
}

// address is where NATS is: as set, else the server of an agentd dev that runs on the data folder.
func address(cfg *config.Config) (string, error) {
	if url := cfg.NATS.URL.Reveal(); url != "" {
		return url, nil
	}
	url, err := broker.ReadAddress(cfg.Data)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		return "", sdk.Errorf(sdk.CodeUnavailable,
			"there is no NATS server to talk to: none runs on the data folder %s (start one with: agentd dev), and NATS_URL is not set",
			cfg.Data)
	}
	return url, err
}

func subjects(cfg *config.Config) wire.Subjects {
	s, err := wire.NewSubjects(cfg.NATS.Root)
	if err != nil {
		panic(err) // Check admits no other root
	}
	return s
}

// connectTimeout bounds a connection of a command that a person waits for.
const connectTimeout = 10 * time.Second

// client is a connection for one command.
type client struct {
	*broker.Conn
	cfg *config.Config
}

// client connects as a client. The caller closes the connection.
func (a *app) client(ctx context.Context) (*client, error) {
	cfg, err := a.settings()
	if err != nil {
		return nil, err
	}
	return a.connect(ctx, cfg)
}

func (a *app) connect(ctx context.Context, cfg *config.Config) (*client, error) {
	url, err := address(cfg)
	if err != nil {
		return nil, err
	}
	who, err := principal(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: url, Login: login(cfg), Name: program, Who: who, Subjects: subjects(cfg), Logger: a.quietLogger(),
	})
	if err != nil {
		return nil, err
	}
	return &client{conn, cfg}, nil
}

// login is how a command shows NATS who it is.
func login(cfg *config.Config) broker.Login {
	n := cfg.NATS
	return broker.Login{Creds: n.Creds, NKey: n.NKey, CA: n.CA, Cert: n.Cert, Key: n.Key}
}

// principal is who runs are started as where principals are required: the NATS user, whose name the broker enforces; on the
// server of a running agentd dev, where nothing enforces it, the operating system's user.
func principal(cfg *config.Config) (string, error) {
	if !cfg.Identity {
		return "", nil
	}
	name, err := broker.UserName(cfg.NATS.URL.Reveal(), login(cfg))
	if err != nil {
		return "", err
	}
	if name == "" && cfg.NATS.URL == "" {
		name = systemUser()
	}
	return name, desk.CheckPrincipal(name)
}

// close reports err, and what went wrong with closing.
func (c *client) close(err error) error { return also(err, c.Close()) }

// also adds a further error. Unlike errors.Join it leaves a single one as it is, because that is shown best.
func also(err, further error) error {
	switch {
	case further == nil:
		return err
	case err == nil:
		return further
	}
	return errors.Join(err, further)
}

// openStore opens the store of runs.
func (c *client) openStore(ctx context.Context) (worker.OpenedStore, error) {
	o, err := storeOptions(c.cfg)
	if err != nil {
		return worker.OpenedStore{}, err
	}
	return worker.OpenStore(ctx, c.Conn, o)
}

func storeOptions(cfg *config.Config) (worker.StoreOptions, error) {
	e, err := encryption(cfg)
	if err != nil {
		return worker.StoreOptions{}, err
	}
	keys, err := sealed.NewKeyring(sealed.Options(e))
	return worker.StoreOptions{
		RedisURL: redisURL(cfg), RedisTLS: redisstore.TLS{CA: cfg.Redis.CA, Cert: cfg.Redis.Cert, Key: cfg.Redis.Key}, Keys: keys,
	}, err
}

// redisURL is empty when runs are kept in JetStream.
func redisURL(cfg *config.Config) string {
	if cfg.StoreKind() != config.StoreRedis {
		return ""
	}
	return cfg.Redis.URL.Reveal()
}

// models are the configured providers.
func models(cfg *config.Config) (*llm.Registry, error) {
	var c llm.Config
	for _, p := range cfg.Models {
		c.Providers = append(c.Providers, llm.ProviderConfig{
			Name: p.Name, Protocol: llm.Protocol(p.Protocol), BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal(),
			Organization: p.Organization,
		})
	}
	return llm.New(c)
}

// plan is what the broker needs for the agents, and for the services of all contracts, also of those that no agent calls.
func plan(cfg *config.Config) broker.Plan {
	p := worker.Plan(cfg.Agents)
	p.Replicas = cfg.NATS.Replicas
	for _, c := range cfg.Contracts {
		service := broker.ServicePlan{Domain: c.Domain, Type: c.Type}
		served := slices.ContainsFunc(cfg.Agents, func(a sdk.AgentSpec) bool { return a.Contract.Type == c.Type })
		if !served && !slices.Contains(p.Services, service) {
			p.Services = append(p.Services, service)
		}
	}
	for _, h := range webhooks(cfg) {
		p.Hooks = append(p.Hooks, broker.HookPlan{Name: h.Name(), Domains: approvalDomains(cfg)})
	}
	return p
}

// agents are the configured agents; those have no code in Go.
func agents(cfg *config.Config) []sdk.Agent {
	list := make([]sdk.Agent, len(cfg.Agents))
	for i, spec := range cfg.Agents {
		list[i] = sdk.Agent{Spec: spec}
	}
	return list
}

// logger logs as configured, for commands that serve.
func (a *app) logger(cfg *config.Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	return a.loggerAt(level, cfg.Log.Format), nil
}

// quietLogger is for commands that print: only what they cannot show otherwise is logged.
func (a *app) quietLogger() *slog.Logger { return a.loggerAt(slog.LevelError, config.DefaultLogForm) }

func (a *app) loggerAt(level slog.Level, form string) *slog.Logger {
	if a.verbose {
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if form == outputJSON {
		return slog.New(telemetry.Logged(slog.NewJSONHandler(a.err, o)))
	}
	return slog.New(telemetry.Logged(slog.NewTextHandler(a.err, o)))
}

// devLevel keeps the log of agentd dev from hiding the events; --verbose shows more.
const devLevel = slog.LevelWarn
