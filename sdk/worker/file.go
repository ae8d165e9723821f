package worker

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"agentd/internal/config"
	"agentd/internal/setup"
	"agentd/sdk"
)

// File is an agentd.yaml.
type File struct {
	// Path is where it is; the paths in it are relative to its folder.
	Path string
	// Lookup is the environment, which is stronger than the file; nil is os.LookupEnv.
	Lookup func(name string) (value string, set bool)
	// Logger is told of the agents' MCP servers; nil is slog.Default().
	Logger *slog.Logger
}

// FromFile returns what `agentd serve` runs with the agentd.yaml at path. Code in Go is added with Options.Extend.
func FromFile(path string) (Options, error) { return File{Path: path}.Options() }

// Options reads the file. The error is *sdk.Error with CodeConfig and every fault, with its place in the file.
func (f File) Options() (Options, error) {
	if f.Lookup == nil {
		f.Lookup = os.LookupEnv
	}
	f.Logger = cmp.Or(f.Logger, slog.Default())
	cfg, err := config.Load(f.Path)
	if err != nil {
		return Options{}, err
	}
	if err := cfg.ApplyEnv(f.Lookup); err != nil {
		return Options{}, err
	}
	if err := cfg.Check(); err != nil {
		return Options{}, err
	}
	registry, err := setup.Models(cfg)
	if err != nil {
		return Options{}, err
	}
	keys, err := setup.Encryption(cfg)
	if err != nil {
		return Options{}, err
	}
	agents, err := setup.WithServers(cfg, setup.Agents(cfg), f.Logger)
	if err != nil {
		return Options{}, err
	}
	return Options{
		URL: cfg.NATS.URL.Reveal(), Login: Login(setup.Login(cfg)), RedisURL: setup.RedisURL(cfg),
		RedisTLS:      RedisTLS{RedisCA: cfg.Redis.CA, RedisCert: cfg.Redis.Cert, RedisKey: cfg.Redis.Key},
		RedisReplicas: cfg.Redis.Replicas, RedisReplicaTimeout: cfg.Redis.ReplicaTimeout,
		Root: cfg.NATS.Root, Encryption: Encryption(keys), PlainEntries: cfg.Entries == config.EntriesPlain,
		Agents: agents, Models: registry.Provider, Slots: cfg.Slots, Replicas: cfg.NATS.Replicas, Partitions: cfg.NATS.Partitions, AnswersAge: cfg.NATS.AnswersAge,
		PersistMode: cfg.NATS.PersistMode, Identity: cfg.Identity, Keys: cfg.Keys,
		ReconcileEvery: period(cfg.Reconcile.Interval), ReconcileFullEvery: period(cfg.Reconcile.FullInterval), LostAfter: cfg.Reconcile.OlderThan,
		History: period(cfg.Retention.History), CallsKept: period(cfg.Retention.Calls), Hot: cfg.Retention.Hot, EarlyDecisions: cfg.Approvals.Early, Logger: f.Logger,
	}, nil
}

// period is a setting for which 0 is never, as an option, for which 0 is the default.
func period(setting time.Duration) time.Duration { return cmp.Or(setting, -1) }

// Extend adds code in Go, such as hooks and inline tools, to the agent with that name. The error is *sdk.Error with CodeConfig
// when there is none, or no code.
func (o *Options) Extend(agent string, code func(*sdk.Agent)) error {
	if code == nil {
		return sdk.Errorf(sdk.CodeConfig, "agent %q is to be extended, and the code for it is nil", agent)
	}
	for i := range o.Agents {
		if o.Agents[i].Spec.Name == agent {
			code(&o.Agents[i])
			return nil
		}
	}
	var names string
	for i, a := range o.Agents {
		if i > 0 {
			names += ", "
		}
		names += a.Spec.Name
	}
	return sdk.Errorf(sdk.CodeConfig, "agent %q does not exist; extend one of %s", agent, names)
}
