package config

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mustLoad(t testing.TB, path string) *Config {
	t.Helper()
	c, err := Load(path)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

// write makes a folder of files and returns the path of its agentd.yaml.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "agentd.yaml")
}

func TestLoad_Settings(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/desk/agentd.yaml")
	want := &Config{
		File: "testdata/desk/agentd.yaml",
		Files: []string{
			"testdata/desk/agentd.yaml", "testdata/desk/contracts", "testdata/desk/contracts/book.yaml",
			"testdata/desk/contracts/more", "testdata/desk/contracts/more/search.json",
			"testdata/desk/contracts/travel.desk.yaml", "testdata/desk/prompts/desk.md",
		},
		NATS: NATS{
			URL: "nats://user:s3cret@localhost:4222", Creds: "testdata/desk/secrets/nats.creds", Root: "desk", Replicas: 3,
		},
		Redis: Redis{"redis://:s3cret@localhost:6379/0"},
		Store: StoreJetStream, Data: "testdata/desk/state", Slots: 8, Log: Log{"debug", "json"},
		Reconcile: Reconcile{Interval: 10 * time.Minute, OlderThan: 2 * time.Minute}, Retention: Retention{90 * 24 * time.Hour},
		Models: []Provider{
			{Name: "anthropic", Protocol: "anthropic", APIKeyEnv: "ANTHROPIC_API_KEY"},
			{Name: "local", BaseURL: "http://localhost:11434/v1", APIKeyEnv: "LOCAL_KEY"},
			{Name: "openai", APIKeyEnv: "OPENAI_API_KEY"},
		},
		Agents: c.Agents, Contracts: c.Contracts, Domains: []string{"airline", "eu", "human.interaction", "us"},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	var types []string
	for _, contract := range c.Contracts {
		types = append(types, contract.Type)
	}
	wantTypes := []string{
		"agentd.conversation.turn", "agentd.permission.request", "agentd.question.ask", "airline.book", "airline.search", "plain",
		"travel.desk", "weather",
	}
	if diff := cmp.Diff(wantTypes, types); diff != "" {
		t.Errorf("contracts (-want +got):\n%s", diff)
	}
}

func TestLoad_ResolvesAgents(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/desk/agentd.yaml")
	if len(c.Agents) != 3 {
		t.Fatalf("%d agents", len(c.Agents))
	}
	zero := 0.0
	desk := c.Agents[0]
	want := sdk.AgentSpec{
		Name: "travel.desk", Description: "Books trips.", Version: "1.2.0", Contract: desk.Contract,
		Model: sdk.ModelSpec{
			Provider: "openai", Name: "gpt-4o-mini", Temperature: &zero, MaxTokens: 500,
			UnitsPerPromptToken: 150_000, UnitsPerCompletionToken: 600_000,
			Fallback: []sdk.ModelSpec{{Provider: "local", Name: "llama3"}},
		},
		System: "You are a travel desk.\n{{range .Tools}}{{.Name}} {{end}}\n",
		Prompt: "{{.Input.message}}", Text: sdk.TextConverse, Services: desk.Services,
		Builtin: []string{"task_completion", "ask_question"}, StopOn: []string{"book"}, History: true,
		Permissions: &sdk.PermissionPolicy{
			Rules: []sdk.PermissionRule{{Name: "require", Tools: []string{"book"}, Verdict: sdk.PermissionAsk}},
		},
		Limits: sdk.Limits{
			Interactions: 30, DeadlineMillis: 30 * 24 * 3600_000, ModelTimeoutMillis: 90_000, QuestionTimeoutMillis: 72 * 3600_000,
		},
	}
	if diff := cmp.Diff(want, desk); diff != "" {
		t.Errorf("agent (-want +got):\n%s", diff)
	}
	var services []string
	for _, s := range desk.Services {
		services = append(services, fmt.Sprint(s.Contract.URI, s.Version, s.As, s.Description, s.Priority, s.TimeoutMillis, s.Domains, len(s.Contract.Versions)))
	}
	wantServices := []string{
		"#/airline/book1.0.3bookBook it.2 30000 [airline] 1",
		"#/airline/search1.0.00 0 [eu us] 1",
		"#/agent/weather1.0.00 0 [] 1",
	}
	if diff := cmp.Diff(wantServices, services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if _, ok := desk.Contract.Versions["1.2.0"]; !ok || len(desk.Contract.Versions) != 1 {
		t.Errorf("the agent's contract is not pinned: %v", desk.Contract.Versions)
	}
}

func TestLoad_AgentWithoutAContract(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/desk/agentd.yaml")
	weather, plain := c.Agents[1], c.Agents[2]
	if _, err := contracts.CompileVersion(weather.Contract, weather.Version); err != nil {
		t.Error(err)
	}
	if weather.Contract.URI != "#/agent/weather" || weather.Contract.Type != "weather" || weather.Version != "1.0.0" ||
		weather.System != "Answer in one sentence." || weather.Text != sdk.TextOutput {
		t.Errorf("agent %+v", weather)
	}
	v, err := contracts.CompileVersion(plain.Contract, plain.Version)
	if err != nil {
		t.Fatal(err)
	}
	if faults := v.Accepts.Validate(json.RawMessage(`{"message": "hi"}`)); len(faults) > 0 {
		t.Error(faults)
	}
	if faults := v.Emits["plain.done"].Validate(json.RawMessage(`{"response": "hi"}`)); len(faults) > 0 {
		t.Error(faults)
	}
}

// Loading the same files twice gives the same digests: a restart is no new version of an agent.
func TestLoad_DigestsAreStable(t *testing.T) {
	t.Parallel()
	var digests [2][]string
	for i := range digests {
		for _, spec := range mustLoad(t, "testdata/desk/agentd.yaml").Agents {
			digest, _, err := contracts.SpecDigest(spec)
			if err != nil {
				t.Fatal(err)
			}
			digests[i] = append(digests[i], digest)
		}
	}
	if diff := cmp.Diff(digests[0], digests[1]); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_ListsEveryFaultOfAllFiles(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/broken/agentd.yaml")
	if err == nil {
		t.Fatal("loaded")
	}
	const golden = "testdata/broken/faults.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, readErr := os.ReadFile(golden)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(err.Error()+"\n", "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	faults, ok := errors.AsType[Faults](err)
	if !ok || sdk.AsError(err).Code != sdk.CodeConfig || !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("error %T", err)
	}
	for _, f := range faults {
		if strings.Contains(f.Message, "sk-secret") {
			t.Errorf("a secret in %s", f)
		}
	}
}

func TestLoad_RefusesSmallerFiles(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), ed25519.PublicKeySize))
	agent := func(members string) string { return "agents:\n  - {name: a, model: {name: m}, " + members + "}\n" }
	tests := []struct{ name, file, want string }{
		{"empty", "", "agentd.yaml: the file is empty"},
		{"list", "- a", "agentd.yaml:1:1: want a mapping, got a list"},
		{
			"permissions without rules", agent("permissions: {mode: hold}"),
			"agentd.yaml:2:46: the permissions cannot be used: $.permissions.rules: expected at least one rule, got none",
		},
		{"a permission list", agent("permissions: [x]"), "agentd.yaml:2:46: want a mapping, got a list"},
		{"a permission word", agent("permissions: strict"), `agentd.yaml:2:46: want a mapping, got "strict"`},
		{
			"a quorum of the anonymous", agent("permissions: {require: ['*'], quorum: 2}"),
			"agentd.yaml:2:46: the permissions cannot be used: $.permissions.rules[0].terms: expected identity: required, because it depends on who somebody is, got anybody may be anonymous",
		},
		{
			"a key twice", "decision_keys: {finance: [" + key + ", anna=" + key + "]}\n" + agent(""),
			"agentd.yaml:1:73: decision_keys: the domain has this key twice: it counts once",
		},
		{
			"a key of nobody", "decision_keys: {finance: [a.b=" + key + "]}\n" + agent(""),
			`agentd.yaml:1:27: decision_keys: "a.b" cannot be a principal: want 1 to 128 letters, digits, _ and -`,
		},
		{
			"no condition", agent("permissions: {rules: [{when: 'args.'}]}"), "agentd.yaml:2:46: the permissions cannot be used: $.permissions.rules[0].when: expected a condition, " +
				`got "args." is no CEL expression: column 6: Syntax error: no viable alternative at input '.'`,
		},
		{"mcp", agent("tools: {mcp: {a: {}}}"), "agentd.yaml:2:46: want a list, got a mapping"},
		{
			"built-in types are taken", agent("contract: {}") + "  - {name: agentd.question.ask, model: {name: m}}\n",
			"agentd.yaml:3:5: type agentd.question.ask is already the one of contract #/agentd/question/ask in agentd",
		},
		{
			"large prompt", agent("system: " + strings.Repeat("x", maxPrompt+1)),
			"agentd.yaml:2:41: the system prompt has 262145 bytes; at most 262144 are allowed",
		},
		{
			"a contract for two", "contracts: [c.yaml]\n" + agent("contract: c") + "  - {name: b, model: {name: m}, contract: c}\n",
			"agentd.yaml:4:43: agents \"a\" and \"b\" cannot both answer calls of type c",
		},
		{
			"the local lane of a contract", "contracts: [local.yaml]\n",
			`local.yaml: domain "local" is the lane of calls without a domain: leave the domain out`,
		},
		{
			"an unknown domain", "domains: [eu]\n" + agent("tools: {services: [{contract: c.yaml, domains: [local, eu, uk]}]}"),
			`agentd.yaml:3:92: domain "uk" is not known; add it to domains: if somebody serves it. There is eu, human.interaction, local`,
		},
		{
			"a permission's unknown domain", agent("permissions: {require: ['*'], domain: desk}"),
			`agentd.yaml:2:71: domain "desk" is not known; add it to domains: if somebody serves it. There is human.interaction, local`,
		},
		{
			"a file that is missing", agent("tools: {services: [{contract: x.yaml}]}"),
			"agentd.yaml:2:63: DIR/x.yaml cannot be read: no such file or directory (a name that has a slash or ends in .yaml, " +
				".yml or .json is a file; the registry is asked for types such as a.b and URIs such as #/a/b)",
		},
		{
			"a range in the registry", agent("tools: {services: [{contract: far.away, version: newest}]}"),
			`agentd.yaml:2:63: version range "newest" of contract far.away: want a version, a range such as ^1, or latest`,
		},
		{
			"no type and no file", agent("tools: {services: [{contract: 'far away'}]}"),
			`agentd.yaml:2:63: name "far away": want letters, digits, "_", "-" and single dots, at most 128 characters`,
		},
		{"a type twice", "contracts: [c.yaml, d.json]\n", "d.json: type c is already the one of contract #/c in DIR/c.yaml"},
		{
			"an unknown type", agent("contract: nope"),
			`agentd.yaml:2:43: no contract of type "nope" in contracts: or agents:; there is agentd.conversation.turn, agentd.permission.request, agentd.question.ask. ` +
				"(Only services are looked up in the registry, not the contract that an agent itself has.)",
		},
		{"an empty folder", "contracts: [empty]\n", "agentd.yaml:1:13: DIR/empty has no contracts: no file ends in .yaml, .yml or .json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, map[string]string{
				"agentd.yaml": tt.file, "empty/x.txt": "",
				"d.json":     `{"uri": "#/d", "type": "c", "versions": {"1.0.0": {"accepts": {"type": "object"}, "emits": {"d": {"type": "object"}}}}}`,
				"local.yaml": "uri: '#/l'\ntype: l\ndomain: local\nversions: {1.0.0: {accepts: {type: object}, emits: {d: {type: object}}}}",
				"c.yaml":     "uri: '#/c'\ntype: c\nversions: {1.0.0: {accepts: {type: object}, emits: {d: {type: object}}}}",
			})
			_, err := Load(path)
			want := strings.ReplaceAll(tt.want, "DIR", filepath.Dir(path))
			if err == nil || err.Error() != filepath.Dir(path)+"/"+want {
				t.Errorf("error %v\nwant %s", err, want)
			}
		})
	}
}

