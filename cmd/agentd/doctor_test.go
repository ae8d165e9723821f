package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/state/redistest"
	"agentd/test/natsserver"
)

// clinic is a system that doctor examines.
type clinic struct {
	t *testing.T
	// config is the path of agentd.yaml.
	config, url, monitor, redis string
	js                          jetstream.JetStream
}

const healthyConfig = `models:
  local: {base_url: "http://127.0.0.1:1/v1"}
agents:
  - name: clerk
    contract:
      accepts: {type: object, properties: {message: {type: string}}}
      emits: {type: object}
    model: {provider: local, name: m}
`

// newClinic provisions a server for an agent. Nothing is wrong with it but that no worker is there.
func newClinic(t *testing.T, syncs bool) *clinic {
	t.Helper()
	return newClinicOn(t, server.Options{SyncAlways: syncs, StoreDir: t.TempDir()})
}

// newClinicOn is newClinic with a server of its own kind.
func newClinicOn(t *testing.T, o server.Options) *clinic {
	t.Helper()
	o.Port, o.HTTPHost, o.HTTPPort, o.JetStream = -1, "127.0.0.1", -1, true
	ns := natsserver.Start(t, o)
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := &clinic{t: t, config: filepath.Join(t.TempDir(), "agentd.yaml"), url: ns.ClientURL(), monitor: "http://" + ns.MonitorAddr().String()}
	if c.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	c.write(healthyConfig)
	if code, out := c.agentd("provision"); code != cli.ExitOK {
		t.Fatalf("provision exits with %d: %s", code, out)
	}
	return c
}

