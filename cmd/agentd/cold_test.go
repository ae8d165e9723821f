package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk/wire"
)

// coldProject is a planner whose first answers run into a limit, so that its runs can be retried.
func coldProject(t *testing.T, settings string) (config, script string) {
	t.Helper()
	dir := t.TempDir()
	config, script = filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml")
	write(t, config, settings+`agents:
  - name: planner
    model: {name: gpt-4o-mini}
    tools: {builtin: [update_plan]}
    stop: {interactions: 1}
`)
	write(t, script, `conversations:
  - replies:
      - calls: [{name: update_plan, arguments: {goal: "Lisbon", steps: [{text: "fly", status: pending}]}}]
      - {text: '{"response": "Planned."}'}
`)
	return config, script
}

// archive has a run's journal leave Redis, as a worker's passes do hours later.
func (s *system) archive(conn *broker.Conn, redis *redistest.Server, run string) {
	s.t.Helper()
	store, err := worker.OpenStore(s.t.Context(), conn, worker.StoreOptions{RedisURL: redis.URL()})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	archiver, has := state.ArchiverOf(store)
	head, err := store.Head(s.t.Context(), wire.NewRunKey(run))
	if err != nil || !has {
		s.t.Fatalf("read head: %v; archives: %t", err, has)
	}
	ended := []state.Ended{{Run: wire.NewRunKey(run), Version: head.Version}}
	for i, want := range []state.ArchiveStep{state.StepArchived, state.StepThinned} {
		all, err := archiver.Archive(s.t.Context(), ended, time.Now().Add(time.Duration(i+4)*time.Hour), 1, false)
		if err != nil || all[0] != (state.Archival{Step: want}) {
			s.t.Fatalf("archive: %v, %+v; want %s", err, all, want)
		}
	}
}

