package main

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/sdk/wire"
)

func TestAudit_SaysWhatItCheckedAndWhatIsWrong(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "two", "--detach")
	s.waiting("two")

	out, _ := s.expect(cli.ExitOK, "audit", "verify", "one")
	contains(t, out, "checked   1 run with", "result    nothing wrong")
	out, _ = s.expect(cli.ExitOK, "audit", "verify", "--all", "-o", "json")
	var report struct {
		Violations []struct{ Invariant, Name string }
		Checked    struct{ Runs, Inits, Entries, Events int }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if c := report.Checked; c.Runs != 2 || c.Inits != 2 || c.Entries < 5 || c.Events < 3 || len(report.Violations) > 0 {
		t.Errorf("the report is %s", out)
	}
	out, _ = s.expect(cli.ExitOK, "audit", "verify", "--since", "1h")
	contains(t, out, "checked   2 runs", "2 init events")

	_, problem := s.expect(cli.ExitUsage, "audit", "verify")
	contains(t, problem, "--since, or --all")
	_, problem = s.expect(cli.ExitUsage, "audit", "verify", "--since", "soon")
	contains(t, problem, "soon")
	_, problem = s.expect(cli.ExitFailure, "audit", "verify", "three")
	contains(t, problem, `run "three" does not exist`)

	// Something overwrites the journal, and a terminal event.
	nc, subjects := s.stranger(), wire.DefaultSubjects()
	gone := &nats.Msg{Subject: subjects.Journal(wire.NewRunKey("two")), Data: []byte("gone"), Header: nats.Header{"Agentd-Rev": {"9"}}}
	if _, err := nc.RequestMsg(gone, wait); err != nil {
		t.Fatal(err)
	}
	out, _ = s.expect(cli.ExitFailure, "audit", "verify", "one", "two")
	contains(t, out, "two\n", "a journal is an unbroken chain that only grows (I6)", "result    1 violation")
	out, _ = s.expect(cli.ExitFailure, "audit", "verify", "--all", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Violations) != 1 || report.Violations[0].Invariant != "I6" {
		t.Errorf("%v; the report is %s", err, out)
	}
	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "unreadable", "one")
}
