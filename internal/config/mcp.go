package config

import (
	"slices"
	"strings"
	"time"

	"agentd/internal/config/strict"
	"agentd/internal/mcp"
	"agentd/sdk"
)

// MCP are the MCP servers of the configuration, and what of them is used.
type MCP struct {
	// File is the path of the mcp.json and Data its content; empty where no agent has a server.
	File string
	Data []byte
	// Hosts and LocalHosts are those of mcp.Policy, for all remote servers. Policies are by server.
	Hosts, LocalHosts []string
	Policies          map[string]mcp.Policy
	// Agents are the servers of each agent, by its name, in the order of the file.
	Agents map[string][]string
}

type mcpFile struct {
	File       words                            `yaml:"file"`
	Hosts      []words                          `yaml:"hosts"`
	LocalHosts []words                          `yaml:"local_hosts"`
	Servers    strict.Entries[serverPolicyFile] `yaml:"servers"`
}

type serverPolicyFile struct {
	Allow      []words  `yaml:"allow"`
	Deny       []words  `yaml:"deny"`
	AtMostOnce []words  `yaml:"at_most_once"`
	Timeout    duration `yaml:"timeout"`

	Required strict.Value[bool] `yaml:"required"`
}

// defaultMCPFile is where mcp.json is expected, beside agentd.yaml.
const defaultMCPFile = "mcp.json"

// mcp reads what the file says of MCP servers, before the agents that use them.
func (l *loader) mcp(f *mcpFile) {
	m := &l.cfg.MCP
	m.Hosts, m.LocalHosts = texts(f.Hosts), texts(f.LocalHosts)
	l.mcpFile = f.File
	if len(f.Servers) > 0 {
		m.Policies = map[string]mcp.Policy{}
	}
	for _, s := range f.Servers {
		l.mcpPolicies = append(l.mcpPolicies, s.Key)
		m.Policies[s.Key.V] = mcp.Policy{
			Allow: texts(s.Value.Allow), Deny: texts(s.Value.Deny), AtMostOnce: texts(s.Value.AtMostOnce),
			Timeout: time.Duration(l.millis(s.Value.Timeout)) * time.Millisecond, Required: s.Value.Required.V,
		}
	}
}

// agentServers notes the servers of an agent.
func (l *loader) agentServers(f *agentFile) {
	names := l.cfg.MCP.Agents[f.Name.V]
	for _, name := range f.Tools.MCP {
		if slices.Contains(names, name.V) {
			l.Faultf(name.Position, "tools.mcp: server %q is listed twice", name.V)
			continue
		}
		names = append(names, name.V)
		l.mcpUses = append(l.mcpUses, name)
	}
	if len(names) > 0 && l.cfg.MCP.Agents == nil {
		l.cfg.MCP.Agents = map[string][]string{}
	}
	if len(names) > 0 {
		l.cfg.MCP.Agents[f.Name.V] = names
	}
}

// checkServers reads the mcp.json, where a server is used, and looks for every server that is named. Variables of the
// environment are left as references: a check may run elsewhere.
func (l *loader) checkServers() {
	if len(l.mcpUses) == 0 && !l.mcpFile.Present() {
		return
	}
	at := l.mcpFile.Position
	if !l.mcpFile.Present() {
		at = l.mcpUses[0].Position
	}
	m := &l.cfg.MCP
	m.File = l.path(l.mcpFile.Or(defaultMCPFile))
	var ok bool
	if m.Data, ok = l.readFile(at, m.File); !ok {
		return
	}
	servers, err := mcp.ParseServers(m.Data, func(name string) (string, bool) { return "${env:" + name + "}", true })
	if err != nil {
		e := sdk.AsError(err)
		for _, fault := range e.Faults {
			l.Faultf(strict.Position{File: m.File}, "%s", fault)
		}
		if len(e.Faults) == 0 {
			l.Faultf(strict.Position{File: m.File}, "%s", e.Message)
		}
		return
	}
	for _, s := range servers {
		s.Policy = m.Policies[s.Name]
		s.Hosts, s.LocalHosts = m.Hosts, m.LocalHosts
		isUsed := slices.ContainsFunc(l.mcpUses, func(name words) bool { return name.V == s.Name })
		if isUsed && !strings.Contains(s.URL, "${env:") {
			l.Note(strict.Position{File: m.File}, s.Check())
		}
	}
	for _, name := range slices.Concat(l.mcpUses, l.mcpPolicies) {
		if !slices.ContainsFunc(servers, func(s mcp.ServerConfig) bool { return s.Name == name.V }) {
			l.Faultf(name.Position, "%s has no MCP server %q; there is %s", m.File, name.V, serverNames(servers))
		}
	}
}

func serverNames(servers []mcp.ServerConfig) string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// usesServerOf reports whether a tool's name is of one of the agent's servers, whose tools are known only when it is
// connected.
func (f *agentFile) usesServerOf(tool string) bool {
	return slices.ContainsFunc(f.Tools.MCP, func(s words) bool { return strings.HasPrefix(tool, s.V+"_") })
}
