package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/mcp"
)

const mcpConfig = `
mcp:
  hosts: [mcp.example.com]
  local_hosts: [box]
  servers:
    files: {allow: ["read_*"], deny: [read_secret], at_most_once: [write], timeout: 30s, required: true}
agents:
  - name: a
    model: {name: m}
    tools: {mcp: [search, files]}
    stop_on: [files_write]
    stop: {tools: [search_done]}
`

const mcpServers = `{"mcpServers": {
	"files": {"command": "files", "args": ["${env:ROOT}"]},
	"search": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
	"elsewhere": {"url": "https://unused.example.com/"},
	"anywhere": {"url": "https://${env:HOST}/"}
}}`

func TestLoad_ServersOfAgents(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, write(t, map[string]string{"agentd.yaml": mcpConfig, "mcp.json": mcpServers})).MCP
	if !strings.HasSuffix(got.File, "mcp.json") || string(got.Data) != mcpServers {
		t.Errorf("%s has %s", got.File, got.Data)
	}
	got.File, got.Data = "", nil
	want := MCP{
		Hosts: []string{"mcp.example.com"}, LocalHosts: []string{"box"},
		Policies: map[string]mcp.Policy{"files": {
			Allow: []string{"read_*"}, Deny: []string{"read_secret"}, AtMostOnce: []string{"write"}, Timeout: 30 * time.Second, Required: true,
		}},
		Agents: map[string][]string{"a": {"search", "files"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoad_RefusesServersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, to, servers, fault string }{
		"unknown":       {"mcp: [search, files]", "mcp: [search, file]", mcpServers, `agentd.yaml:10:27: `},
		"no policy's":   {"    files: {allow", "    fils: {allow", mcpServers, `no MCP server "fils"; there is anywhere, elsewhere, files, search`},
		"twice":         {"[search, files]", "[search, files, files]", mcpServers, `server "files" is listed twice`},
		"host":          {"[mcp.example.com]", "[]", mcpServers, "mcp.json: MCP server search: the host mcp.example.com is not allowed"},
		"empty pattern": {`["read_*"]`, `[""]`, mcpServers, "MCP server files: a pattern of tools is empty"},
		"no JSON":       {"", "", "{", "mcp.json: "},
		"no servers":    {"", "", "{}", "has no mcpServers"},
		"no address":    {"", "", `{"mcpServers": {"files": {}, "search": {"type": "sse"}}}`, "a command, or a url"},
		"stop":          {"files_write", "fil_write", mcpServers, `"fil_write" is no tool of the agent`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, map[string]string{"agentd.yaml": strings.Replace(mcpConfig, c.change, c.to, 1), "mcp.json": c.servers})
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("error %v, want %q", err, c.fault)
			}
		})
	}
	_, err := Load(write(t, map[string]string{"agentd.yaml": mcpConfig}))
	if err == nil || !strings.Contains(err.Error(), "agentd.yaml:10:19") || !strings.Contains(err.Error(), "mcp.json") {
		t.Errorf("without the file: %v", err)
	}
}
