package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

func TestAgentsPause_NewRunsWaitUntilTheAgentIsResumed(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	out, _ := s.expect(cli.ExitOK, "agents", "list")
	if out != "AGENT        STATE\ntravel.desk  serves\n" {
		t.Errorf("list prints %q", out)
	}
	_, problem := s.expect(cli.ExitFailure, "agents", "pause", "travel.dask")
	contains(t, problem, "the server has no consumers for agent travel.dask")
	_, problem = s.expect(cli.ExitUsage, "agents", "pause", "travel.desk", "--for", "0s")
	contains(t, problem, "--for 0s: want a duration above 0")

	out, _ = s.expect(cli.ExitOK, "agents", "pause", "travel.desk")
	if out != "paused\n" {
		t.Errorf("pause prints %q", out)
	}
	drained, _ := s.expect(cli.ExitOK, "agents", "pause", "travel.desk", "--drain")
	if drained != "paused: runs that have begun go on\n" {
		t.Errorf("pause --drain prints %q", drained)
	}
	s.expect(cli.ExitOK, "agents", "pause", "travel.desk")
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", "trip", "--detach")
	out, _ = s.expect(cli.ExitOK, "agents", "list", "-o", "json")
	contains(t, out, `"agent": "travel.desk"`, `"paused": true`, `"new": 1`)
	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "no runs")
	out, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, out, "agent travel.desk is paused until it is resumed: its runs do not begin", s.line("agents", "resume", "travel.desk")+"\n")
	out, _ = s.expect(cli.ExitOK, "agents", "pause", "travel.desk", "--drain", "--for", "2d")
	contains(t, out, "paused for another 47h59m", "1 run not begun, others go on")

	out, _ = s.expect(cli.ExitOK, "agents", "resume", "travel.desk")
	if out != "resumed, and 0 runs woken\n" {
		t.Errorf("resume prints %q", out)
	}
	s.waitingFor("trip", "ask_question")
	s.expect(cli.ExitOK, "runs", "follow", "trip", "--answer", "Yes")
}

// An agent that nobody serves is not said to be served, whether it is paused or not, and what waits for it is counted.
func TestAgentsList_SaysThatThereIsNoWorker(t *testing.T) {
	s, nc := provisioned(t)
	nats := []string{"--nats", nc.ConnectedUrl()}
	s.expect(cli.ExitOK, append([]string{"run", "travel.desk", "-m", "Lisbon", "-d"}, nats...)...)
	out, _ := s.expect(cli.ExitOK, append([]string{"agents", "list"}, nats...)...)
	if out != "AGENT        STATE\ntravel.desk  no worker: 1 run not begun\n" {
		t.Errorf("list prints %q", out)
	}
	out, _ = s.expect(cli.ExitOK, append([]string{"agents", "pause", "travel.desk"}, nats...)...)
	if out != "paused, no worker: 1 run not begun\n" {
		t.Errorf("pause prints %q", out)
	}
	out, _ = s.expect(cli.ExitOK, append([]string{"agents", "list", "-o", "json"}, nats...)...)
	contains(t, out, `"unserved": true`, `"new": 1`)
}

// An operator of generated accounts pauses an agent, and nobody else: on one server and on three.
func TestNATSConfig_OperatorsPauseAgents(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			g := newGuardedBy(t, members, "", unchanged)
			g.work()
			g.serve(func() {})
			g.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
			request := g.request("one")
			g.rested("clerk")
			for _, user := range []string{"bob", "jane"} {
				g.expect(cli.ExitFailure, "agents", "pause", "clerk", "--nats", g.url(user))
			}
			contains(t, g.as("operator", "agents", "pause", "clerk"), "paused\n")
			g.as("operator", "provision")
			g.as("jane", "approvals", "approve", request.Short)
			g.eventually("the run waits for its agent", func() bool {
				out, _ := g.expect(cli.ExitOK, "agents", "list", "--nats", g.url("operator"))
				return strings.Contains(out, "paused: 1 waits")
			})
			contains(t, g.as("operator", "runs", "list"), "its agent, paused since")
			contains(t, g.as("operator", "agents", "resume", "clerk"), "resumed, and 1 run woken")
			g.answer("one", "Current")
			g.ended("bob", "one")
		})
	}
}
