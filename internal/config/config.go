package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentd/internal/answers"
	"agentd/internal/signature"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Faults is everything that is wrong with a configuration. As an error it has the code sdk.CodeConfig.
type Faults = strict.Faults

// Fault is one of them, with its place.
type Fault = strict.Fault

// EntryForm is how entries of journals are stored; all forms are read.
type EntryForm string

// The forms.
const (
	EntriesPacked EntryForm = "packed"
	EntriesPlain  EntryForm = "plain"
)

// StoreKind names a store of runs.
type StoreKind string

// The stores.
const (
	StoreJetStream StoreKind = "jetstream"
	StoreRedis     StoreKind = "redis"
)

// DefaultLogForm is the form of logs.
const DefaultLogForm = "text"

// Config is a configuration with defaults filled in and everything it names read.
type Config struct {
	// File is where it was loaded from; Files are all files and folders that were read, for watching. All are as given or
	// relative to File's folder.
	File  string
	Files []string

	Settings
	// Encryption seals what is stored of runs; the zero value stores it as it is.
	Encryption Encryption
	// Models are the model providers, by name; "openai" and "anthropic" always are.
	Models []Provider

	// Identity says that the broker enforces who publishes, and that whoever starts a run or decides must be named.
	Identity bool
	// Keys verify signed decisions, by domain.
	Keys signature.Keys
	// MCP are the MCP servers that agents have tools from.
	MCP MCP

	// Domains are the routing lanes that may be named, sorted: those of the file, of the contracts that were read, and
	// human.interaction.
	Domains []string

	// Agents may refer to contracts in the registry, which are looked up when the agents are served: References.
	Agents     []sdk.AgentSpec
	References []Reference
	// places are where the agents stand whose tools are all known, or looked up in the registry, by name.
	places map[string]*strict.Node
	// Contracts are all that were read, the agents' own and agentd's own, by type: what services and streams are
	// provisioned from.
	Contracts []sdk.Contract
	// stamp is what Stamp returns.
	stamp string
	// stands are where the agents stand, by name.
	stands map[string]strict.Position
	// known are the contracts with their files, agentd's own among them.
	known []*known
	// unwise is what can be used and may not be meant.
	unwise Faults
	// sources are where the contracts stand, by type.
	sources map[string]strict.Position
}

// Stamp is that of the files as they were before they were read: what is saved while they are read changes it.
func (c *Config) Stamp() string { return c.stamp }

// Stamp changes when one of the files or folders does. Modification times are polled: unlike notifications they work on
// every file system and with every editor, and there are few files.
func Stamp(files []string) string {
	var b strings.Builder
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			fmt.Fprintf(&b, "%s: gone\n", f)
			continue
		}
		fmt.Fprintf(&b, "%s: %d %d\n", f, info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}

// Source is where the contract of a type stands.
func (c *Config) Source(contractType string) strict.Position { return c.sources[contractType] }

// Settings are what of agentd.yaml is taken as it stands there. agentd.schema.json describes each.
type Settings struct {
	NATS  NATS  `json:"nats"`
	Redis Redis `json:"redis"`
	// Store is empty until somebody chose one; see StoreKind.
	Store StoreKind `json:"store"`
	// Entries is how journals are stored.
	Entries   EntryForm `json:"entries"`
	Data      string    `json:"data"`
	Slots     int       `json:"slots"`
	Log       Log       `json:"log"`
	Reconcile Reconcile `json:"reconcile"`
	Retention Retention `json:"retention"`
	// Approvals is how people are asked and answer.
	Approvals Approvals `json:"approvals"`
	// Console is how people log in to agentd console.
	Console Console `json:"console"`
}

// NATS is how to reach the broker.
type NATS struct {
	// URL is empty for the embedded server.
	URL URL `json:"url"`
	// Creds is the path of a credentials file, NKey of one with the seed of an nkey.
	Creds string `json:"creds"`
	NKey  string `json:"nkey"`
	// CA, Cert and Key are the paths of PEM files: the authorities that a server's certificate must be of, and the program's
	// own certificate.
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Root is the first token of every subject.
	Root string `json:"root"`
	// Replicas of streams, 1 to 5; 0 is not set: existing streams stay as they are, new ones have 1.
	Replicas int `json:"replicas"`
	// Partitions is how many streams journals, timers, calls and answers are each divided into; 0 is not set: as many as there are, 1 where there are none.
	Partitions int `json:"partitions"`
	// AnswersAge is how long the stream of answers keeps them.
	AnswersAge time.Duration `json:"answers_age"`
	// PersistMode is that of the streams that journals fill again, "default" or "async"; empty is not set: as they are, async where there are none.
	PersistMode string `json:"persist_mode"`
}

