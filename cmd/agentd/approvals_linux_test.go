package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/test/tty"
)

// Ctrl-C ends a command that asks on the terminal: nothing is sent.
func TestApprovals_AreLeftAloneByWhoIsInterrupted(t *testing.T) {
	config, script := clerkProject(t, "approvals: {as: jane}\n")
	s := startDev(t, config, script)
	request, question := s.asks("one")
	t.Setenv("VISUAL", "sed -i s/120/40/")
	for prompt, args := range map[string][]string{
		"with these arguments? [y/N] ": {"approvals", "edit", request},
		"> ":                           {"approvals", "answer", question},
	} {
		command, _ := tty.Open(t)
		ctx, interrupt := context.WithCancel(t.Context())
		var out, problem output
		done := make(chan int, 1)
		go func() {
			done <- execute(ctx, s.args(args...), cli.Streams{In: command, Out: &out, Err: &problem})
		}()
		s.until(&problem, prompt)
		interrupt()
		if code := <-done; code != cli.ExitInterrupted || !strings.HasSuffix(problem.String(), "agentd: nothing was sent\n") {
			t.Errorf("%s ends with %d:\n%s", args, code, problem.String())
		}
	}
	out, _ := s.expect(cli.ExitOK, "approvals", "list")
	contains(t, out, request, question)
}

// Ctrl-C ends a command that reads what is typed.
func TestCommands_ThatReadTheTerminalAreInterrupted(t *testing.T) {
	for _, args := range [][]string{{"run", "desk", "--input", "-"}, {"audit", "verify", "--file", "-"}} {
		command, _ := tty.Open(t)
		ctx, interrupt := context.WithCancel(t.Context())
		var out, problem output
		done := make(chan int, 1)
		go func() { done <- execute(ctx, args, cli.Streams{In: command, Out: &out, Err: &problem}) }()
		interrupt()
		select {
		case code := <-done:
			if code != cli.ExitInterrupted || !strings.HasSuffix(problem.String(), "interrupted\n") {
				t.Errorf("%q ends with %d and %q", args, code, problem.String())
			}
		case <-time.After(wait):
			t.Fatalf("%q goes on reading", args)
		}
	}
}
