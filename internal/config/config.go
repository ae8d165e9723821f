package config

import (
	"path/filepath"
	"slices"
	"strings"

	"agentd/internal/signature"

	"agentd/sdk/wire"

	"agentd/internal/config/strict"
	"agentd/sdk"
)

// Faults is everything that is wrong with a configuration. As an error it has the code sdk.CodeConfig.
type Faults = strict.Faults

// Fault is one of them, with its place.
type Fault = strict.Fault

// StoreKind names a store of runs.
type StoreKind string

// The stores.
const (
	StoreJetStream StoreKind = "jetstream"
	StoreRedis     StoreKind = "redis"
)

// Defaults of the settings.
const (
	DefaultData     = ".agentd"
	DefaultSlots    = 32
	DefaultLogLevel = "info"
	DefaultLogForm  = "text"
)

// maxSlots bounds Config.Slots: each slot may hold a whole conversation in memory.
const maxSlots = 4096

// Config is a configuration with defaults filled in and everything it names read.
type Config struct {
	// File is where it was loaded from; Files are all files and folders that were read, for watching. All are as given or
	// relative to File's folder.
	File  string
	Files []string

	NATS  NATS
	Redis Redis
	// Store is empty until somebody chose one; see StoreKind.
	Store StoreKind
	// Data is the folder of the embedded server.
	Data string
	// Slots is how many activations a worker runs at once.
	Slots int
	Log   Log
	// Reconcile and Retention are what workers do beside serving.
	Reconcile Reconcile
	Retention Retention
	// Encryption seals what is stored of runs; the zero value stores it as it is.
	Encryption Encryption
	// Models are the model providers, by name; "openai" and "anthropic" always are.
	Models []Provider

	// Identity says that the broker enforces who publishes, and that whoever starts a run or decides must be named.
	Identity bool
	// Keys verify signed decisions, by domain.
	Keys signature.Keys
	// Approvals is how people are asked and answer.
	Approvals Approvals
	// MCP are the MCP servers that agents have tools from.
	MCP MCP

	// Domains are the routing lanes that may be named, sorted: those of the file, of the contracts that were read, and
	// human.interaction.
	Domains []string

	// Agents may refer to contracts in the registry, which are looked up when the agents are served: References.
	Agents     []sdk.AgentSpec
	References []Reference
	// Contracts are all that were read, the agents' own and agentd's own, by type: what services and streams are
	// provisioned from.
	Contracts []sdk.Contract
}

// Reference is a service of an agent whose contract is in no file, so that it is looked up in the registry.
type Reference struct {
	strict.Position
	Agent string
	// Contract is a type or a URI.
	Contract string
	Range    string
}

// NATS is how to reach the broker.
type NATS struct {
	// URL is empty for the embedded server.
	URL URL
	// Creds is the path of a credentials file, NKey of one with the seed of an nkey.
	Creds, NKey string
	// CA, Cert and Key are the paths of PEM files: the authorities that a server's certificate must be of, and the program's
	// own certificate.
	CA, Cert, Key string
	// Root is the first token of every subject.
	Root string
	// Replicas of streams, 1 to 5; 0 is not set: existing streams stay as they are, new ones have 1.
	Replicas int
}

// Redis is how to reach the store, where it is not JetStream.
type Redis struct {
	URL URL
	// CA, Cert and Key are the paths of PEM files, as those of NATS.
	CA, Cert, Key string
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error; Format text or json.
	Level, Format string
}

// Provider is a server of models.
type Provider struct {
	Name string
	// Protocol is "openai", also when it is empty, or "anthropic".
	Protocol string
	// BaseURL is empty for the vendor itself.
	BaseURL      string
	Organization string
	// APIKeyEnv names the environment variable of the key; APIKey is its content after ApplyEnv.
	APIKeyEnv string
	APIKey    Secret
}

// Default returns the configuration of an empty file in the current folder.
func Default() *Config { return defaults("") }

func defaults(file string) *Config {
	return &Config{
		File:      file,
		NATS:      NATS{Root: wire.DefaultRoot},
		Data:      filepath.Join(filepath.Dir(file), DefaultData),
		Slots:     DefaultSlots,
		Reconcile: defaultReconcile(), Retention: Retention{History: sdk.DefaultHistory},
		Log: Log{Level: DefaultLogLevel, Format: DefaultLogForm},
		Models: []Provider{
			{Name: anthropicProvider, Protocol: anthropicProvider, APIKeyEnv: anthropicKeyVariable},
			{Name: defaultProvider, APIKeyEnv: defaultKeyVariable},
		},
	}
}

// The provider that needs no configuration, and the variable of its key.
const (
	defaultProvider    = "openai"
	defaultKeyVariable = "OPENAI_API_KEY"
	// anthropicProvider needs no configuration either. The protocol has the same name.
	anthropicProvider    = "anthropic"
	anthropicKeyVariable = "ANTHROPIC_API_KEY"
)

// StoreKind is the chosen store: redis where there is a Redis URL, jetstream otherwise, unless Store says which.
func (c *Config) StoreKind() StoreKind {
	switch {
	case c.Store != "":
		return c.Store
	case c.Redis.URL != "":
		return StoreRedis
	default:
		return StoreJetStream
	}
}

// Check reports what is wrong with the settings as a whole, after environment and flags.
func (c *Config) Check() error {
	var r strict.Reader
	settings := strict.Position{File: "settings"}
	for _, err := range []error{
		checkStore(c.Store), checkRoot(c.NATS.Root), checkSlots(c.Slots),
		checkLevel(c.Log.Level), checkFormat(c.Log.Format),
	} {
		r.Note(settings, err)
	}
	if c.NATS.Replicas != 0 {
		r.Note(settings, checkReplicas(c.NATS.Replicas))
	}
	if c.StoreKind() == StoreRedis && c.Redis.URL == "" {
		r.Faultf(settings, "the store is redis, but there is no Redis URL (redis.url, REDIS_URL)")
	}
	return r.Err()
}

func checkStore(s StoreKind) error {
	return checkOneOf("store", string(s), "", string(StoreJetStream), string(StoreRedis))
}

func checkRoot(root string) error {
	_, err := wire.NewSubjects(root)
	return err
}

func checkReplicas(n int) error {
	if n < 1 || n > 5 {
		return sdk.Errorf(sdk.CodeConfig, "replicas: want 1 to 5, got %d", n)
	}
	return nil
}

func checkSlots(n int) error {
	if n < 1 || n > maxSlots {
		return sdk.Errorf(sdk.CodeConfig, "slots: want 1 to %d, got %d", maxSlots, n)
	}
	return nil
}

func checkLevel(s string) error { return checkOneOf("log level", s, "debug", "info", "warn", "error") }

func checkFormat(s string) error { return checkOneOf("log format", s, "text", "json") }

// checkOneOf skips an allowed empty text when it lists what is allowed.
func checkOneOf(what, got string, allowed ...string) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	allowed = slices.DeleteFunc(allowed, func(s string) bool { return s == "" })
	return sdk.Errorf(sdk.CodeConfig, "%s: want %s, got %q", what, strings.Join(allowed, " or "), got)
}

// provider returns the provider of that name, or nil.
func (c *Config) provider(name string) *Provider {
	i := slices.IndexFunc(c.Models, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Models[i]
}
