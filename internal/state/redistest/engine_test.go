package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentd/test/missing"
	"agentd/test/poll"
)

// docker stands in for the command: `run` runs the redis-server of this machine, which outlives it if it is killed, as
// containers do, and `kill` signals it. It refuses every call that redistest should not make.
const docker = `#!/bin/sh
case "$1" in
run)
  [ "$2 $3 $5 $6 $7 $9" = "--rm --name --network host --user --volume" ] || exit 64
  [ "${10}" = "$DIR:$DIR" ] && [ "${11} ${12} ${13}" = "--entrypoint redis-server redis:test" ] || exit 65
  file=$PIDS/$4
  shift 13
  "$REDIS" "$@" &
  echo $! >"$file"
  wait ;;
kill)
  [ "$2" = --signal ] || exit 66
  kill -"$3" "$(cat "$PIDS/$4")" ;;
esac`

func TestContainer_IsStoppedResumedAndKilledLikeAProcess(t *testing.T) {
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		missing.Optional(t, "the stand-in for Docker needs a redis-server")
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(docker), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("REDIS", redis)
	t.Setenv("PIDS", t.TempDir())

	s := newServer(t)
	t.Setenv("DIR", s.dir)
	s.engine = container("redis:test")
	s.startFirst()
	state := func() string {
		t.Helper()
		pids, err := filepath.Glob(filepath.Join(os.Getenv("PIDS"), "*"))
		if err != nil || len(pids) != 1 {
			t.Fatalf("containers %v, %v; want one", pids, err)
		}
		pid, err := os.ReadFile(pids[0])
		if err != nil {
			t.Fatal(err)
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "stat"))
		if err != nil {
			return "gone"
		}
		return strings.Fields(string(stat))[2]
	}
	// A process is stopped, and goes on, a moment after it was signalled.
	becomes := func(what string, is func(state string) bool) {
		t.Helper()
		poll.Until(t, time.Minute, "a server is "+what, func() bool { return is(state()) })
	}
	s.Pause()
	becomes("paused", func(state string) bool { return state == "T" })
	s.Resume()
	becomes("resumed", func(state string) bool { return state != "T" })
	s.Kill()
	becomes("killed", func(state string) bool { return state == "gone" })
	if err := s.signal(syscall.SIGKILL); err == nil {
		t.Error("a server that is gone was signalled without an error")
	}
}

// TestStart_WithoutRedis runs the test below on a machine that has neither redis-server nor an image of it.
func TestStart_WithoutRedis(t *testing.T) {
	for _, list := range []string{"", filepath.Join(t.TempDir(), "list")} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestStart_Alone$", "-test.v")
		cmd.Env = []string{"PATH=" + t.TempDir(), missing.List + "=" + list}
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), "apt-get install redis-server") {
			t.Errorf("it does not say what to type:\n%s", out)
		}
		if list == "" {
			if err == nil {
				t.Errorf("a test without its redis-server passed:\n%s", out)
			}
			continue
		}
		written, readErr := os.ReadFile(list)
		want := "required\tredistest\tredis-server is missing: "
		if err != nil || readErr != nil || !strings.HasPrefix(string(written), want) {
			t.Errorf("%v, %v, list %q; want a skipped test and %q", err, readErr, written, want)
		}
	}
}

func TestStart_Alone(t *testing.T) { Start(t) }
