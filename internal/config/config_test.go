package config

import (
	"encoding/json"
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
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/contracts"
	"agentd/internal/strict"
	"agentd/sdk"
)

// withoutPlaces compares configurations, wherever they were read from.
var withoutPlaces = cmpopts.IgnoreUnexported(Config{})

var update = flag.Bool("update", false, "rewrite the golden files")

func mustLoad(t testing.TB, path string) *Config {
	t.Helper()
	c, err := Load(path)
	if err == nil {
		err = c.CheckTools()
	}
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
		Settings: Settings{
			NATS: NATS{
				URL: "nats://user:s3cret@localhost:4222", Creds: "testdata/desk/secrets/nats.creds", Root: "desk", Replicas: 3, AnswersAge: sdk.DefaultAnswersAge,
			},
			Redis: Redis{URL: "redis://:s3cret@localhost:6379/0", ReplicaTimeout: time.Second},
			Store: StoreJetStream, Entries: EntriesPacked, Data: "testdata/desk/state", Slots: 8, Log: Log{"debug", "json"},
			Reconcile: Reconcile{Interval: 10 * time.Minute, OlderThan: 2 * time.Minute, FullInterval: 24 * time.Hour}, Retention: Retention{History: 90 * 24 * time.Hour, Calls: sdk.DefaultCallsKept},
			Console: Console{OIDC{Scopes: []string{"profile"}, Principal: "preferred_username", Groups: "groups"}},
		},
		Models: []Provider{
			{Name: "anthropic", Protocol: "anthropic", APIKeyEnv: "ANTHROPIC_API_KEY"},
			{Name: "local", BaseURL: "http://localhost:11434/v1", APIKeyEnv: "LOCAL_KEY"},
			{Name: "openai", APIKeyEnv: "OPENAI_API_KEY"},
		},
		Agents: c.Agents, Contracts: c.Contracts, Domains: []string{"airline", "eu", "human.interaction", "us"},
	}
	if diff := cmp.Diff(want, c, withoutPlaces); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	var types []string
	for _, contract := range c.Contracts {
		types = append(types, contract.Type)
	}
	wantTypes := []string{
		"agentd.conversation.turn", "agentd.permission.request", "agentd.plan.review", "agentd.question.ask", "airline.book", "airline.search", "plain",
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
			Terms: sdk.PermissionPolicyTerms{RemindMillis: 4 * 3600_000},
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
		"agentd:/agent/weather1.0.00 0 [] 1",
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
	if weather.Contract.URI != "agentd:/agent/weather" || weather.Contract.Type != "weather" || weather.Version != "1.0.0" ||
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

// Loading the same files twice gives the same digests: a restart does not make a new version of an agent.
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
		{strict.Position{File: path, Line: 7, Column: 22}, "a", "far.away", "^1", ""},
		{strict.Position{File: path, Line: 9, Column: 22}, "a", "https://example.com/far", "latest", ""},
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
    tools: {mcp: , services: , builtin: []}
    stop_on: []
    limits:
`})
	c := mustLoad(t, path)
	want := defaults(path)
	want.Files, want.Agents, want.Contracts, want.Domains = c.Files, c.Agents, c.Contracts, []string{sdk.HumanDomain}
	if diff := cmp.Diff(want, c, withoutPlaces); diff != "" {
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

func TestConfig_SetPutsFlagsOverAll(t *testing.T) {
	t.Parallel()
	c := Default()
	for key, value := range map[string]string{"data": "d", "nats.url": "nats://f", "reconcile.older_than": "2m", "slots": ""} {
		if err := c.Set("--flag", key, value); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	want := Default()
	want.Data, want.NATS.URL, want.Reconcile.OlderThan = "d", "nats://f", 2*time.Minute
	if diff := cmp.Diff(want, c, withoutPlaces); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const fault = `--older-than: reconcile.older_than: expected a duration of at least 1s, such as 30s, 15m, 72h or 30d, got string "1ms"`
	if err := c.Set("--older-than", "reconcile.older_than", "1ms"); err == nil || err.Error() != fault {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(want, c, withoutPlaces); diff != "" {
		t.Errorf("a refused value was taken:\n%s", diff)
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
	if got, want := c.NATS.URL.String(), "nats://***@a:4222,nats://***@c:1"; got != want {
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

// What is saved after a file was read, however soon, is seen: a program that follows the files would else keep the former ones.
func TestStamp_IsThatOfTheFilesBeforeTheyWereRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{}")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if now := Stamp(c.Files); c.Stamp() != now || now == "" {
		t.Errorf("nothing was saved, and the stamp %q is not %q", c.Stamp(), now)
	}
	write("slots: 7")
	if now := Stamp(c.Files); c.Stamp() == now {
		t.Errorf("a save is not seen: %q", now)
	}
}
