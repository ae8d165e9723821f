package config

import (
	"strconv"

	"agentd/internal/config/strict"
)

// ApplyEnv puts the environment over the file: NATS_URL, NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY, REDIS_URL, REDIS_CA, REDIS_CERT, REDIS_KEY, OPENAI_BASE_URL, ANTHROPIC_BASE_URL,
// AGENTD_ROOT, AGENTD_REPLICAS, AGENTD_STORE, AGENTD_DATA, AGENTD_SLOTS, AGENTD_RECONCILE, AGENTD_HISTORY,
// AGENTD_LOG_LEVEL, AGENTD_LOG_FORMAT, and every provider's key from the variable that its api_key_env names
// (OPENAI_API_KEY for openai, ANTHROPIC_API_KEY for anthropic). An empty variable counts as unset. lookup is
// os.LookupEnv.
func (c *Config) ApplyEnv(lookup func(string) (string, bool)) error {
	e := environment{lookup: lookup}
	text(&e, "NATS_URL", &c.NATS.URL, nil)
	text(&e, "NATS_CREDS", &c.NATS.Creds, nil)
	text(&e, "NATS_NKEY", &c.NATS.NKey, nil)
	text(&e, "NATS_CA", &c.NATS.CA, nil)
	text(&e, "NATS_CERT", &c.NATS.Cert, nil)
	text(&e, "NATS_KEY", &c.NATS.Key, nil)
	text(&e, "REDIS_URL", &c.Redis.URL, nil)
	text(&e, "REDIS_CA", &c.Redis.CA, nil)
	text(&e, "REDIS_CERT", &c.Redis.Cert, nil)
	text(&e, "REDIS_KEY", &c.Redis.Key, nil)
	text(&e, "AGENTD_ROOT", &c.NATS.Root, checkRoot)
	text(&e, "AGENTD_STORE", &c.Store, checkStore)
	text(&e, "AGENTD_DATA", &c.Data, nil)
	text(&e, "AGENTD_LOG_LEVEL", &c.Log.Level, checkLevel)
	text(&e, "AGENTD_LOG_FORMAT", &c.Log.Format, checkFormat)
	e.number("AGENTD_REPLICAS", &c.NATS.Replicas, checkReplicas)
	e.period("AGENTD_RECONCILE", &c.Reconcile.Interval)
	e.period("AGENTD_HISTORY", &c.Retention.History)
	e.number("AGENTD_SLOTS", &c.Slots, checkSlots)
	for i := range c.Models {
		if c.Models[i].APIKeyEnv != "" {
			text(&e, c.Models[i].APIKeyEnv, &c.Models[i].APIKey, nil)
		}
	}
	if openai := c.provider(defaultProvider); openai != nil {
		text(&e, "OPENAI_BASE_URL", &openai.BaseURL, nil)
	}
	if anthropic := c.provider(anthropicProvider); anthropic != nil {
		text(&e, "ANTHROPIC_BASE_URL", &anthropic.BaseURL, nil)
	}
	return e.Err()
}

type environment struct {
	strict.Reader
	lookup func(string) (string, bool)
}

func (e *environment) at(name string) strict.Position {
	return strict.Position{File: "environment variable " + name}
}

func text[T ~string](e *environment, name string, target *T, check func(T) error) {
	value, ok := e.lookup(name)
	if !ok || value == "" {
		return
	}
	if check != nil {
		if err := check(T(value)); err != nil {
			e.Note(e.at(name), err)
			return
		}
	}
	*target = T(value)
}

func (e *environment) number(name string, target *int, check func(int) error) {
	value, ok := e.lookup(name)
	if !ok || value == "" {
		return
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		e.Faultf(e.at(name), "want a whole number, got %q", value)
		return
	}
	if err := check(n); err != nil {
		e.Note(e.at(name), err)
		return
	}
	*target = n
}
