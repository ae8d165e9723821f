package config

import (
	"slices"
	"strings"

	"agentd/internal/mcp"
	"agentd/internal/spelling"
	"agentd/internal/strict"
)

// MCP are the MCP servers of the configuration, and what of them is used.
type MCP struct {
	// File is the path of the mcp.json and Data its content; empty where no agent has a server.
	File string `json:"-"`
	Data []byte `json:"-"`
	// Hosts and LocalHosts are those of mcp.Policy, for all remote servers. Policies are by server.
	Hosts      []string              `json:"hosts"`
	LocalHosts []string              `json:"local_hosts"`
	Policies   map[string]mcp.Policy `json:"servers"`
	// Agents are the servers of each agent, by its name, in the order of the file.
	Agents map[string][]string `json:"-"`
}

// defaultMCPFile is where mcp.json is expected, beside agentd.yaml.
const defaultMCPFile = "mcp.json"

// agentServers notes the servers of an agent.
func (l *loader) agentServers(agent string, servers *strict.Node) {
	var names []string
	for _, s := range servers.Items() {
		if slices.Contains(names, s.Text()) {
			l.Faultf(s.Position, "server %q is listed twice", s.Text())
			continue
		}
		names = append(names, s.Text())
		l.servers = append(l.servers, s)
	}
	if len(names) > 0 {
		if l.cfg.MCP.Agents == nil {
			l.cfg.MCP.Agents = map[string][]string{}
		}
		l.cfg.MCP.Agents[agent] = names
	}
}

// checkServers reads the mcp.json, where a server is used, and looks for every server that is named. Variables of the
// environment are left as references: a check may run elsewhere.
func (l *loader) checkServers(n *strict.Node) {
	file := n.Get("file")
	if len(l.servers) == 0 && !file.Present() {
		return
	}
	m, at := &l.cfg.MCP, file.Position
	m.File = l.path(file.Text())
	if !file.Present() {
		m.File, at = l.path(defaultMCPFile), l.servers[0].Position
	}
	var ok bool
	if m.Data, ok = l.readFile(at, m.File); !ok {
		return
	}
	before := l.Count()
	root := l.Parse(m.File, m.Data)
	l.Check(root, mcpForm())
	if l.Count() > before {
		return
	}
	servers, err := mcp.ParseServers(m.Data, func(name string) (string, bool) { return "${env:" + name + "}", true })
	if err != nil {
		l.Note(root, err)
		return
	}
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
		s.Policy = m.Policies[s.Name]
		s.Hosts, s.LocalHosts = m.Hosts, m.LocalHosts
		isUsed := slices.ContainsFunc(l.servers, func(name *strict.Node) bool { return name.Text() == s.Name })
		if isUsed && !strings.Contains(s.URL, "${env:") {
			l.Note(root.Get("mcpServers", s.Name, "url"), s.Check())
		}
	}
	for _, name := range l.servers {
		if !slices.Contains(names, name.Text()) {
			l.Faultf(name.Position, "%s has no MCP server %q%s", m.File, name.Text(), spelling.Suggest(name.Text(), names))
		}
	}
	for _, policy := range n.Get("servers").Items() {
		if !slices.Contains(names, policy.Name) {
			l.Faultf(policy.Key, "%s has no MCP server %q%s", m.File, policy.Name, spelling.Suggest(policy.Name, names))
		}
	}
}