func (c *clinic) write(config string) {
	c.t.Helper()
	if err := os.WriteFile(c.config, []byte(config), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) agentd(args ...string) (code int, output string) {
	var out, problems bytes.Buffer
	args = append(args, "--config", c.config, "--nats", c.url)
	if c.redis != "" {
		args = append(args, "--redis", c.redis)
	}
	code = execute(c.t.Context(), args, cli.Streams{Out: &out, Err: &problems})
	return code, out.String() + problems.String()
}

// findings are the codes of what doctor finds.
func (c *clinic) findings() (code int, codes []string) {
	c.t.Helper()
	code, out := c.agentd("doctor", "--monitor", c.monitor, "-o", "json")
	var found struct {
		Findings []struct{ Code, Message, Remedy string } `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		c.t.Fatalf("%v in %s", err, out)
	}
	for _, f := range found.Findings {
		if f.Message == "" || f.Remedy == "" {
			c.t.Errorf("finding %s does not say what is wrong and what to do: %+v", f.Code, f)
		}
		codes = append(codes, f.Code)
	}
	return code, codes
}

// stream changes the settings of a stream.
func (c *clinic) stream(name string, change func(*jetstream.StreamConfig)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		c.t.Fatal(err)
	}
	config := s.CachedInfo().Config
	change(&config)
	if _, err := c.js.UpdateStream(ctx, config); err != nil {
		c.t.Fatal(err)
	}
}

// anew makes a stream again, with other settings than it can be updated to.
func (c *clinic) anew(name string, change func(*jetstream.StreamConfig)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		c.t.Fatal(err)
	}
	config := s.CachedInfo().Config
	change(&config)
	if err := c.js.DeleteStream(ctx, name); err != nil {
		c.t.Fatal(err)
	}
	if _, err = c.js.CreateStream(ctx, config); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) consumer(stream, name string, change func(*jetstream.ConsumerConfig)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), wait)
	defer cancel()
	have, err := c.js.Consumer(ctx, stream, name)
	if err != nil {
		c.t.Fatal(err)
	}
	config := have.CachedInfo().Config
	err = c.js.DeleteConsumer(ctx, stream, name)
	if change != nil {
		change(&config)
		_, created := c.js.CreateConsumer(ctx, stream, config)
		err = errors.Join(err, created)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestDoctor_FindsNothingElseInAHealthySystem(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	c.redis = redistest.Start(t)
	code, found := c.findings()
	if code != cli.ExitOK || !slices.Equal(found, []string{"no_worker"}) {
		t.Errorf("doctor exits with %d and finds %v, want only that nobody serves", code, found)
	}
}

// TestDoctor_FindsEachMisconfiguration plants them one by one.
func TestDoctor_FindsEachMisconfiguration(t *testing.T) {
	t.Parallel()
	const failed, warned = cli.ExitFindings, cli.ExitOK
	for code, c := range map[string]struct {
		exit  int
		plant func(*clinic)
	}{
		"nats_unreachable": {failed, func(c *clinic) { c.url = "nats://127.0.0.1:1" }},
		"stream_missing": {failed, func(c *clinic) {
			if err := c.js.DeleteStream(c.t.Context(), "AGENTD_DLQ"); err != nil {
				c.t.Fatal(err)
			}
		}},
		"consumer_missing":  {failed, func(c *clinic) { c.consumer("AGENTD_IN", "agent_clerk", nil) }},
		"duplicates_window": {failed, func(c *clinic) { c.stream("AGENTD_IN", func(s *jetstream.StreamConfig) { s.Duplicates = time.Minute }) }},
		"max_age":           {failed, func(c *clinic) { c.stream("AGENTD_START", func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }) }},
		"max_deliver": {failed, func(c *clinic) {
			c.consumer("AGENTD_IN", "agent_clerk", func(o *jetstream.ConsumerConfig) { o.MaxDeliver = 5 })
		}},
		"no_schedules": {failed, func(c *clinic) {
			c.anew("AGENTD_TMR", func(s *jetstream.StreamConfig) { s.AllowMsgSchedules = false })
		}},
		"sync_interval":               {warned, func(c *clinic) {}},
		"redis_append_only_file_lazy": {failed, func(c *clinic) { c.redis = redistest.StartServer(c.t, "--appendfsync", "everysec").URL() }},
		"redis_eviction": {failed, func(c *clinic) {
			c.redis = redistest.StartServer(c.t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb").URL()
		}},
		"redis_few_replicas": {failed, func(c *clinic) {
			c.write("redis: {replicas: 1}\n" + healthyConfig)
			c.redis = redistest.Start(c.t)
		}},
		"redis_replicas_ignored": {warned, func(c *clinic) { c.write("redis: {replicas: 1}\n" + healthyConfig) }},
		"hot_ignored":            {warned, func(c *clinic) { c.write(healthyConfig + "retention: {hot: 1d}\n") }},
		"model": {warned, func(c *clinic) {
			c.write(strings.Replace(healthyConfig, `base_url: "http://127.0.0.1:1/v1"`, "api_key_env: DOCTOR_TEST_NO_KEY", 1))
		}},
		"encryption_keys": {failed, func(c *clinic) {
			c.write(healthyConfig + "encryption: {current: k1, keys: {k1: {file: nowhere}}}\n")
		}},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			clinic := newClinic(t, code != "sync_interval")
			c.plant(clinic)
			exit, found := clinic.findings()
			if !slices.Contains(found, code) || exit != c.exit {
				t.Errorf("doctor exits with %d and finds %v, want %d and %s", exit, found, c.exit, code)
			}
		})
	}
}

// A key that this command lacks, workers may have: doctor says where it has looked.
func TestDoctor_SaysWhoseEnvironmentLacksAKey(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	c.write(strings.Replace(healthyConfig, `base_url: "http://127.0.0.1:1/v1"`, "api_key_env: DOCTOR_TEST_NO_KEY", 1))
	code, out := c.agentd("doctor")
	for _, want := range []string{"in the environment of this command:", `provider "local" has no API key`, "workers have environments of their own; if it is the same there,"} {
		if code != cli.ExitOK || !strings.Contains(out, want) {
			t.Errorf("doctor exits with %d and does not say %q:\n%s", code, want, out)
		}
	}
}

// Answers leave by their age alone: somebody chooses it, sees what it will change and what it costs, and cannot choose one at which calls
// would lose their answers.
func TestAnswersAge_FromTheFileToTheStream(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	chosen := func(age string) { c.write("nats: {answers_age: " + age + "}\n" + healthyConfig) }
	says := func(exit int, want string, command ...string) {
		t.Helper()
		if code, out := c.agentd(command...); code != exit || !strings.Contains(out, want) {
			t.Errorf("agentd %s exits with %d and says\n%s\nwant %d and %q", strings.Join(command, " "), code, out, exit, want)
		}
	}
	chosen("3d")
	says(cli.ExitFindings, c.config+":1:21: nats.answers_age: expected at least 7d, got 3d: agent clerk may wait as long for the answer to a question", "check", c.config)
	says(cli.ExitUsage, "expected at least 7d", "provision")
	chosen("14d")
	says(cli.ExitOK, "nothing wrong", "check", c.config)
	says(cli.ExitOK, "AGENTD_IN: it forgets messages after 7d, and nats.answers_age is 14d", "doctor")
	for range 2 {
		says(cli.ExitOK, "would be updated stream AGENTD_IN (max_age 7d → 14d)\n", "provision", "--dry-run")
	}
	says(cli.ExitOK, "updated stream AGENTD_IN (max_age 7d → 14d)\n", "provision")
	says(cli.ExitOK, "nothing to change", "provision", "--dry-run")
	if _, err := c.js.Publish(t.Context(), "agentd.ctl.cancel.clerk.00.none", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	says(cli.ExitOK, "AGENTD_IN: 1 message on 1 subject, 63 B, kept for 14d\n", "doctor")
	chosen("7d")
	says(cli.ExitOK, "nothing to change", "provision")
	says(cli.ExitOK, "kept for 14d where 7d would do; agentd shortens nothing, it is for: nats stream edit AGENTD_IN --max-age 168h", "doctor")
	// A question that may wait longer makes it longer, where nobody chose.
	c.write(healthyConfig + "    limits: {question_timeout: 20d}\n")
	says(cli.ExitFindings, "AGENTD_IN: it forgets messages after 14d, before the longest deadline", "doctor")
	says(cli.ExitOK, "updated stream AGENTD_IN (max_age 14d → 20d)\n", "provision")
}
