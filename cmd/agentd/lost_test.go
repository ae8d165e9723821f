package main

import (
	"encoding/json"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
)

// A request of a run whose journal is gone is still stored. Whoever is to answer it is told that nobody waits.
func TestApprovals_SayThatAJournalIsLost(t *testing.T) {
	config, script := reconciling(t, "reconcile: {interval: 0}\n") // nobody ends what is lost
	s := startDev(t, config, script, "--server-only")
	flag, _ := loseRedis(s)
	storeLost(s, flag)

	out, _ := s.expect(cli.ExitOK, append([]string{"approvals", "list", "-o", "json"}, flag...)...)
	var items []requests.Item
	if err := json.Unmarshal([]byte(out), &items); err != nil || len(items) != 1 || items[0].Run != "two" || !items[0].Lost {
		t.Fatalf("%v in %s", err, out)
	}
	out, _ = s.expect(cli.ExitOK, append([]string{"approvals", "list"}, flag...)...)
	contains(t, out, "lost", "of 1 request the run's journal is lost: nobody waits for an answer; to end such runs: agentd reconcile")

	out, _ = s.expect(cli.ExitOK, append([]string{"approvals", "show", items[0].Short}, flag...)...)
	contains(t, out, "the run's journal is lost: nobody waits for an answer", "How can I help?")
	if strings.Contains(out, "approvals answer") {
		t.Errorf("it says how to answer:\n%s", out)
	}

	_, problem := s.expect(cli.ExitFailure, append([]string{"approvals", "answer", items[0].Short, "Bob"}, flag...)...)
	contains(t, problem, "no run waits for this message: its run has no journal. If the run had begun, the journal is lost; agentd reconcile ends such runs")
}

// A run whose journal is gone is not said never to have been: the broker knows of one that waits, and of the end of another.
func TestRuns_SayThatAJournalIsLost(t *testing.T) {
	config, script := reconciling(t, "reconcile: {interval: 0}\n")
	s := startDev(t, config, script, "--server-only")
	flag, _ := loseRedis(s)
	storeLost(s, flag)
	for run, want := range map[string]string{
		"one":   `run "one" has ended (stopped:conversation), and its journal is lost, or was removed after its time; if it was lost, restore the store of runs`,
		"two":   `the journal of run "two" is lost: the run had begun, and nobody can go on with it; restore the store of runs, or end such runs: ` + s.line(append(flag, "reconcile")...) + "\n",
		"three": `run "three" does not exist, or no worker has begun it yet; see: ` + s.line(append(flag, "runs", "list")...) + "\n",
	} {
		for _, command := range [][]string{{"runs", "show", run}, {"runs", "send", run, "hello"}, {"runs", "cancel", run}} {
			_, problem := s.expect(cli.ExitFailure, append(command, flag...)...)
			contains(t, problem, want)
		}
	}
}

// Of runs that are there, nothing is said.
func TestApprovals_SayNothingOfJournalsThatAreThere(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "two", "--detach")
	out := s.eventually(cli.ExitOK, "two", "approvals", "list")
	if strings.Contains(out, "lost") {
		t.Error(out)
	}
}
