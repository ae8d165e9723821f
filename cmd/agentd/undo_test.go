package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// What a run has done that ended is shown, and undone when somebody wants that: once.
func TestRunsUndo_UndoesWhatARunDid(t *testing.T) {
	dir := t.TempDir()
	config, script := filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml")
	write(t, config, `agents:
  - name: planner
    model: {name: gpt-4o-mini}
    tools:
      builtin: [update_plan]
      undo:
        update_plan: {tool: update_plan, args: {goal: "not {{.Args.goal}}", steps: [{description: "stay"}]}}
    stop: {interactions: 1}
`)
	write(t, script, `conversations:
  - replies:
      - calls: [{name: update_plan, arguments: {goal: "Lisbon", steps: [{description: "fly"}]}}]
`)
	s := startDev(t, config, script)
	s.expect(cli.ExitRun, "run", "planner", "-m", "Lisbon", "--subject", "trip")
	out, _ := s.expect(cli.ExitOK, "runs", "show", "trip")
	contains(t, out, "can be undone, with: agentd -c "+config+" --data "+s.data+" runs undo trip\n", "update_plan  c1-0-")

	out, _ = s.expect(cli.ExitOK, "runs", "undo", "trip", "--dry-run")
	contains(t, out, "would be undone", "update_plan  c1-0-")
	_, problem := s.expect(cli.ExitFailure, "runs", "undo", "trip", "--call", "c9-9")
	contains(t, problem, `run trip has no call "c9-9" that can be undone`)
	out, _ = s.expect(cli.ExitOK, "runs", "undo", "trip", "--call", "c1-0")
	contains(t, out, "undone\n", "update_plan  c1-0-")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "trip")
	contains(t, out, "done (undone: all)", `update_plan {"goal":"not Lisbon"`, "all calls that were to be undone are undone: 1")

	_, problem = s.expect(cli.ExitFailure, "runs", "undo", "trip")
	contains(t, problem, "run trip, which is done, has no call that can be undone")
	_, problem = s.expect(cli.ExitFailure, "runs", "retry", "trip")
	contains(t, problem, "1 run not retried")
}
