package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func env(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func TestConfig_ApplyEnvGoesOverTheFile(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/desk/agentd.yaml")
	err := c.ApplyEnv(env(map[string]string{
		"NATS_URL": "nats://n", "NATS_CREDS": "n.creds", "REDIS_URL": "redis://r", "REDIS_CA": "rca.pem", "REDIS_CERT": "rcert.pem", "REDIS_KEY": "rkey.pem", "AGENTD_REDIS_REPLICAS": "2", "OPENAI_API_KEY": "sk-1",
		"NATS_NKEY": "n.nk", "NATS_CA": "ca.pem", "NATS_CERT": "cert.pem", "NATS_KEY": "key.pem",
		"OPENAI_BASE_URL": "http://o", "LOCAL_KEY": "sk-2", "AGENTD_ROOT": "root", "AGENTD_REPLICAS": "5", "AGENTD_PARTITIONS": "4",
		"AGENTD_STORE": "redis", "AGENTD_ENTRIES": "plain", "AGENTD_DATA": "d", "AGENTD_SLOTS": "1", "AGENTD_LOG_LEVEL": "error", "AGENTD_LOG_FORMAT": "",
		"AGENTD_RECONCILE": "0", "AGENTD_HISTORY": "7d", "AGENTD_HOT": "1d",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := mustLoad(t, "testdata/desk/agentd.yaml")
	want.NATS = NATS{
		URL: "nats://n", Creds: "n.creds", NKey: "n.nk", CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", Root: "root", Replicas: 5, Partitions: 4, AnswersAge: 7 * 24 * time.Hour,
	}
	want.Redis = Redis{URL: "redis://r", CA: "rca.pem", Cert: "rcert.pem", Key: "rkey.pem", Replicas: 2, ReplicaTimeout: time.Second}
	want.Entries = EntriesPlain
	want.Store, want.Data, want.Slots, want.Log = StoreRedis, "d", 1, Log{"error", "json"}
	want.Reconcile.Interval, want.Retention.History, want.Retention.Hot = 0, 7*24*time.Hour, 24*time.Hour
	want.Models = []Provider{
		{Name: "anthropic", Protocol: "anthropic", APIKeyEnv: "ANTHROPIC_API_KEY"},
		{Name: "local", BaseURL: "http://localhost:11434/v1", APIKeyEnv: "LOCAL_KEY", APIKey: "sk-2"},
		{Name: "openai", BaseURL: "http://o", APIKeyEnv: "OPENAI_API_KEY", APIKey: "sk-1"},
	}
	if diff := cmp.Diff(want, c, withoutPlaces); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

func TestConfig_ApplyEnvListsEveryFault(t *testing.T) {
	t.Parallel()
	c := Default()
	err := c.ApplyEnv(env(map[string]string{
		"AGENTD_ROOT": "a.b", "AGENTD_REDIS_REPLICAS": "-1", "AGENTD_REPLICAS": "0", "AGENTD_STORE": "disk", "AGENTD_SLOTS": "x",
		"AGENTD_LOG_LEVEL": "loud", "AGENTD_LOG_FORMAT": "xml", "AGENTD_RECONCILE": "1ms", "AGENTD_HISTORY": "week",
	}))
	want := []string{
		`environment variable AGENTD_HISTORY: retention.history: expected a duration of at least 1s, such as 30s, 15m, 72h or 30d, or 0, got string "week"`,
		`environment variable AGENTD_LOG_FORMAT: log.format: expected one of "text", "json", got string "xml"`,
		`environment variable AGENTD_LOG_LEVEL: log.level: expected one of "debug", "info", "warn", "error", got string "loud"`,
		`environment variable AGENTD_RECONCILE: reconcile.interval: expected a duration of at least 1s, such as 30s, 15m, 72h or 30d, or 0, got string "1ms"`,
		`environment variable AGENTD_REDIS_REPLICAS: redis.replicas: expected at least 0, got number -1`,
		`environment variable AGENTD_REPLICAS: nats.replicas: expected at least 1, got number 0`,
		`environment variable AGENTD_ROOT: nats.root: expected 1 to 64 lower-case letters, digits, _ and -, got string "a.b"`,
		`environment variable AGENTD_SLOTS: slots: expected integer, got string "x"`,
		`environment variable AGENTD_STORE: store: expected one of "jetstream", "redis", got string "disk"`,
	}
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Default(), c, withoutPlaces); diff != "" {
		t.Errorf("a refused value was taken:\n%s", diff)
	}
}

// One replica is asked for; none leaves streams as their operator made them.
func TestConfig_ReplicasMayBeLeftAlone(t *testing.T) {
	t.Parallel()
	c := Default()
	if err := c.Check(); err != nil || c.NATS.Replicas != 0 {
		t.Errorf("%d replicas by default, %v", c.NATS.Replicas, err)
	}
	if err := c.ApplyEnv(env(map[string]string{"AGENTD_REPLICAS": "1"})); err != nil || c.NATS.Replicas != 1 {
		t.Errorf("%d replicas, %v, want 1", c.NATS.Replicas, err)
	}
}
