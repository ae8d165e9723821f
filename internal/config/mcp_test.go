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
