// Command agentd runs LLM agents as durable services on NATS JetStream. A folder has the command of its name.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/commands"
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
	return cli.Run(ctx, args, s, commands.All()...)
}
