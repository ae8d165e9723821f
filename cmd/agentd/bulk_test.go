package main

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
)

// A job is proposed, confirmed with its number, carried out and looked at; the index says which runs it is about.
func TestBulk_CancelsWhatAFilterSelects(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	for _, name := range []string{"one", "two"} {
		s.expect(cli.ExitOK, "run", "chat", "-m", "Lisbon", "--subject", name, "--tag", "tenant=acme", "--detach")
		s.waiting(name)
	}
	s.expect(cli.ExitOK, "run", "chat", "-m", "Lisbon", "--subject", "other", "--detach")
	s.waiting("other")

	_, problem := s.expect(cli.ExitUsage, "bulk", "cancel")
	contains(t, problem, "say which runs: the filter is empty; run:* is all of them")
	_, problem = s.expect(cli.ExitUsage, "bulk", "message", "run:*", "--rate", "5000")
	contains(t, problem, "a message has 1 to 65536 bytes, not 0", "the rate is 1 to 1000 runs a second, not 5000")
	_, problem = s.expect(cli.ExitUsage, "bulk", "cancel", "--status", "dne")
	contains(t, problem, `character 8: status is running, waiting, done, not "dne"`)
	out, _ := s.expect(cli.ExitOK, "bulk", "cancel", "tag.tenant:nobody")
	contains(t, out, "runs    0")

	out, _ = s.expect(cli.ExitOK, "bulk", "cancel", "--tag", "tenant=acme", "--text", "no time", "-o", "json")
	var job struct {
		ID, State, Filter string
		Runs              int
		Samples           []string
	}
	if err := json.Unmarshal([]byte(out), &job); err != nil || job.State != "proposed" || job.Runs != 2 || len(job.Samples) != 2 || job.Filter != "tag.tenant:acme -status:done" {
		t.Fatalf("%v in %s", err, out)
	}
	_, problem = s.expect(cli.ExitFailure, "bulk", "continue", job.ID, "--yes", "3")
	contains(t, problem, "has 2 runs, not 3")
	_, problem = s.expect(cli.ExitUsage, "bulk", "continue", job.ID)
	contains(t, problem, "bulk job "+job.ID+" is proposed; look at it, and confirm it with its number: agentd", "bulk show "+job.ID)
	out, _ = s.expect(cli.ExitOK, "bulk", "list")
	contains(t, out, "JOB ", job.ID, "cancel", "proposed", "2 runs")
	out, progress := s.expect(cli.ExitOK, "bulk", "continue", job.ID, "--yes", "2")
	contains(t, out, "finished", "so far  2 asked")
	contains(t, progress, "2 of 2 runs: 2 asked")
	for _, name := range []string{"one", "two"} {
		_, problem = s.expect(cli.ExitRun, "runs", "follow", name)
		contains(t, problem, "bulk job "+job.ID+" of ", ": no time")
	}
	out, _ = s.expect(cli.ExitOK, "bulk", "show", job.ID)
	contains(t, out, "asked   one", "asked   two")
	_, problem = s.expect(cli.ExitFailure, "bulk", "continue", job.ID)
	contains(t, problem, "is finished")
	_, problem = s.expect(cli.ExitFailure, "bulk", "show", "nothing")
	contains(t, problem, `there is no bulk job "nothing"`)
	out, _ = s.expect(cli.ExitOK, "runs", "list", "--status", "waiting")
	if contains(t, out, "other"); strings.Contains(out, "one") {
		t.Errorf("%s", out)
	}
}

// What a run did is removed when somebody wants that, and a run that goes on is left alone.
func TestRunsPurge_RemovesWhatARunDid(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "My secret is xyzzy", "--subject", "one", "--answer", follow.EndWord)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "two", "--detach")
	s.waiting("two")
	_, problem := s.expect(cli.ExitUsage, "runs", "purge", "one")
	contains(t, problem, "purge removes what the run did for good; say so with --yes")
	_, problem = s.expect(cli.ExitFailure, "runs", "purge", "two", "--yes")
	contains(t, problem, "run two is waiting; only the history of a run that has ended can be removed")
	_, problem = s.expect(cli.ExitFailure, "runs", "purge", "three", "--yes")
	contains(t, problem, `run "three" does not exist`)
	out, _ := s.expect(cli.ExitOK, "runs", "list", "xyzzy")
	contains(t, out, "one")
	_, problem = s.expect(cli.ExitUsage, "runs", "purge", "one", "--filter", "run:one")
	contains(t, problem, "name a run, or say which by --filter")
	_, problem = s.expect(cli.ExitUsage, "runs", "purge", "--filter", "colour:red")
	contains(t, problem, `the key "colour" is not known`)
	out, _ = s.expect(cli.ExitOK, "runs", "purge", "--filter", "run:*")
	contains(t, out, "verb    purge", "runs    1\n        one\n", "begin   agentd -c "+s.config+" --data "+s.data+" bulk continue ", " --yes 1\n")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one", "--verbose")
	contains(t, out, "xyzzy") // nothing is done before somebody says how many
	out, _ = s.expect(cli.ExitOK, "runs", "purge", "one", "--yes")
	contains(t, out, "the history of one is removed")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one", "--verbose")
	contains(t, out, "history  removed", "done (stopped: conversation)")
	if strings.Contains(out, "xyzzy") {
		t.Errorf("what the run did is still there:\n%s", out)
	}
	s.eventually(cli.ExitOK, "no runs", "runs", "list", "xyzzy")
	out, _ = s.expect(cli.ExitOK, "audit", "verify", "--all")
	contains(t, out, "removed   1 history", "nothing wrong")
}
