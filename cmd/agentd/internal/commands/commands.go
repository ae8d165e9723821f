// Package commands lists the commands of agentd.
package commands

import (
	"github.com/spf13/cobra"

	"agentd/cmd/agentd/agents"
	"agentd/cmd/agentd/approvals"
	"agentd/cmd/agentd/audit"
	"agentd/cmd/agentd/bench"
	"agentd/cmd/agentd/bulk"
	"agentd/cmd/agentd/capacity"
	"agentd/cmd/agentd/check"
	"agentd/cmd/agentd/conformance"
	"agentd/cmd/agentd/console"
	"agentd/cmd/agentd/contracts"
	"agentd/cmd/agentd/dev"
	"agentd/cmd/agentd/dlq"
	"agentd/cmd/agentd/doctor"
	"agentd/cmd/agentd/eval"
	"agentd/cmd/agentd/events"
	"agentd/cmd/agentd/healthcheck"
	"agentd/cmd/agentd/initialize"
	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/keys"
	"agentd/cmd/agentd/mcp"
	"agentd/cmd/agentd/mockllm"
	"agentd/cmd/agentd/natscallout"
	"agentd/cmd/agentd/natsconfig"
	"agentd/cmd/agentd/provision"
	"agentd/cmd/agentd/reconcile"
	"agentd/cmd/agentd/run"
	"agentd/cmd/agentd/runs"
	"agentd/cmd/agentd/schema"
	"agentd/cmd/agentd/serve"
	"agentd/cmd/agentd/version"
)

// All returns them in the order in which docs/cli.md has them.
func All() []func(*cli.App) *cobra.Command {
	return []func(*cli.App) *cobra.Command{
		initialize.Command, dev.Command, serve.Command, run.Command, runs.Command, bulk.Command, agents.Command, approvals.Command, console.Command, dlq.Command, audit.Command,
		reconcile.Command, provision.Command, capacity.Command, bench.Command, natsconfig.Command, natscallout.Command, events.Command, check.Command, contracts.Command, conformance.Command, schema.Command,
		doctor.Command, eval.Command, healthcheck.Command, keys.Command, mockllm.Command, mcp.Command, version.Command,
	}
}