func TestLoad_WhatIsInNoFileIsLeftToTheRegistry(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{
		"agentd.yaml": `contracts: [c.yaml]
agents:
  - name: a
    model: {name: m}
    tools:
      services:
        - {contract: far.away, version: ^1, as: far}
        - {contract: "#/c", domain: local}
        - {contract: "https://example.com/far", domains: [lane, local]}
      builtin: [task_completion]
    stop_on: [far]
`,
		"c.yaml": "uri: '#/c'\ntype: c\ndomain: lane\nversions: {1.0.0: {accepts: {type: object}, emits: {d: {type: object}}}}",
	})
	c := mustLoad(t, path)
	type tool struct {
		URI, Type, Version string
		Domains            []string
	}
	var got []tool
	for _, s := range c.Agents[0].Services {
		got = append(got, tool{s.Contract.URI, s.Contract.Type, s.Version, s.Domains})
	}
	want := []tool{
		{"", "far.away", "^1", nil},
		{"#/c", "c", "1.0.0", []string{""}},
		{"https://example.com/far", "", "", []string{"lane", ""}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	references := []Reference{
		{strict.Position{File: path, Line: 7, Column: 22}, "a", "far.away", "^1"},
		{strict.Position{File: path, Line: 9, Column: 22}, "a", "https://example.com/far", "latest"},
	}
	if diff := cmp.Diff(references, c.References); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
}

func TestLoad_ToleratesEmptySections(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{"agentd.yaml": `nats:
redis: {}
models:
agents:
  - name: a
    model: {name: m}
    permissions:
    tools: {mcp: , services: , builtin: []}
    stop_on: []
    limits:
`})
	c := mustLoad(t, path)
	want := defaults(path)
	want.Files, want.Agents, want.Contracts, want.Domains = c.Files, c.Agents, c.Contracts, []string{sdk.HumanDomain}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if c.Data != filepath.Join(filepath.Dir(path), ".agentd") {
		t.Errorf("data %s", c.Data)
	}
	if d := Default(); d.Data != ".agentd" || d.Check() != nil {
		t.Errorf("default %+v", d)
	}
}

