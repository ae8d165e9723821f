package setup

import (
	"errors"
	"log/slog"
	"os"

	"agentd/internal/config"
	"agentd/internal/mcp"
	"agentd/sdk"
)

// WithServers gives agents the toolsets of their MCP servers. Agents share what is connected.
func WithServers(cfg *config.Config, agents []sdk.Agent, logger *slog.Logger) ([]sdk.Agent, error) {
	if len(cfg.MCP.Agents) == 0 {
		return agents, nil
	}
	servers, err := mcp.ParseServers(cfg.MCP.Data, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	toolsets := map[string]sdk.Toolset{}
	var faults []error
	for _, s := range servers {
		if !used(cfg, s.Name) {
			continue
		}
		s.Policy = cfg.MCP.Policies[s.Name]
		s.Hosts, s.LocalHosts = cfg.MCP.Hosts, cfg.MCP.LocalHosts
		toolset, err := mcp.NewServer(s, logger)
		if err != nil {
			faults = append(faults, err)
		}
		toolsets[s.Name] = toolset
	}
	for i := range agents {
		for _, name := range cfg.MCP.Agents[agents[i].Spec.Name] {
			agents[i].Toolsets = append(agents[i].Toolsets, toolsets[name])
		}
	}
	return agents, errors.Join(faults...)
}

func used(cfg *config.Config, server string) bool {
	for _, names := range cfg.MCP.Agents {
		for _, name := range names {
			if name == server {
				return true
			}
		}
	}
	return false
}
