package config

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

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
			"agentd.yaml:2:46: the permissions cannot be used: $.permissions.rules[0].terms: expected identity: required at the top of the configuration, because it depends on who somebody is, got anybody may be anonymous",
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
