package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// The operator changes the persistence of streams, and gives replicas to those that were asynchronous, while a run waits that goes on afterwards.
func TestProvision_Rebuild(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint("servers ", servers), func(t *testing.T) {
			g := newGuardedBy(t, servers, "identity: optional\n", func(agents string) string { return agents })
			t.Setenv("AGENTD_REPLICAS", "")
			if servers > 1 {
				g.wasAlone()
			}
			work := func() (stop func()) {
				var out, said output
				stop = g.background(&out, &said, "serve", "--nats", g.url("worker"))
				g.until(&said, "serving")
				return stop
			}
			stop := work()
			g.as("bob", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
			asked := g.request("one").Short
			stop()

			settings, err := os.ReadFile(g.config)
			if err != nil {
				t.Fatal(err)
			}
			with := func(nats string) { write(t, g.config, string(settings)+"\nnats: {"+nats+"}\n") }
			backups := filepath.Join(t.TempDir(), "backups")
			rebuild := func(flags ...string) string {
				return g.as("operator", append([]string{"provision", "--rebuild", "OUT,done,TMR", "--backup", backups}, flags...)...)
			}
			change := func(stream, from, to string, replicas int) string {
				other := map[bool]string{true: fmt.Sprintf("num_replicas %d → %d, ", replicas, 4-replicas)}[servers > 1]
				return fmt.Sprintf("rebuilt stream AGENTD_%s (%spersist_mode %s → %s)\n", stream, other, from, to)
			}
			all := func(from, to string, replicas int) string {
				return change("OUT", from, to, replicas) + change("DONE", from, to, replicas) + change("TMR", from, to, replicas)
			}
			from, to := "async", "default"
			if servers > 1 {
				with("persist_mode: async, replicas: 3") // the servers of a cluster have no such mode, whatever is asked for
				_, problem := g.expect(cli.ExitUsage, "provision", "--nats", g.url("operator"))
				contains(t, problem, "stop the workers, run agentd provision --rebuild OUT,DONE,TMR, and start them again")
			} else {
				with("persist_mode: default")
				contains(t, g.as("operator", "provision"), "kept stream AGENTD_OUT", "agentd provision --rebuild OUT,DONE,TMR")
			}
			want := all(from, to, 1)
			planned := rebuild("--dry-run")
			if planned != strings.ReplaceAll(want, "rebuilt", "would be rebuilt") {
				t.Errorf("a dry run says\n%s", planned)
			}
			got := rebuild()
			if !strings.HasPrefix(got, want) {
				t.Errorf("it says\n%s", got)
			}
			if got := rebuild(); got != "nothing to change\n" {
				t.Errorf("again, it says\n%s", got)
			}
			if servers == 1 {
				with("persist_mode: async")
				if got, want := rebuild(), all(to, from, 1); !strings.HasPrefix(got, want) {
					t.Errorf("the way back says\n%s", got)
				}
			}

			work()
			g.serve(func() {})
			g.as("jane", "approvals", "approve", asked)
			contains(t, g.as("bob", "runs", "follow", "one", "--answer", "Current"), "Paid.")
			if said := g.violations.said(); len(said) > 0 {
				t.Errorf("the server refused what the operator needs:\n%s", strings.Join(said, "\n"))
			}
		})
	}
}

// wasAlone has the streams as a server made them that stood alone, and has been joined by others since.
func (g *guarded) wasAlone() {
	g.t.Helper()
	check := func(err error) {
		g.t.Helper()
		if err != nil {
			g.t.Fatal(err)
		}
	}
	conn, err := broker.Connect(g.t.Context(), broker.ConnectOptions{URL: g.url("operator"), Who: "operator", Subjects: wire.DefaultSubjects()})
	check(err)
	defer func() { check(conn.Close()) }()
	js := conn.JetStream()
	for _, zone := range streams.Rebuildable {
		name := streams.Name(wire.DefaultSubjects(), zone)
		is, err := js.Stream(g.t.Context(), name)
		check(err)
		was := is.CachedInfo().Config
		was.Replicas, was.PersistMode = 1, jetstream.AsyncPersistMode
		check(js.DeleteStream(g.t.Context(), name))
		_, err = js.CreateStream(g.t.Context(), was)
		check(err)
	}
	contains(g.t, g.as("operator", "provision"), "kept stream AGENTD_OUT (it has persist_mode async, and is to have default; stop the workers")
}
