package main

import (
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
)

// A console that keeps the index of runs answers runs list, and uses its file again after a restart; two cannot share one.
func TestRunsList_AsksWhoeverHasTheIndex(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script, "--console", "off")
	s.expect(cli.ExitOK, "run", "chat", "-m", "Two nights in Lisbon", "--subject", "done", "--tag", "tenant=acme", "--answer", follow.EndWord)
	s.expect(cli.ExitOK, "run", "chat", "-m", "A week in Porto", "--subject", "begun", "--tag", "tenant=acme", "--detach")
	s.expect(cli.ExitOK, "run", "chat", "-m", "Porto again", "--subject", "other", "--tag", "tenant=other", "--detach")
	s.waiting("begun")
	s.waiting("other")

	names := func(args ...string) string {
		t.Helper()
		out, _ := s.expect(cli.ExitOK, append([]string{"runs", "list"}, args...)...)
		var names []string
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); fields[0] != "RUN" {
				names = append(names, fields[0])
			}
		}
		return strings.Join(names, " ")
	}
	selects := func() {
		t.Helper()
		for _, test := range []struct{ args, want string }{
			{"", "other begun done"},
			{"--limit=1", "other"},
			{"--status=waiting", "other begun"},
			{"--tag=tenant=acme", "begun done"},
			{"--reason=stopped", "done"},
			{"--reason=model_failed", "no"},
			{"--failed", "no"},
			{"--since=1ns", "no"},
			{"--since=1h|--agent=chat", "other begun done"},
			{"tag.tenant:acme -status:done", "begun"},
			{"status:waiting|--tag=tenant=other", "other"},
			{"porto", "other begun"},
			{"Lisbon", "done"},
			{"started<-1h", "no"},
			{"waits:turn|tag.tenant:acme", "begun"},
		} {
			if got := names(strings.FieldsFunc(test.args, func(r rune) bool { return r == '|' })...); got != test.want {
				t.Errorf("runs list %s: %q, want %q", test.args, got, test.want)
			}
		}
	}
	selects() // by reading the store

	file := filepath.Join(t.TempDir(), "runs.db")
	stop := s.console("--index", file)
	s.holds("the runs from before the index are in it", func() bool {
		s.expect(cli.ExitOK, "reconcile", "--older-than", "1s")
		return names() == "other begun done"
	})
	selects()
	_, note := s.expect(cli.ExitOK, "runs", "list")
	contains(t, note, "the index of runs was made when there were runs already")
	code, _, problem := s.agentd("console", "--http", "127.0.0.1:0", "--index", file)
	if code != cli.ExitUsage {
		t.Errorf("a second console on the file exits with %d", code)
	}
	contains(t, problem, "another program uses the index of runs at "+file+"; give each its own file")
	stop()
	stop = s.console("--index", file)
	selects()
	stop()
	_, problem = s.expect(cli.ExitUsage, "runs", "list", "state:done", "waits:nothing")
	contains(t, problem, `the key "state" is not known`, "waits is service")
	_, problem = s.expect(cli.ExitUsage, "runs", "list", "--status", "refused", "--failed")
	contains(t, problem, "runs that never began can be listed by --agent only")
}
