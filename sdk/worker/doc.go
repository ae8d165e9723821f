// Package worker runs agents in your own program, so that they can have hooks and tools written in Go. It is what
// `agentd serve` is made of.
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		o := worker.FromEnvironment()
//		o.Agents = []sdk.Agent{desk}
//		if err := worker.Run(ctx, o); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// Any number of workers, of any number of programs, may serve the same agents: they share the runs. A run that waits is
// in nobody's memory, and the next event for it may go to any of them. A run keeps the agent it started with, but its
// hooks are those of the worker; a run whose hook or tool a worker does not have is left to one that has it.
//
// Hooks and tools may be called again for the same step after a crash. A tool with effects of its own makes them once
// for each sdk.ToolCall.ID, or sets AtMostOnce.
package worker