// Redis is how to reach the store, where it is not JetStream.
type Redis struct {
	URL URL `json:"url"`
	// CA, Cert and Key are the paths of PEM files, as those of NATS.
	CA   string `json:"ca"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
	// Replicas is how many replicas must have what is written before it counts as written; 0 waits for none.
	Replicas int `json:"replicas"`
	// ReplicaTimeout is how long they have for it, before it is unknown whether it was written.
	ReplicaTimeout time.Duration `json:"replica_timeout"`
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error; Format text or json.
	Level  string `json:"level"`
	Format string `json:"format"`
}

// Reconcile says how workers look for runs that were lost (docs/reliability.md).
type Reconcile struct {
	// Interval is how often one of them does; 0 is never.
	Interval time.Duration `json:"interval"`
	// OlderThan is how old something must be before it counts as lost.
	OlderThan time.Duration `json:"older_than"`
	// FullInterval is how often they look at all runs, and not at those alone that have changed; 0 is each time.
	FullInterval time.Duration `json:"full_interval"`
}

// Retention says how long runs are kept that are done.
type Retention struct {
	// History is how long they keep their history; 0 is for ever.
	History time.Duration `json:"history"`
	// Calls is how long the broker keeps their calls; 0 is for as long as the stream of calls keeps any.
	Calls time.Duration `json:"calls"`
	// Hot is how long their journals stay in Redis, before they leave for archives in JetStream; 0 is for as long as they are kept. With
	// another store it says nothing.
	Hot time.Duration `json:"hot"`
}

// Approvals is how people are asked and answer (docs/approvals.md).
type Approvals struct {
	// As is the principal that decisions are published as; empty is found out.
	As string `json:"as"`
	// Domains are those that the desk shows; none is sdk.HumanDomain alone.
	Domains []string `json:"domains"`
	// HTTP is the address of the desk's HTTP API in agentd dev; empty is none. TokenEnv names the variable of its token.
	HTTP     string `json:"http"`
	TokenEnv string `json:"token_env"`
	// Key is the path of the Ed25519 key that decisions are signed with, a PEM file; empty signs none. It is read when it is
	// needed.
	Key string `json:"key"`
	// Early is how long workers keep a decision whose request has not come; 0 is not at all.
	Early time.Duration `json:"early"`
	// Webhooks are told of what is asked.
	Webhooks []Webhook `json:"webhooks"`
}

// Webhook is a URL that is told of what is asked, signed with the secret in the variable that SecretEnv names.
type Webhook struct {
	URL       string `json:"url"`
	SecretEnv string `json:"secret_env"`
}

// Provider is a server of models.
type Provider struct {
	Name string `json:"-"`
	// Protocol is "openai", also when it is empty, or "anthropic".
	Protocol string `json:"protocol"`
	// BaseURL is empty for the vendor itself.
	BaseURL      string `json:"base_url"`
	Organization string `json:"organization"`
	// APIKeyEnv names the environment variable of the key; APIKey is its content after ApplyEnv.
	APIKeyEnv string `json:"api_key_env"`
	APIKey    Secret `json:"-"`
}

// Reference is a service of an agent whose contract is in no file, so that it is looked up in the registry.
type Reference struct {
	strict.Position
	Agent string
	// Contract is a type or a URI.
	Contract string
	Range    string
	// Similar is the type of a contract in a file that Contract may be a misspelling of; usually empty.
	Similar string
}

// Default returns the configuration of an empty file in the current folder.
func Default() *Config { return defaults("") }

func defaults(file string) *Config {
	return &Config{
		File: file,
		Settings: Settings{
			NATS:      NATS{Root: wire.DefaultRoot, AnswersAge: sdk.DefaultAnswersAge},
			Redis:     Redis{ReplicaTimeout: sdk.DefaultReplicaTimeout},
			Data:      filepath.Join(filepath.Dir(file), ".agentd"),
			Slots:     sdk.DefaultSlots,
			Entries:   EntriesPacked,
			Log:       Log{Level: "info", Format: DefaultLogForm},
			Reconcile: Reconcile{Interval: sdk.DefaultReconcile, OlderThan: sdk.DefaultLostAfter, FullInterval: sdk.DefaultReconcileFull},
			Retention: Retention{History: sdk.DefaultHistory, Calls: sdk.DefaultCallsKept},
			Console:   Console{OIDC{Scopes: []string{"profile"}, Principal: "preferred_username", Groups: "groups"}},
		},
		places: map[string]*strict.Node{}, stands: map[string]strict.Position{},
		Models: []Provider{
			{Name: "anthropic", Protocol: "anthropic", APIKeyEnv: "ANTHROPIC_API_KEY"}, //nolint:gosec // the name of a variable
			{Name: defaultProvider, APIKeyEnv: "OPENAI_API_KEY"},                       //nolint:gosec // likewise
		},
	}
}

// defaultProvider is that of models that name none.
const defaultProvider = "openai"

// provider returns the provider of that name, or nil.
func (c *Config) provider(name string) *Provider {
	i := slices.IndexFunc(c.Models, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Models[i]
}

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

// AnswersNeeded is how long answers have to be kept for what is configured.
func (c *Config) AnswersNeeded() answers.Need {
	return answers.Needed(c.Agents).WithEarly(c.Approvals.Early).WithReconcile(c.Reconcile.Interval, c.Reconcile.OlderThan)
}

// Check reports what is wrong with the settings as a whole, after environment and flags.
func (c *Config) Check() error {
	if c.StoreKind() == StoreRedis && c.Redis.URL == "" {
		return sdk.Errorf(sdk.CodeConfig, "the store is redis, but its URL is not set: set redis.url or REDIS_URL")
	}
	if hot := c.Retention.Hot; hot > 0 && hot < sdk.LeastHot {
		return sdk.Errorf(sdk.CodeConfig, "%s", leastHot(hot))
	}
	return nil
}