func TestLoad_FileThatIsMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	_, err := Load(path)
	if want := path + ": " + path + " cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

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
		"NATS_URL": "nats://n", "NATS_CREDS": "n.creds", "REDIS_URL": "redis://r", "OPENAI_API_KEY": "sk-1",
		"NATS_NKEY": "n.nk", "NATS_CA": "ca.pem", "NATS_CERT": "cert.pem", "NATS_KEY": "key.pem",
		"OPENAI_BASE_URL": "http://o", "LOCAL_KEY": "sk-2", "AGENTD_ROOT": "root", "AGENTD_REPLICAS": "5",
		"AGENTD_STORE": "redis", "AGENTD_DATA": "d", "AGENTD_SLOTS": "1", "AGENTD_LOG_LEVEL": "error", "AGENTD_LOG_FORMAT": "",
		"AGENTD_RECONCILE": "0", "AGENTD_HISTORY": "7d",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := mustLoad(t, "testdata/desk/agentd.yaml")
	want.NATS = NATS{
		URL: "nats://n", Creds: "n.creds", NKey: "n.nk", CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", Root: "root", Replicas: 5,
	}
	want.Redis = Redis{"redis://r"}
	want.Store, want.Data, want.Slots, want.Log = StoreRedis, "d", 1, Log{"error", "json"}
	want.Reconcile.Interval, want.Retention.History = 0, 7*24*time.Hour
	want.Models = []Provider{
		{Name: "anthropic", Protocol: "anthropic", APIKeyEnv: "ANTHROPIC_API_KEY"},
		{Name: "local", BaseURL: "http://localhost:11434/v1", APIKeyEnv: "LOCAL_KEY", APIKey: "sk-2"},
		{Name: "openai", BaseURL: "http://o", APIKeyEnv: "OPENAI_API_KEY", APIKey: "sk-1"},
	}
	if diff := cmp.Diff(want, c); diff != "" {
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
		"AGENTD_ROOT": "a.b", "AGENTD_REPLICAS": "0", "AGENTD_STORE": "disk", "AGENTD_SLOTS": "x",
		"AGENTD_LOG_LEVEL": "loud", "AGENTD_LOG_FORMAT": "xml", "AGENTD_RECONCILE": "1ms", "AGENTD_HISTORY": "week",
	}))
	want := []string{
		`environment variable AGENTD_HISTORY: "week" is not a duration such as 30s, 15m, 72h or 30d, or 0`,
		`environment variable AGENTD_LOG_FORMAT: log format: want text or json, got "xml"`,
		`environment variable AGENTD_LOG_LEVEL: log level: want debug or info or warn or error, got "loud"`,
		`environment variable AGENTD_RECONCILE: want at least 1s, or 0, got 1ms`,
		`environment variable AGENTD_REPLICAS: replicas: want 1 to 5, got 0`,
		`environment variable AGENTD_ROOT: subject root "a.b" is not of the form ^[a-z0-9_-]{1,64}$`,
		`environment variable AGENTD_SLOTS: want a whole number, got "x"`,
		`environment variable AGENTD_STORE: store: want jetstream or redis, got "disk"`,
	}
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Errorf("a refused value was taken:\n%s", diff)
	}
}

