// Command agentd runs LLM agents as durable services on NATS JetStream. A folder has the command of its name.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"agentd/cmd/agentd/agents"
	"agentd/cmd/agentd/approvals"
	"agentd/cmd/agentd/audit"
	"agentd/cmd/agentd/check"
	"agentd/cmd/agentd/contracts"
	"agentd/cmd/agentd/dev"
	"agentd/cmd/agentd/dlq"
	"agentd/cmd/agentd/doctor"
	"agentd/cmd/agentd/events"
	"agentd/cmd/agentd/healthcheck"
	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/keys"
	"agentd/cmd/agentd/mcp"
	"agentd/cmd/agentd/mockllm"
	"agentd/cmd/agentd/natsconfig"
	"agentd/cmd/agentd/provision"
	"agentd/cmd/agentd/reconcile"
	"agentd/cmd/agentd/run"
	"agentd/cmd/agentd/runs"
	"agentd/cmd/agentd/schema"
	"agentd/cmd/agentd/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := execute(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// execute executes the command line and returns the exit code.
func execute(ctx context.Context, args []string, s cli.Streams) int {
	return cli.Run(
		ctx, args, s, dev.Command, serve.Command, run.Command, runs.Command, agents.Command, approvals.Command, dlq.Command,
		audit.Command, reconcile.Command, provision.Command, natsconfig.Command, events.Command, check.Command,
		contracts.Command, schema.Command, doctor.Command, healthcheck.Command, keys.Command, mockllm.Command, mcp.Command, versionCommand,
	)
}
