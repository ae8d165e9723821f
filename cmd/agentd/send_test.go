package main

import (
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

func TestRunsSend_ReachesTheNextModelCall(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip", "--detach")
	s.waitingFor("trip", "ask_question")
	_, problem := s.expect(cli.ExitFailure, "runs", "follow", "trip", "--timeout", "3s")
	contains(t, problem, "asks      TAP flies at 09:40")

	out, _ := s.expect(cli.ExitOK, "runs", "send", "trip", "By train, if there is one.")
	if out != "the run has the message\n" {
		t.Errorf("send prints %q", out)
	}
	out, _ = s.expect(cli.ExitOK, "runs", "send", "trip", "And quickly.", "-o", "json")
	contains(t, out, `"heard": true`, `"run": "trip"`)
	_, problem = s.expect(cli.ExitUsage, "runs", "send", "trip", "")
	contains(t, problem, "argument 2 is empty")
	_, progress := s.expect(cli.ExitOK, "runs", "follow", "trip", "--answer", "Yes")
	contains(t, progress, "message   By train, if there is one.", "message   And quickly.", "finished  completed")

	_, problem = s.expect(cli.ExitFailure, "runs", "send", "trip", "Too late.")
	contains(t, problem, "run trip is done (completed)")
	_, problem = s.expect(cli.ExitFailure, "runs", "send", "no such run", "Hello?")
	contains(t, problem, `run "no such run" does not exist`)
	_, problem = s.expect(cli.ExitUsage, "runs", "send", "trip")
	contains(t, problem, "want: agentd runs send RUN TEXT")
}

func TestRunsSend_IsRefused(t *testing.T) {
	config, script := chatProject(t)
	write(t, config, strings.Replace(chat, "text: converse", "text: converse\n    steering: reject", 1))
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "talk", "--detach")
	s.until(&s.out, "How can I help?")
	_, problem := s.expect(cli.ExitFailure, "runs", "send", "talk", "Wait.")
	contains(t, problem, "agent chat takes no messages while it works (steering: reject)")
}