func TestConfig_StoreKind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		store StoreKind
		redis URL
		want  StoreKind
		sound bool
	}{
		{"", "", StoreJetStream, true},
		{"", "redis://r", StoreRedis, true},
		{StoreJetStream, "redis://r", StoreJetStream, true},
		{StoreRedis, "redis://r", StoreRedis, true},
		{StoreRedis, "", StoreRedis, false},
	}
	for _, tt := range tests {
		c := Default()
		c.Store, c.Redis.URL = tt.store, tt.redis
		if got := c.StoreKind(); got != tt.want || (c.Check() == nil) != tt.sound {
			t.Errorf("%q, %q: %s, %v", tt.store, tt.redis, got, c.Check())
		}
	}
}

func TestConfig_CheckLooksAtFlags(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Slots, c.NATS.Root, c.NATS.Replicas, c.Log = 0, ".", 9, Log{"x", "y"}
	if err := c.Check(); err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("error %v", err)
	}
}

func TestSecrets_AreNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	c := Default()
	c.NATS.URL = "nats://user:s3cret@a:4222,nats://s3cret@b, s3cret@c:1"
	c.Redis.URL = "rediss://default:p@s3cret@r:6379/0"
	c.Models[0].APIKey = secret
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("config", "config", c, "url", c.NATS.URL, "key", c.Models[0].APIKey)
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	printed := []string{
		log.String(), string(encoded), fmt.Sprint(c.NATS.URL), fmt.Sprint(*c), fmt.Sprintf("%+v", *c), fmt.Sprintf("%#v", *c),
		c.NATS.URL.LogValue().String(), c.Models[0].APIKey.LogValue().String(),
		fmt.Sprintf("%s %q %v", c.Models[0].APIKey, c.Redis.URL, c.Models),
	}
	for _, text := range printed {
		if strings.Contains(text, secret) {
			t.Errorf("printed %s", text)
		}
	}
	if got, want := c.NATS.URL.String(), "nats://xxxxx@a:4222,nats://xxxxx@b, xxxxx@c:1"; got != want {
		t.Errorf("URL %s, want %s", got, want)
	}
	if got := URL("redis://r:6379/0").String(); got != "redis://r:6379/0" {
		t.Errorf("URL %s", got)
	}
	if c.Models[0].APIKey.Reveal() != secret || !strings.Contains(c.NATS.URL.Reveal(), secret) || Secret("").String() != "" {
		t.Error("a secret is lost")
	}
}

// Hot reload watches these.
func TestLoad_FilesAreWatched(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "testdata/desk/agentd.yaml")
	for _, name := range []string{"agentd.yaml", "contracts", "contracts/more/search.json", "prompts/desk.md"} {
		if !slices.Contains(c.Files, filepath.Join("testdata/desk", name)) {
			t.Errorf("%s is not watched", name)
		}
	}
}
