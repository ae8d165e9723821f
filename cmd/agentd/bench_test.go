package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/bench"
	"agentd/internal/state/redistest"
)

// streams are those that the server has.
func (c *clinic) streams() []string {
	c.t.Helper()
	var names []string
	all := c.js.StreamNames(c.t.Context())
	for name := range all.Name() {
		names = append(names, name)
	}
	if all.Err() != nil {
		c.t.Fatal(all.Err())
	}
	slices.Sort(names)
	return names
}

// borrowed is the stream of a bench that was killed.
func borrowed(by string) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "AGENTDBENCH_BORROWED", Description: by, Subjects: []string{"agentdbench.borrowed.>"}}
}

// benched is the report of a command that measured.
func benched(t *testing.T, code int, out string) bench.Report {
	t.Helper()
	var r bench.Report
	_, result, _ := strings.Cut(out, "{")
	result, _, _ = strings.Cut("{"+result, "\nagentd:")
	if err := json.Unmarshal([]byte(result), &r); code != cli.ExitOK || err != nil {
		t.Fatalf("bench exits with %d, %v: %s", code, err, out)
	}
	return r
}

// costs compares what was counted of each run of three turns with what it is, redeliveries on a slow machine aside.
func costs(t *testing.T, r *bench.Report, journal map[string]float64) {
	t.Helper()
	about := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/4 {
			t.Errorf("%s: got %.2f, want %.0f", what, got, want)
		}
	}
	for zone, want := range map[string]float64{"START": 1, "OUT": 3, "IN": 3, "DONE": 1} {
		about("stored on "+zone, r.Streams[zone].Stored, want)
		if r.Streams[zone].Bytes < 100 {
			t.Errorf("%s keeps %.0f bytes of a run", zone, r.Streams[zone].Bytes)
		}
	}
	for what, want := range journal {
		got := r.Streams[what].Stored
		if r.Redis != nil {
			got = r.Redis.Commands[what]
		}
		about(what, got, want)
	}
	about("messages of the client", r.Messages.Client, 1)
	// An answer and an acknowledgement of each call, and requests for calls.
	if got := r.Messages.Service; got < 6 || got > 9 {
		t.Errorf("the service publishes %.1f messages a run", got)
	}
	if got := r.Messages.All; got != r.Messages.Worker+r.Messages.Service+r.Messages.Client || got < 15 || got > 60 {
		t.Errorf("messages: %+v", r.Messages)
	}
	if r.Journal.Entries == 0 || r.Journal.Bytes < 1000*r.Journal.Entries/2 || r.Allocations < 100 || r.ProcessorMS <= 0 {
		t.Errorf("journal %+v, %.0f allocations, %.2f ms of a processor", r.Journal, r.Allocations, r.ProcessorMS)
	}
	if r.Run.P50 <= 0 || r.Run.P99 < r.Run.P50 || r.Alone.P50 <= 0 || r.NextStep.P50 <= 0 || r.RunsPerSecond <= 0 || len(r.Limits) == 0 {
		t.Errorf("times %+v %+v %+v, %.1f runs/s, limits %+v", r.Run, r.Alone, r.NextStep, r.RunsPerSecond, r.Limits)
	}
}

func TestBench_OnAServerOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("NATS_URL", "")
	t.Setenv("REDIS_URL", "")
	agentd := func(args ...string) (int, string) {
		var out, problems bytes.Buffer
		code := execute(t.Context(), append([]string{"bench", "--data", "data", "--runs", "12", "--clients", "3"}, args...), cli.Streams{Out: &out, Err: &problems})
		return code, out.String() + problems.String()
	}
	code, out := agentd("-o", "json")
	r := benched(t, code, out)
	if r.Runs != 12 || r.Setting.Clients != 3 || r.Setting.Store != "jetstream" || r.Setting.NATSSync != bench.SyncAlways || !strings.HasPrefix(r.Setting.Embedded, "data/") {
		t.Errorf("12 runs of 3 clients: %+v", r.Setting)
	}
	costs(t, &r, map[string]float64{"RUN": r.Journal.Entries})
	code, out = agentd("--turns", "1", "--workers", "2", "--model-latency", "20ms")
	for _, want := range []string{"12 runs in", "of 1 turn and a model that takes 20 ms", "2 workers with 128 slots each", "runs/s", "p99 ms", "messages stored by NATS", "what limits\n"} {
		if code != cli.ExitOK || !strings.Contains(out, want) {
			t.Fatalf("it exits with %d, and does not say %q:\n%s", code, want, out)
		}
	}
}

