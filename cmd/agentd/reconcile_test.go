package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/state/redistest"
)

// reconciling is chat with what workers do beside serving.
func reconciling(t *testing.T, settings string) (config, script string) {
	t.Helper()
	config, script = chatProject(t)
	write(t, config, settings+chat)
	return config, script
}

// eventually repeats a command until it exits with code and prints text.
func (s *system) eventually(code int, text string, args ...string) string {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; <-time.After(20 * time.Millisecond) {
		got, out, errors := s.agentd(args...)
		if got == code && strings.Contains(out, text) {
			return out
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("agentd %q exits with %d, want %d and %q:\n%s\n%s", args, got, code, text, out, errors)
		}
	}
}

// eventuallyRefused repeats a command until it is refused with text.
func (s *system) eventuallyRefused(text string, args ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; <-time.After(20 * time.Millisecond) {
		got, out, problem := s.agentd(args...)
		if got == cli.ExitUsage && strings.Contains(problem, text) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("agentd %q exits with %d, want to be refused with %q:\n%s\n%s", args, got, text, out, problem)
		}
	}
}

// loseRedis begins runs "one", which ends, and "two", which waits, and wipes the Redis that keeps them.
func loseRedis(s *system) (flag []string, redis *redistest.Server) {
	s.t.Helper()
	redis = redistest.StartServer(s.t)
	flag = []string{"--redis", redis.URL()}
	var out, log output
	s.background(&out, &log, append([]string{"serve", "--provision"}, flag...)...)
	s.until(&log, "msg=serving")
	s.expect(cli.ExitOK, append([]string{"run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord}, flag...)...)
	s.expect(cli.ExitOK, append([]string{"run", "chat", "-m", "Hello", "--subject", "two", "--detach"}, flag...)...)
	s.eventually(cli.ExitOK, "chat", append([]string{"runs", "show", "two"}, flag...)...)
	s.eventually(cli.ExitOK, "waiting", append([]string{"runs", "list"}, flag...)...)
	redis.Wipe()
	s.eventuallyRefused(notTheStore, append([]string{"runs", "list"}, flag...)...)
	return flag, redis
}

// notTheStore is what whoever opens the wrong Redis is told, and that this ends no run.
const notTheStore = "this Redis is not the store that runs are kept in (since "

// storeLost has runs kept in the Redis that was emptied, and nothing done about those that it had.
func storeLost(s *system, flag []string) {
	s.t.Helper()
	s.expect(cli.ExitOK, append([]string{"reconcile", "--store-lost", "--older-than", "1h"}, flag...)...)
}

func TestReconcile_EndsWhatALostRedisHadBegun(t *testing.T) {
	config, script := reconciling(t, "reconcile: {interval: 0}\n") // nobody but the command
	s := startDev(t, config, script, "--server-only")
	flag, _ := loseRedis(s)
	reconcile := append([]string{"reconcile", "--older-than", "1s"}, flag...)
	refused := func() {
		t.Helper()
		for _, command := range [][]string{reconcile, append(reconcile, "--dry-run"), append([]string{"runs", "list"}, flag...)} {
			_, problem := s.expect(cli.ExitUsage, command...)
			contains(t, problem, notTheStore, "look at REDIS_URL and its database", "if the store that has the runs is lost for good: "+s.line(append(flag, "reconcile", "--store-lost")...)+"\n")
		}
	}
	refused()
	reconcile = append(reconcile, "--store-lost")
	out := s.eventually(cli.ExitFindings, "run_lost", append(reconcile, "--dry-run")...)
	contains(t, out, "two", "would be ended with state_lost", "2 init events, 0 runs and 2 calls examined: ")
	reconcile = reconcile[:len(reconcile)-1]
	refused() // a dry run changes nothing

	storeLost(s, flag)
	listed, _ := s.expect(cli.ExitOK, append([]string{"runs", "list"}, flag...)...)
	contains(t, listed, "no runs")

	out = s.eventually(cli.ExitOK, "repaired", reconcile...)
	contains(t, out, "run_lost", "two, AGENTD_START 2: ended with state_lost")
	if strings.Contains(out, " one") {
		t.Errorf("run one had its end:\n%s", out)
	}
	listed, _ = s.expect(cli.ExitOK, append([]string{"runs", "list"}, flag...)...)
	contains(t, listed, "two", "done (error: state_lost)")

	out = s.eventually(cli.ExitOK, `"findings": []`, append(reconcile, "-o", "json")...)
	var report struct {
		DryRun     bool `json:"dry_run"`
		Inits      int
		Runs       int
		Found      map[string]int
		Unrepaired int
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.DryRun || report.Inits != 2 || report.Unrepaired != 0 || len(report.Found) != 0 {
		t.Errorf("the report is %s", out)
	}
	audited, _ := s.expect(cli.ExitOK, append([]string{"audit", "verify", "--all"}, flag...)...)
	contains(t, audited, "1 run with", "2 init events", "nothing wrong")
}

func TestReconcile_SaysWhatIsWrongWithItsArguments(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script, "--server-only")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"reconcile", "--older-than", "soon"}, `--older-than: reconcile.older_than: expected a duration of at least 1s, such as 30s, 15m, 72h or 30d, got string "soon"`},
		{[]string{"reconcile", "--older-than", "1ms"}, `expected a duration of at least 1s, such as 30s, 15m, 72h or 30d, got string "1ms"`},
		{[]string{"reconcile", "two"}, `"two"`},
	} {
		_, problem := s.expect(cli.ExitUsage, test.args...)
		contains(t, problem, test.want)
	}
	out, _ := s.expect(cli.ExitOK, "reconcile")
	contains(t, out, "0 init events, 0 runs and 0 calls examined: nothing is lost")
}

func TestServe_ReconcilesByItself(t *testing.T) {
	config, script := reconciling(t, "reconcile: {interval: 1s, older_than: 1s}\n")
	s := startDev(t, config, script, "--server-only")
	flag, _ := loseRedis(s)
	out, _ := s.expect(cli.ExitFindings, append([]string{"doctor"}, flag...)...)
	contains(t, out, notTheStore, "is lost for good: "+s.line(append(flag, "reconcile", "--store-lost")...)+"\n")
	storeLost(s, flag)
	s.eventually(cli.ExitOK, "done (error: state_lost)", append([]string{"runs", "list"}, flag...)...)
	_, problem := s.expect(cli.ExitRun, append([]string{"runs", "follow", "two"}, flag...)...)
	contains(t, problem, "run two ended with an error: state_lost")
}

func TestDev_RemovesHistories(t *testing.T) {
	config, script := reconciling(t, "reconcile: {interval: 1s, older_than: 1s}\nretention: {history: 1s}\n")
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "two", "--detach")
	out := s.eventually(cli.ExitOK, "history  removed", "runs", "show", "one")
	contains(t, out, "history  removed", "entries, the last with SHA-256", "done (stopped: conversation)")
	out, _ = s.expect(cli.ExitOK, "audit", "verify", "--all")
	contains(t, out, "removed   1 history: ", "nothing wrong")
	_, problem := s.expect(cli.ExitFailure, "runs", "follow", "one")
	contains(t, problem, "run one is done (stopped), and its history was removed")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "two")
	contains(t, out, "How can I help?")
}
