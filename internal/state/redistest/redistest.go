// Package redistest runs real redis-servers for tests.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startTimeout is how long a server may take to load its data.
const startTimeout = 20 * time.Second

// Server is a redis-server in a process and a folder of its own, which end with the test. Its methods are for one
// goroutine at a time.
type Server struct {
	t    testing.TB
	path string
	dir  string
	port int
	args []string
	// stop ends the process that runs now and waits for it; nil when none runs.
	stop func()
}

// Start starts a durable server (append-only file, synced at every write) and returns its URL.
func Start(t testing.TB) string {
	t.Helper()
	return StartServer(t).URL()
}

// StartServer starts a durable server on a free port of the loopback. Further arguments go to redis-server and override
// its settings, such as "--appendfsync", "everysec".
func StartServer(t testing.TB, args ...string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("this test needs a redis-server: install it with \"apt-get install redis-server\" (%v)", err)
	}
	s := &Server{t: t, path: path, dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	// Another process may take a free port before the server does.
	for range 5 {
		if s.port, err = freePort(); err != nil {
			t.Fatal(err)
		}
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

func freePort() (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return strconv.Atoi(port)
}

// Addr is the server's host and port, which stay the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address for clients.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Kill ends the server as a crash would (SIGKILL). It is harmless when the server does not run.
func (s *Server) Kill() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart starts the server again on the same port and folder, and kills it first if it runs. It returns when the server
// has loaded its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// start returns when the server answers.
func (s *Server) start() error {
	args := append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--daemonize", "no",
	}, s.args...)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, s.path, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return fmt.Errorf("start redis-server: %w", err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var log strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				close(ready)
				break
			}
		}
		for rest := bufio.NewScanner(out); rest.Scan(); {
			continue // a full pipe would stop the server
		}
		ended <- errors.Join(cmd.Wait(), errors.New(log.String()))
	}()
	s.stop = func() {
		cancel()
		<-ended // says that it was killed
	}
	select {
	case <-ready:
		return nil
	case err := <-ended:
		s.stop = nil
		cancel()
		return fmt.Errorf("redis-server ended: %w", err)
	case <-time.After(startTimeout):
		s.Kill()
		return fmt.Errorf("redis-server is not ready after %s", startTimeout)
	}
}