// client connects to the server that a command started.
func (s *system) client() *broker.Conn {
	s.t.Helper()
	url, err := os.ReadFile(filepath.Join(s.data, "address"))
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := broker.Connect(s.t.Context(), broker.ConnectOptions{URL: strings.TrimSpace(string(url)), Subjects: wire.DefaultSubjects()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return conn
}

// TestCold_CommandsSayTheSameOfARunWhoseJournalHasLeft, byte for byte, and it can be retried and purged.
func TestCold_CommandsSayTheSameOfARunWhoseJournalHasLeft(t *testing.T) {
	config, script := coldProject(t, "retention: {hot: 3h}\nreconcile: {interval: 0}\n")
	s := startDev(t, config, script, "--server-only")
	server := redistest.StartServer(t)
	flag := []string{"--redis", server.URL()}
	var out, log output
	s.background(&out, &log, append([]string{"serve", "--provision"}, flag...)...)
	s.until(&log, "msg=serving")
	for _, name := range []string{"one", "two"} {
		s.expect(cli.ExitRun, append([]string{"run", "planner", "-m", "Lisbon", "--subject", name}, flag...)...)
	}
	commands := [][]string{
		{"runs", "show", "one", "-o", "json"},
		{"runs", "list", "-o", "json"},
		{"audit", "verify", "one", "two", "-o", "json"},
		{"audit", "verify", "--all", "-o", "json"},
		{"audit", "export", "one"},
	}
	say := func() (all []string) {
		for _, c := range commands {
			text, _ := s.expect(cli.ExitOK, append(c, flag...)...)
			all = append(all, text)
		}
		return all
	}
	before := say()
	conn := s.client()
	s.archive(conn, server, "one")
	if diff := cmp.Diff(before, say()); diff != "" {
		t.Errorf("what commands say (-before +after):\n%s", diff)
	}
	contains(t, before[2], `"runs": 2`)

	text, _ := s.expect(cli.ExitOK, append([]string{"runs", "retry", "one"}, flag...)...)
	contains(t, text, "retried")
	text, _ = s.expect(cli.ExitOK, append([]string{"runs", "follow", "one"}, flag...)...)
	contains(t, text, "Planned.")
	s.expect(cli.ExitOK, append([]string{"audit", "verify", "one"}, flag...)...)
	s.archive(conn, server, "one")
	s.expect(cli.ExitOK, append([]string{"audit", "verify", "one"}, flag...)...)

	s.eventually(cli.ExitOK, "is removed", append([]string{"runs", "purge", "one", "--yes"}, flag...)...)
	stream, err := conn.JetStream().Stream(t.Context(), "AGENTD_COLD")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d archives are left", n)
	}
}

// TestCold_ArchiveThatCannotBeReadIsSaidClearly, of the run that it is of.
func TestCold_ArchiveThatCannotBeReadIsSaidClearly(t *testing.T) {
	config, script := coldProject(t, "retention: {hot: 3h}\nreconcile: {interval: 0}\n")
	s := startDev(t, config, script, "--server-only")
	server := redistest.StartServer(t)
	flag := []string{"--redis", server.URL()}
	var out, log output
	s.background(&out, &log, append([]string{"serve", "--provision"}, flag...)...)
	s.until(&log, "msg=serving")
	s.expect(cli.ExitRun, append([]string{"run", "planner", "-m", "Lisbon", "--subject", "one"}, flag...)...)
	conn := s.client()
	s.archive(conn, server, "one")
	stream, err := conn.JetStream().Stream(t.Context(), "AGENTD_COLD")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, problem := s.expect(cli.ExitFailure, append([]string{"audit", "export", "one"}, flag...)...)
	contains(t, problem, "its archive is gone: message 1 of AGENTD_COLD")
	if err := conn.JetStream().DeleteStream(t.Context(), "AGENTD_COLD"); err != nil {
		t.Fatal(err)
	}
	_, problem = s.expect(cli.ExitUsage, append([]string{"audit", "export", "one"}, flag...)...)
	contains(t, problem, "is in AGENTD_COLD, which cannot be read: ")
	text, _ := s.expect(cli.ExitFindings, append([]string{"doctor"}, flag...)...)
	contains(t, text, "AGENTD_COLD")
	text, _ = s.expect(cli.ExitOK, append([]string{"runs", "list"}, flag...)...)
	contains(t, text, "one")
}

// TestCold_WorkersMayArchive with the rights that nats-config gives them, and need no others to read archives and to delete them.
func TestCold_WorkersMayArchive(t *testing.T) {
	g := newGuarded(t, "retention: {hot: 3h}\nreconcile: {interval: 0}\nredis: {url: redis://127.0.0.1:1}\n", unchanged)
	server := redistest.StartServer(t) // after what looks for leaks at the end
	t.Setenv("REDIS_URL", server.URL())
	g.work()
	paid := make(chan struct{}, 1)
	g.serve(func() { paid <- struct{}{} })
	g.as("shop", "run", "clerk", "-m", "Pay", "--subject", "one", "-d")
	request := g.request("one")
	g.as("jane", "approvals", "approve", request.Short)
	g.answer("one", "Current")
	<-paid
	g.ended("shop", "one")
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{URL: g.url("worker"), Who: "worker", Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := g.as("operator", "audit", "export", "one")
	g.archive(conn, server, "one")
	if diff := cmp.Diff(before, g.as("operator", "audit", "export", "one")); diff != "" {
		t.Errorf("the trail (-before +after):\n%s", diff)
	}
	store, err := worker.OpenStore(t.Context(), conn, worker.StoreOptions{RedisURL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(t.Context(), wire.NewRunKey("one"))
	if err == nil {
		_, err = store.Entries(t.Context(), wire.NewRunKey("one"), runner.Version{})
	}
	if err == nil {
		err = store.Remove(t.Context(), wire.NewRunKey("one"), head.Version)
	}
	if err := errors.Join(err, store.Close()); err != nil {
		t.Error(err)
	}
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a worker needs:\n%s", strings.Join(said, "\n"))
	}
}
