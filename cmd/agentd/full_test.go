package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/state/redistest"
	"agentd/test/poll"
	"agentd/test/ports"
)

// Who is full, or lacks replicas, confirms nothing, and answers every question as if nothing were wrong.
func TestFullStores_AreFoundLoggedAndNotReady(t *testing.T) {
	t.Parallel()
	const kilobyte = 1 << 10
	fill := bytes.Repeat([]byte{'x'}, 64*kilobyte)
	for name, test := range map[string]struct {
		// full is a system with something full; found is a finding of doctor, said is in the log and in /readyz, and told is what
		// who starts a run is told.
		full              func(t *testing.T) *clinic
		found, said, told string
	}{
		"JetStream at its limit": {
			func(t *testing.T) *clinic {
				c := newClinicOn(t, server.Options{StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxStore: 512 * kilobyte})
				for range 1000 {
					if _, err := c.js.Publish(t.Context(), "agentd.dlq.a.b.1", fill); err != nil {
						return c
					}
				}
				t.Fatal("the server is not full")
				return nil
			},
			"not_writable", "JetStream is full, so that stream AGENTD_TMR takes no writes (insufficient resources); make room, or raise the limits",
			"JetStream is full, so that stream AGENTD_START takes no writes (insufficient resources); make room, or raise the limits",
		},
		"a full disk": {
			func(t *testing.T) *clinic {
				dir := t.TempDir()
				if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
					t.Skipf("needs the right to mount a file system: %v", err)
				}
				t.Cleanup(func() { // a server whose disk is full may keep a file open for a while after its end
					if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
						t.Error(err)
					}
				})
				c := newClinicOn(t, server.Options{StoreDir: dir, SyncAlways: true})
				f, err := os.Create(filepath.Join(dir, "others"))
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = f.Write(fill[:kilobyte])
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				return c
			},
			"not_writable", "stream AGENTD_TMR does not confirm writes; if the server's disk is or was full, make room and restart the server",
			"stream AGENTD_START does not confirm writes; if the server's disk is or was full, make room and restart the server",
		},
		"Redis at maxmemory": {
			func(t *testing.T) *clinic {
				c := newClinicOn(t, server.Options{StoreDir: t.TempDir(), SyncAlways: true})
				s := redistest.StartServer(t, "--maxmemory-policy", "noeviction", "--maxmemory", "4mb")
				client := redis.NewClient(&redis.Options{Addr: s.Addr()})
				defer func() { _ = client.Close() }()
				var err error
				for n := 0; err == nil; n++ {
					err = client.Append(t.Context(), "others", string(fill)).Err()
				}
				if !strings.Contains(err.Error(), "OOM") {
					t.Fatal(err)
				}
				c.redis = s.URL()
				return c
			},
			"redis_full", "its memory is full", "",
		},
		"Redis without the replica that is waited for": {
			func(t *testing.T) *clinic {
				c := newClinicOn(t, server.Options{StoreDir: t.TempDir(), SyncAlways: true})
				c.write("redis: {replicas: 1}\n" + healthyConfig)
				c.redis = redistest.Start(t)
				return c
			},
			"redis_few_replicas", "what is written is not confirmed by its replicas: 0 of 1 replicas have confirmed after 1s", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.full(t)
			if code, found := c.findings(); code != cli.ExitFindings || !slices.Contains(found, test.found) {
				t.Errorf("doctor exits with %d and finds %v, want %s", code, found, test.found)
			}
			if _, told := c.agentd("run", "clerk", "--message", "hello", "--detach"); !strings.Contains(told, test.told) {
				t.Errorf("who starts a run is told\n%s", told)
			}
			ready, log := c.serve()
			c.until("a worker that is not ready for that reason", func() bool { return strings.Contains(ready(), test.said) })
			if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), test.said) {
				t.Errorf("the worker logs\n%s", log.String())
			}
		})
	}
}

func TestReady_AWorkerIsReadyWhereNothingIsFull(t *testing.T) {
	t.Parallel()
	c := newClinic(t, true)
	c.redis = redistest.StartServer(t, "--maxmemory-policy", "noeviction", "--maxmemory", "100mb").URL()
	ready, _ := c.serve()
	c.until("a worker that is ready", func() bool { return ready() == "ok\n" })
}

// Any client may fill the stream of init events: workers handle what is there, say so, and stay ready; who starts another run is told.
func TestReady_WhereClientsHaveFilledAStream(t *testing.T) {
	t.Parallel()
	c := newClinicOn(t, server.Options{StoreDir: t.TempDir(), SyncAlways: true})
	stream, err := c.js.Stream(t.Context(), "AGENTD_START")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 1
	if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ready, log := c.serve()
	c.until("a worker that is ready", func() bool { return ready() == "ok\n" })
	const told = `level=WARN msg="stream is full: who publishes there is refused" stream=AGENTD_START`
	if !strings.Contains(log.String(), told) {
		t.Errorf("the worker logs\n%s", log.String())
	}
	if _, found := c.findings(); !slices.Contains(found, "stream_full") {
		t.Errorf("doctor finds %v", found)
	}
	const refused = "stream AGENTD_START takes no writes, because it is at a limit of its own (maximum bytes exceeded)"
	if _, told := c.agentd("run", "clerk", "--message", "hello", "--detach"); !strings.Contains(told, refused) {
		t.Errorf("who starts a run is told\n%s", told)
	}
}

// serve runs a worker until the test ends; ready is what it answers to /readyz.
func (c *clinic) serve() (ready func() string, log *output) {
	c.t.Helper()
	var out output
	log = &output{}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Free(c.t)))
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan int, 1)
	args := []string{"serve", "--http", address, "--config", c.config, "--nats", c.url}
	if c.redis != "" {
		args = append(args, "--redis", c.redis)
	}
	go func() { done <- execute(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: log}) }()
	c.t.Cleanup(func() {
		stop()
		<-done
	})
	return func() string {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}, log
}

func (c *clinic) until(what string, holds func() bool) {
	c.t.Helper()
	poll.Until(c.t, wait, what, holds)
}
