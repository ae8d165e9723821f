// Package mcp is agentd mcp: agents as tools of MCP hosts.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/httpguard"
	"agentd/internal/mcp"
	"agentd/sdk"
)

// mcpToken is the environment variable with the token that requests over HTTP must bear.
const mcpToken = "AGENTD_MCP_TOKEN" //nolint:gosec // the name of a variable, not a secret

type mcpFlags struct {
	http string
	wait time.Duration
}

// Command is agentd mcp.
func Command(a *cli.App) *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer the configured agents as tools to an MCP host",
		Long: "mcp is an MCP server on stdin and stdout, or with --http on streamable HTTP, whose tools are the agents of the\n" +
			"configuration, with the schemas of their contracts. It is a client of NATS: workers (agentd serve, agentd dev) run\n" +
			"the agents, and no run ends with its host. A run that takes longer than --wait, or waits for a person, is answered\n" +
			"with its handle; the tools run_result and run_cancel take that. Over HTTP a token in " + mcpToken + " is what\n" +
			"requests must bear; without it only loopback addresses are served.",
		Example: "  agentd mcp -c agentd.yaml\n  " + mcpToken + "=… agentd mcp --http :8090",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), a, f) },
	}
	cmd.Flags().StringVar(&f.http, "http", "", "address to serve streamable HTTP on, such as 127.0.0.1:8090")
	cli.DurationVar(cmd.Flags(), &f.wait, "wait", 50*time.Second, "how long a call waits for its run's end")
	return cmd
}

func serve(ctx context.Context, a *cli.App, f mcpFlags) error {
	cfg, err := a.WithAgents()
	if err != nil {
		return err
	}
	logger, err := a.Logger(cfg)
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	offered, err := agentTools(cfg)
	if err != nil {
		return c.CloseAfter(err)
	}
	agents, err := mcp.NewAgents(mcp.AgentsOptions{
		Agents: offered, Runs: &mcpRuns{c}, Wait: f.wait, Version: cli.BuildVersion().Version, Logger: logger,
	})
	switch {
	case err != nil:
	case f.http != "":
		err = serveHTTP(ctx, a, agents, f.http)
	default:
		err = agents.ServeStdio(ctx, a.In, a.Out)
	}
	return c.CloseAfter(err)
}

// agentTools are the configured agents with the schemas of their contracts.
func agentTools(cfg *config.Config) ([]mcp.AgentTool, error) {
	var tools []mcp.AgentTool
	for _, spec := range cfg.Agents {
		version, err := contracts.CompileVersion(spec.Contract, spec.Version)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", spec.Name, err)
		}
		tool := mcp.AgentTool{Agent: spec.Name, Description: spec.Description, Accepts: version.Accepts.Raw()}
		if tool.Description == "" {
			tool.Description = spec.Contract.Description
		}
		for _, emits := range version.Emits {
			tool.Emits = emits.Raw() // an agent has exactly one
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

func serveHTTP(ctx context.Context, a *cli.App, agents *mcp.Agents, address string) error {
	token := os.Getenv(mcpToken)
	if token != "" {
		if err := httpguard.CheckToken(mcpToken, token); err != nil {
			return err
		}
	}
	l, err := httpguard.Open(ctx, address)
	if err != nil {
		return err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); token == "" && (!ok || !tcp.IP.IsLoopback()) {
		return errors.Join(sdk.Errorf(sdk.CodeConfig, "%s is reached from elsewhere, so %s must have a token that requests bear", address, mcpToken), l.Close())
	}
	// An answer may take as long as a run does; nothing else may.
	server := httpguard.Server(agents.Handler(token), 0)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	fmt.Fprintf(a.Err, "agentd: agents are MCP tools at http://%s/\n", l.Addr())
	var closed error
	select {
	case err = <-failed:
	case <-ctx.Done():
		closed = server.Close() // runs go on; their calls can be made again
		err = <-failed
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, closed)
}
