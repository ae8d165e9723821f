package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

func TestRunsPause_HoldsARunUntilItIsResumed(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip", "--detach")
	s.waitingFor("trip", "ask_question")

	out, _ := s.expect(cli.ExitOK, "runs", "pause", "trip", "--reason", "look first")
	if out != "paused\n" {
		t.Errorf("pause prints %q", out)
	}
	_, problem := s.expect(cli.ExitFailure, "runs", "pause", "trip")
	contains(t, problem, "run trip is paused already")
	_, problem = s.expect(cli.ExitFailure, "runs", "unpark", "trip")
	contains(t, problem, "run trip is not parked")
	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "waiting, paused")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "trip")
	contains(t, out, "look first")

	_, problem = s.expect(cli.ExitFailure, "runs", "cancel", "trip", "--call", "c9-9")
	contains(t, problem, `run trip has made no call "c9-9"`)

	out, _ = s.expect(cli.ExitOK, "runs", "resume", "trip", "-o", "json")
	contains(t, out, `"verb": "resume"`, `"heard": true`)
	_, problem = s.expect(cli.ExitFailure, "runs", "resume", "trip")
	contains(t, problem, "run trip is not paused")
	_, progress := s.expect(cli.ExitOK, "runs", "follow", "trip", "--answer", "Yes")
	contains(t, progress, "paused    look first", "resumed", "finished  completed")
}

func TestRunsCancel_GivesUpOneCall(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip", "--detach")
	s.waitingFor("trip", "ask_question")

	out, _ := s.expect(cli.ExitOK, "runs", "cancel", "trip", "--call", "c2-0", "--reason", "no time")
	if out != "cancelled\n" {
		t.Errorf("cancel prints %q", out)
	}
	out, _ = s.expect(cli.ExitOK, "runs", "show", "trip", "--verbose")
	contains(t, out, "ask_question was cancelled: no time")
	_, progress := s.expect(cli.ExitOK, "runs", "follow", "trip") // the run goes on
	contains(t, progress, "calls     book_trip", "finished  completed")
	out, _ = s.expect(cli.ExitOK, "runs", "cancel", "trip", "--call", "c2-0", "-o", "json")
	contains(t, out, `"cancelled": true`)
}
