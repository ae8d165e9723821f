package config

import (
	"maps"
	"slices"

	"agentd/internal/strict"
)

// variables are the environment variables of settings, by key of the file.
var variables = map[string]string{ //nolint:gosec // names of variables
	"nats.url": "NATS_URL", "nats.creds": "NATS_CREDS", "nats.nkey": "NATS_NKEY", "nats.ca": "NATS_CA", "nats.cert": "NATS_CERT",
	"nats.key": "NATS_KEY", "nats.root": "AGENTD_ROOT", "nats.replicas": "AGENTD_REPLICAS", "nats.partitions": "AGENTD_PARTITIONS",
	"redis.url": "REDIS_URL", "redis.ca": "REDIS_CA", "redis.cert": "REDIS_CERT", "redis.key": "REDIS_KEY", "redis.replicas": "AGENTD_REDIS_REPLICAS",
	"store": "AGENTD_STORE", "entries": "AGENTD_ENTRIES", "data": "AGENTD_DATA", "slots": "AGENTD_SLOTS",
	"reconcile.interval": "AGENTD_RECONCILE", "retention.history": "AGENTD_HISTORY", "retention.hot": "AGENTD_HOT",
	"log.level": "AGENTD_LOG_LEVEL", "log.format": "AGENTD_LOG_FORMAT",
	"models.openai.base_url": "OPENAI_BASE_URL", "models.anthropic.base_url": "ANTHROPIC_BASE_URL",
}

// ApplyEnv puts the environment over the file: the variables above, and every provider's key from the variable that its
// api_key_env names. An empty variable counts as unset. lookup is os.LookupEnv.
func (c *Config) ApplyEnv(lookup func(string) (string, bool)) error {
	var r strict.Reader
	for _, key := range slices.Sorted(maps.Keys(variables)) {
		value, _ := lookup(variables[key])
		c.set(&r, "environment variable "+variables[key], key, value)
	}
	for i := range c.Models {
		if value, _ := lookup(c.Models[i].APIKeyEnv); value != "" {
			c.Models[i].APIKey = Secret(value)
		}
	}
	return r.Err()
}

// Set puts a value over a setting, such as "nats.url"; an empty one leaves it. source says in faults where it is from, such
// as "--nats".
func (c *Config) Set(source, key, value string) error {
	var r strict.Reader
	c.set(&r, source, key, value)
	return r.Err()
}

func (c *Config) set(r *strict.Reader, source, key, value string) {
	if value == "" {
		return
	}
	n := strict.Setting(source, key, value, fileForm())
	r.Check(n, fileForm())
	c.apply(r, n)
}

// apply puts settings and providers over those there are.
func (c *Config) apply(r *strict.Reader, n *strict.Node) {
	r.Decode(n, &c.Settings)
	for _, m := range n.Get("models").Items() {
		if c.provider(m.Name) == nil {
			c.Models = append(c.Models, Provider{Name: m.Name})
		}
		r.Decode(m, c.provider(m.Name))
	}
}
