package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/datafolder"
)

// Runs that ended by a limit go on when they are retried: those that are named, or that ended for a reason, or lately.
func TestRunsRetry_TakesUpRunsThatEnded(t *testing.T) {
	config, script := coldProject(t, "")
	s := startDev(t, config, script)
	for _, name := range []string{"one", "two", "three"} {
		_, problem := s.expect(cli.ExitRun, "run", "planner", "-m", "Lisbon", "--subject", name)
		contains(t, problem, "no answer within 1 interactions")
	}
	_, problem := s.expect(cli.ExitUsage, "runs", "retry")
	contains(t, problem, "name the runs, or say which with --reason, --failed, --since, --agent or --tag")
	for flag, want := range map[string]string{"--tag=tenant=": "--tag tenant=: it has no value", "--since=-1h": `--since: "-1h" is not a duration`} {
		_, problem = s.expect(cli.ExitUsage, "runs", "retry", "--agent", "planner", flag)
		contains(t, problem, want)
	}

	for _, format := range []string{cli.OutputText, cli.OutputJSON} {
		_, problem = s.expect(cli.ExitOK, "runs", "list", "--limit", "2", "-o", format)
		contains(t, problem, "there are more; see --limit")
	}

	out, _ := s.expect(cli.ExitOK, "runs", "retry", "--reason", "interactions", "--since", "1h", "--agent", "planner", "--dry-run")
	contains(t, out, "one    planner  ", "two    planner  ", "three  planner  ", "quota:interactions", "would be retried")
	for _, none := range [][]string{{"--reason", "model_failed"}, {"--agent", "somebody"}, {"--since", "1ns"}} {
		if out, _ := s.expect(cli.ExitOK, append([]string{"runs", "retry"}, none...)...); out != "no run ended like that\n" {
			t.Errorf("retry %v prints %q", none, out)
		}
	}

	out, _ = s.expect(cli.ExitOK, "runs", "retry", "two")
	contains(t, out, "two  planner  ", "quota:interactions", "retried")
	out, _ = s.expect(cli.ExitOK, "runs", "follow", "two")
	contains(t, out, "Planned.")
	out, problem = s.expect(cli.ExitFailure, "runs", "retry", "two", "-o", "json")
	contains(t, out, `"state": "not retried"`, "only runs that ended with error, quota or deadline can be retried")
	contains(t, problem, "1 run not retried")
	_, problem = s.expect(cli.ExitFailure, "runs", "retry", "four")
	contains(t, problem, `run "four" does not exist`)

	out, _ = s.expect(cli.ExitOK, "runs", "retry", "--reason", "quota")
	contains(t, out, "one    planner  ", "three  planner  ", "retried")
	for _, name := range []string{"one", "three"} {
		out, _ = s.expect(cli.ExitOK, "runs", "follow", name)
		contains(t, out, "Planned.")
	}
}

// What an operator asks of a run and workers refuse is said to be refused, and why, not that it is requested.
func TestRunsRetry_SaysThatItIsRefused(t *testing.T) {
	dir := t.TempDir()
	config, anybody, script := filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "anybody.yaml"), filepath.Join(dir, "script.yaml")
	const agents = `agents:
  - name: planner
    model: {name: gpt-4o-mini}
    tools:
      builtin: [update_plan]
      undo:
        update_plan: {tool: update_plan, args: {goal: "not {{.Args.goal}}", steps: [{description: "stay"}]}}
    stop: {interactions: 1}
`
	write(t, config, "identity: required\n"+agents)
	write(t, anybody, agents)
	write(t, script, `conversations:
  - replies:
      - calls: [{name: update_plan, arguments: {goal: "Lisbon", steps: [{description: "fly"}]}}]
`)
	s := startDev(t, config, script)
	s.expect(cli.ExitRun, "run", "planner", "-m", "Lisbon", "--subject", "trip", "--as", "ann")
	address, err := datafolder.ReadAddress(s.data)
	if err != nil {
		t.Fatal(err)
	}
	nobody := &system{t: t, config: anybody, data: t.TempDir()}

	const why = "the subject of the message names no principal"
	out, problem := nobody.expect(cli.ExitFailure, "runs", "retry", "trip", "--nats", address)
	contains(t, out, "not retried: "+why)
	contains(t, problem, "1 run not retried")
	_, problem = nobody.expect(cli.ExitFailure, "runs", "undo", "trip", "--nats", address)
	contains(t, problem, why)
	out, _ = s.expect(cli.ExitOK, "runs", "show", "trip")
	contains(t, out, "done (quota)")
}
