package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// A server whose configuration was made when workers did not remove calls yet: they serve as ever, calls stay, and whoever looks is told why,
// and what to do about it.
func TestNATSConfig_OfBeforeLetsWorkersGoOn(t *testing.T) {
	const settings = "reconcile: {interval: 4s}\n"
	g := newGuarded(t, settings, unchanged)
	file := g.serverFile(0)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	since := regexp.MustCompile(`(?m)^.*\$JS\.API\.(STREAM\.PURGE\.AGENTD_(OUT|TMR)|CONSUMER\.LIST\.AGENTD_(START|IN|OUT|TMR))".*\n`)
	if n := len(since.FindAll(text, -1)); n != 6 {
		t.Fatalf("%d rights are taken away, want 6", n)
	}
	write(t, file, since.ReplaceAllString(string(text), ""))
	g.restart()
	g.work()

	g.until(&g.errors, "calls of runs that have ended cannot be removed")
	g.until(&g.errors, "give workers the rights that `agentd nats-config` prints")
	g.serve(func() {})
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	g.request("one")
	g.as("operator", "runs", "cancel", "one")
	g.ended("shop", "one")
	out := g.system.eventually(cli.ExitFindings, "calls_kept", "reconcile", "--nats", g.url("worker"))
	contains(t, out, "calls_kept", "agentd nats-config")
	if strings.Contains(out, "run_lost") {
		t.Errorf("something is lost:\n%s", out)
	}
}
