package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/capacity"
	"agentd/internal/days"
)

// capacity says what the configuration says, and what flags say instead.
func TestCapacity_IsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	config := "nats: {replicas: 1, answers_age: 14d, partitions: 2}\nretention: {history: 3d}\nslots: 8\nagents:\n  - name: a\n    model: {name: m}\n    limits: {deadline: 2d, question_timeout: 20d}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	reckon := func(args ...string) (code int, out string) {
		var result, problems bytes.Buffer
		args = append([]string{"capacity", "-c", path}, args...)
		code = execute(t.Context(), args, cli.Streams{Out: &result, Err: &problems})
		return code, result.String() + problems.String()
	}
	loads := func(args ...string) capacity.Load {
		t.Helper()
		code, out := reckon(append(args, "-o", "json")...)
		var needs capacity.Needs
		if err := json.Unmarshal([]byte(out), &needs); code != cli.ExitOK || err != nil || math.IsNaN(needs.ServerMemory) {
			t.Fatalf("it exits with %d, %v: %s", code, err, out)
		}
		return needs.Load
	}
	want := capacity.Load{
		RunsPerSecond: 1, Turns: 3, TurnBytes: 900, ModelTime: 2 * time.Second, CallTime: time.Second, History: 3 * days.Day, CallsKept: 25 * time.Minute,
		AnswersAge: 14 * days.Day, Deadline: 2 * days.Day, Replicas: 1, Servers: 1, Partitions: 2, Memory: 16 << 30, RedisMemory: 16 << 30, Slots: 8, Cores: 2,
	}
	if got := loads(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	want.RunsPerSecond, want.Turns, want.TurnBytes, want.ModelTime, want.CallTime, want.Redis = 20, 5, 3000, 7*time.Second, time.Hour, true
	want.History, want.AnswersAge, want.Replicas, want.Servers, want.Partitions, want.Memory, want.RedisMemory, want.Cores = days.Day, 2*days.Day, 3, 9, 8, 64<<30, 32<<30, 4
	if got := loads("--runs-per-second", "20", "--turns", "5", "--turn-bytes", "3000", "--model-time", "7s", "--call-time", "1h", "--redis", "redis://r:1",
		"--retention", "1d", "--answers-age", "48h", "--replicas", "3", "--servers", "9", "--partitions", "8", "--memory", "64", "--redis-memory", "32", "--cores", "4"); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if code, out := reckon("--redis", "redis://r:1"); code != cli.ExitOK || strings.Contains(out, "\n     RUN ") || !strings.Contains(out, "\nRedis     ") {
		t.Errorf("with Redis it exits with %d and says\n%s", code, out)
	}
	if code, out := reckon(); code != cli.ExitOK || !strings.Contains(out, "  2 × RUN ") || !strings.Contains(out, "  2 × TMR ") || !strings.Contains(out, "  2 × OUT ") || strings.Contains(out, "× START") {
		t.Errorf("with partitions it exits with %d and says\n%s", code, out)
	}
	for _, wrong := range [][]string{
		{"--runs-per-second", "0"}, {"--turns", "-1"}, {"--model-time", "soon"}, {"--replicas", "3", "--servers", "2"}, {"--memory", "0"}, {"--partitions", "3"},
	} {
		if code, out := reckon(wrong...); code != cli.ExitUsage {
			t.Errorf("%v: exits with %d: %s", wrong, code, out)
		}
	}
}
