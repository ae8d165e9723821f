package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// Runs that ended by a limit go on when they are retried: those that are named, or that ended for a reason, or lately.
func TestRunsRetry_TakesUpRunsThatEnded(t *testing.T) {
	dir := t.TempDir()
	config, script := filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml")
	write(t, config, `agents:
  - name: planner
    model: {name: gpt-4o-mini}
    tools: {builtin: [update_plan]}
    stop: {interactions: 1}
`)
	write(t, script, `conversations:
  - replies:
      - calls: [{name: update_plan, arguments: {goal: "Lisbon", steps: [{text: "fly", status: pending}]}}]
      - {text: '{"response": "Planned."}'}
`)
	s := startDev(t, config, script)
	for _, name := range []string{"one", "two", "three"} {
		_, problem := s.expect(cli.ExitRun, "run", "planner", "-m", "Lisbon", "--subject", name)
		contains(t, problem, "no answer within 1 interactions")
	}
	_, problem := s.expect(cli.ExitUsage, "runs", "retry")
	contains(t, problem, "name the runs, or say which with --reason, --since or --agent")

	out, _ := s.expect(cli.ExitOK, "runs", "retry", "--reason", "interactions", "--since", "1h", "--agent", "planner", "--dry-run")
	contains(t, out, "one   ", "two   ", "three   ", "quota:interactions", "would be retried")
	for _, none := range [][]string{{"--reason", "model_failed"}, {"--agent", "somebody"}, {"--since", "1ns"}} {
		if out, _ := s.expect(cli.ExitOK, append([]string{"runs", "retry"}, none...)...); out != "no run ended like that\n" {
			t.Errorf("retry %v prints %q", none, out)
		}
	}

	out, _ = s.expect(cli.ExitOK, "runs", "retry", "two")
	contains(t, out, "two   ", "quota:interactions", "retried")
	out, _ = s.expect(cli.ExitOK, "runs", "follow", "two")
	contains(t, out, "Planned.")
	out, problem = s.expect(cli.ExitFailure, "runs", "retry", "two", "-o", "json")
	contains(t, out, `"state": "not retried"`, "only runs that ended with error, quota or deadline can be retried")
	contains(t, problem, "1 run not retried")
	_, problem = s.expect(cli.ExitFailure, "runs", "retry", "four")
	contains(t, problem, `run "four" does not exist`)

	out, _ = s.expect(cli.ExitOK, "runs", "retry", "--reason", "quota")
	contains(t, out, "one   ", "three   ", "retried")
	for _, name := range []string{"one", "three"} {
		out, _ = s.expect(cli.ExitOK, "runs", "follow", name)
		contains(t, out, "Planned.")
	}
}
