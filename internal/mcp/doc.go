// Package mcp makes the tools of MCP servers tools of agents, and agents tools of MCP hosts (docs/mcp.md).
package mcp