func TestBench_LeavesNothingOnServersOfOthers(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	before := c.streams()
	server := redistest.StartServer(t)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	mine := client.Set(t.Context(), "agentdbench", "of somebody else", 0).Err()
	if mine != nil {
		t.Fatal(mine)
	}
	code, out := c.agentd("bench", "--redis", server.URL(), "--runs", "12", "--clients", "3", "--monitor", c.monitor, "-o", "json")
	r := benched(t, code, out)
	costs(t, &r, map[string]float64{"evalsha": r.Journal.Entries})
	if s := r.Setting; s.Store != "redis" || s.RedisSync != "always" || s.NATSSync != bench.SyncAlways || s.Embedded != "" || s.NATSCores == 0 {
		t.Errorf("it was measured on %+v", s)
	}
	if r.Redis.MemoryBytes < 500 || r.Streams["RUN"].Stored > 0 {
		t.Errorf("a run is in %.0f bytes of Redis, and in %+v of JetStream", r.Redis.MemoryBytes, r.Streams["RUN"])
	}
	if after := c.streams(); !slices.Equal(before, after) {
		t.Errorf("it leaves the streams %q, of before %q", after, before)
	}
	if keys := client.Keys(t.Context(), "*").Val(); !slices.Equal(keys, []string{"agentdbench"}) {
		t.Errorf("it leaves the keys %q", keys)
	}
}

// Journals are on as many streams as is said, and these are removed too.
func TestBench_OnPartitions(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	before := c.streams()
	code, out := c.agentd("bench", "--partitions", "2", "--runs", "40", "--clients", "3", "-o", "json")
	r := benched(t, code, out)
	first, second := r.Streams["RUN_0"].Stored, r.Streams["RUN_1"].Stored
	if r.Setting.Partitions != 2 || first == 0 || second == 0 || math.Abs(first+second-r.Journal.Entries) > r.Journal.Entries/4 {
		t.Errorf("on %d partitions, %.1f and %.1f of %.1f entries are on each", r.Setting.Partitions, first, second, r.Journal.Entries)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "1 replica, 2 partitions") {
		t.Errorf("it says, %v:\n%s", err, text.String())
	}
	if after := c.streams(); !slices.Equal(before, after) {
		t.Errorf("it leaves the streams %q, of before %q", after, before)
	}
}

func TestBench_TouchesNoRootInUse(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	c.write("nats: {root: other}\n" + healthyConfig)
	if code, out := c.agentd("bench", "--root", "other"); code != cli.ExitUsage || !strings.Contains(out, "choose another") {
		t.Errorf("on the root of the configuration it exits with %d: %s", code, out)
	}
	before := c.streams()
	for _, args := range [][]string{{"--runs", "1"}, {"--remove"}} {
		if code, out := c.agentd(append([]string{"bench", "--root", "agentd"}, args...)...); code != cli.ExitUsage || !strings.Contains(out, "agentd") {
			t.Errorf("%v on a root in use: exits with %d: %s", args, code, out)
		}
	}
	if after := c.streams(); !slices.Equal(before, after) {
		t.Errorf("the streams are %q, were %q", after, before)
	}
	// One root has one bench.
	if _, err := c.js.CreateStream(t.Context(), borrowed("a bench, process 7 of elsewhere")); err != nil {
		t.Fatal(err)
	}
	code, out := c.agentd("bench", "--runs", "1")
	if code != cli.ExitUsage || !strings.Contains(out, "process 7 of elsewhere") || !strings.Contains(out, "agentd -c "+c.config+" --nats "+c.url+" bench --remove --root agentdbench\n") {
		t.Errorf("beside another bench it exits with %d: %s", code, out)
	}
	if code, out := c.agentd("bench", "--remove"); code != cli.ExitOK || !slices.Equal(before, c.streams()) {
		t.Errorf("--remove exits with %d, and leaves %q: %s", code, c.streams(), out)
	}
	for _, wrong := range [][]string{{"--clients", "0"}, {"--turns", "-1"}, {"--root", "a.b"}, {"--runs", "1", "--duration", "1s"}, {"--replicas", "9"}, {"--partitions", "3"}} {
		if code, out := c.agentd(append([]string{"bench"}, wrong...)...); code != cli.ExitUsage {
			t.Errorf("%v: exits with %d: %s", wrong, code, out)
		}
	}
}

func TestBench_RemovesWhatItMadeWhenInterrupted(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	before := c.streams()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, problems bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, []string{"bench", "--nats", c.url, "--config", c.config, "--duration", "1h", "--clients", "2"}, cli.Streams{Out: &out, Err: &problems})
	}()
	for late := time.Now().Add(wait); ; <-time.After(5 * time.Millisecond) {
		s, err := c.js.Stream(t.Context(), "AGENTDBENCH_DONE")
		if err == nil && s.CachedInfo().State.Msgs > 2 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("no run has ended: %v", err)
		}
	}
	interrupt()
	if code := <-done; code != cli.ExitInterrupted || out.Len() > 0 || !strings.Contains(problems.String(), "interrupted") {
		t.Errorf("it exits with %d: %s%s", code, out.String(), problems.String())
	}
	if after := c.streams(); !slices.Equal(before, after) {
		t.Errorf("it leaves the streams %q, of before %q", after, before)
	}
}
