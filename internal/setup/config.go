// Package setup is what a configuration means to workers, the broker, stores and models.
package setup

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/broker"
	"agentd/internal/broker/datafolder"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/desk/webhook"
	"agentd/internal/llm"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/sealed"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// OwnContracts are those of the configuration without agentd's own.
func OwnContracts(cfg *config.Config) []sdk.Contract {
	own := map[string]bool{}
	for _, c := range contracts.Builtin() {
		own[wire.AbsoluteURI(c.URI)] = true
	}
	var list []sdk.Contract
	for _, c := range cfg.Contracts {
		if !own[wire.AbsoluteURI(c.URI)] {
			list = append(list, c)
		}
	}
	return list
}

// CheckModels says what to do about models that cannot be asked.
func CheckModels(cfg *config.Config, registry *llm.Registry) error {
	var faults []error
	of := map[string][]string{} // the agents, by the text of what is wrong with a model of theirs
	for _, spec := range cfg.Agents {
		models := []sdk.ModelSpec{spec.Model}
		if m := spec.Memory; m != nil && m.Summarizer != nil {
			models = append(models, *m.Summarizer)
		}
		for _, m := range spec.Plan.Models() {
			models = append(models, *m)
		}
		for _, model := range models {
			_, err := registry.Provider(model)
			if err == nil || slices.Contains(of[err.Error()], spec.Name) {
				continue
			}
			if of[err.Error()] == nil {
				faults = append(faults, err)
			}
			of[err.Error()] = append(of[err.Error()], spec.Name)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	for n, err := range faults {
		faults[n] = fmt.Errorf("%w (of %s)", err, strings.Join(of[err.Error()], ", "))
	}
	return sdk.Errorf(sdk.CodeConfig, "a model cannot be asked; set its key (OPENAI_API_KEY, or api_key_env in models:), "+
		"or OPENAI_BASE_URL for a server that needs none, such as: agentd mock-llm").WithCause(errors.Join(faults...))
}

// AgentNames are the names of the configured agents.
func AgentNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Agents))
	for i, spec := range cfg.Agents {
		names[i] = spec.Name
	}
	return names
}

// Address is where NATS is: as set, else the server of an agentd dev that runs on the data folder.
func Address(cfg *config.Config) (string, error) {
	if url := cfg.NATS.URL.Reveal(); url != "" {
		return url, nil
	}
	url, err := datafolder.ReadAddress(cfg.Data)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		return "", sdk.Errorf(sdk.CodeUnavailable,
			"no NATS server to talk to: none runs on the data folder %s (start one with: agentd dev), and NATS_URL is not set",
			cfg.Data)
	}
	return url, err
}

// Subjects are those of the configured root.
func Subjects(cfg *config.Config) wire.Subjects {
	s, err := wire.NewSubjects(cfg.NATS.Root)
	if err != nil {
		panic(err) // Check admits no other root
	}
	return s
}

// Login is how a command shows NATS who it is.
func Login(cfg *config.Config) broker.Login {
	n := cfg.NATS
	return broker.Login{Creds: n.Creds, NKey: n.NKey, CA: n.CA, Cert: n.Cert, Key: n.Key}
}

// onDev reports whether the server is that of agentd dev on the configuration's data folder.
func onDev(cfg *config.Config) bool {
	if cfg.NATS.URL == "" {
		return true
	}
	address, err := datafolder.ReadAddress(cfg.Data)
	return err == nil && address == cfg.NATS.URL.Reveal()
}

// StoreOptions say where runs are kept, and how they are sealed.
func StoreOptions(cfg *config.Config) (worker.StoreOptions, error) {
	e, err := Encryption(cfg)
	if err != nil {
		return worker.StoreOptions{}, err
	}
	keys, err := sealed.NewKeyring(e)
	return worker.StoreOptions{
		RedisURL: RedisURL(cfg), RedisTLS: redisstore.TLS{CA: cfg.Redis.CA, Cert: cfg.Redis.Cert, Key: cfg.Redis.Key}, Keys: keys,
		RedisReplicas: cfg.Redis.Replicas, RedisReplicaTimeout: cfg.Redis.ReplicaTimeout,
		PlainEntries: cfg.Entries == config.EntriesPlain,
	}, err
}

// RedisURL is empty when runs are kept in JetStream.
func RedisURL(cfg *config.Config) string {
	if cfg.StoreKind() != config.StoreRedis {
		return ""
	}
	return cfg.Redis.URL.Reveal()
}

// Models are the configured providers.
func Models(cfg *config.Config) (*llm.Registry, error) {
	var c llm.Config
	for _, p := range cfg.Models {
		c.Providers = append(c.Providers, llm.ProviderConfig{
			Name: p.Name, Protocol: llm.Protocol(p.Protocol), BaseURL: p.BaseURL, APIKey: p.APIKey.Reveal(),
			Organization: p.Organization,
		})
	}
	return llm.New(c)
}

// Plan is what the broker needs for the agents, and for the services of all contracts, also of those that no agent calls.
func Plan(cfg *config.Config) provision.Plan {
	p := worker.Plan(cfg.Agents)
	p.Replicas, p.PersistMode = cfg.NATS.Replicas, streams.PersistMode(cfg.NATS.PersistMode)
	p.Partitions, p.Unreconciled = cfg.NATS.Partitions, cfg.Reconcile.Interval == 0
	p.Cold = cfg.StoreKind() == config.StoreRedis && cfg.Retention.Hot > 0
	p.AnswersAge, p.AnswersNeeded = cfg.NATS.AnswersAge, cfg.AnswersNeeded().For
	for _, c := range cfg.Contracts {
		service := provision.Service{Domain: c.Domain, Type: c.Type}
		served := slices.ContainsFunc(cfg.Agents, func(a sdk.AgentSpec) bool { return a.Contract.Type == c.Type })
		if !served && !slices.Contains(p.Services, service) {
			p.Services = append(p.Services, service)
		}
	}
	for _, w := range cfg.Approvals.Webhooks {
		p.Webhooks = append(p.Webhooks, provision.Webhook{Name: webhook.Target{URL: w.URL}.Name(), Domains: approvalDomains(cfg)})
	}
	return p
}

// Agents are the configured agents; those have no code in Go.
func Agents(cfg *config.Config) []sdk.Agent {
	list := make([]sdk.Agent, len(cfg.Agents))
	for i, spec := range cfg.Agents {
		list[i] = sdk.Agent{Spec: spec}
	}
	return list
}
