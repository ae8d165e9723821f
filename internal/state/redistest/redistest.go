// Package redistest runs real redis-servers for tests: the one on PATH, or one in Docker.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentd/test/missing"
	"agentd/test/ports"
)

const loopback = "127.0.0.1"

// startTimeout is how long a server may take to load its data.
const startTimeout = time.Minute

// Server is a redis-server in a process and a folder of its own, which end with the test. Its methods are for one
// goroutine at a time.
type Server struct {
	t      testing.TB
	engine engine
	dir    string
	port   int
	// arguments are those of redis-server on s.port.
	arguments func() ([]string, error)
	// ready is what the server logs when it answers.
	ready string
	// signal sends a signal to the process that runs now.
	signal func(syscall.Signal) error
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
	s := newServer(t, args...)
	s.findEngine()
	s.startFirst()
	return s
}

func newServer(t testing.TB, args ...string) *Server {
	s := &Server{t: t, dir: t.TempDir(), ready: "Ready to accept connections"}
	s.arguments = func() ([]string, error) {
		return append([]string{
			"--port", strconv.Itoa(s.port), "--bind", loopback, "--dir", s.dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction",
		}, args...), nil
	}
	return s
}

// StartReplica starts a replica of a server, and returns when it has what the server had.
func StartReplica(t testing.TB, master *Server) *Server {
	t.Helper()
	s := newServer(t, "--replicaof", loopback+" "+strconv.Itoa(master.port))
	s.ready = "Finished with success"
	s.findEngine()
	s.startFirst()
	return s
}

// StartSentinel starts a sentinel that watches master under a name.
func StartSentinel(t testing.TB, name string, master *Server) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), ready: "+monitor master"}
	s.arguments = func() ([]string, error) {
		file := filepath.Join(s.dir, "sentinel.conf")
		text := fmt.Sprintf("port %d\nbind %s\ndir %s\nsentinel monitor %s %s %d 1\n", s.port, loopback, s.dir, name, loopback, master.port)
		return []string{file, "--sentinel"}, os.WriteFile(file, []byte(text), 0o600)
	}
	s.findEngine()
	s.startFirst()
	return s
}

// findEngine ends the test where no redis-server can be run.
func (s *Server) findEngine() {
	s.t.Helper()
	var err error
	if s.engine, err = find(); err != nil {
		missing.Required(s.t, err.Error())
	}
}

// startFirst starts the server on a port of its own.
func (s *Server) startFirst() {
	s.t.Helper()
	var err error
	s.t.Cleanup(s.Kill)
	// Another process may take a free port before the server does.
	for range 5 {
		if s.port, err = ports.Find(context.Background()); err == nil {
			err = s.start()
		}
		if err == nil {
			return
		}
	}
	s.t.Fatal(err)
}

// Addr is the server's host and port, which stay the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// URL is the server's address for clients.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Kill ends the server as a crash would (SIGKILL). It is harmless when the server does not run.
func (s *Server) Kill() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Pause stops the server as a stalled machine would: its connections stay, and it does not answer (SIGSTOP).
func (s *Server) Pause() { s.send(syscall.SIGSTOP) }

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() { s.send(syscall.SIGCONT) }

func (s *Server) send(sig syscall.Signal) {
	s.t.Helper()
	if err := s.signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v", err)
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

// Wipe ends the server as a crash would, and starts it again with nothing of what it had: its disk is lost.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Kill()
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// start returns when the server answers.
func (s *Server) start() error {
	args, err := s.arguments()
	if err != nil {
		return fmt.Errorf("configure redis-server: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd, signal := s.engine(ctx, s.dir, args)
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return fmt.Errorf("start redis-server: %w", err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	var exit error // set before ended is closed
	go func() {
		var log strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), s.ready) {
				close(ready)
				break
			}
		}
		_, err := io.Copy(io.Discard, out) // a full pipe would stop the server
		exit = errors.Join(err, cmd.Wait(), errors.New(log.String()))
		close(ended)
	}()
	s.signal = signal
	s.stop = func() {
		cancel()
		<-ended
	}
	select {
	case <-ready:
		return nil
	case <-ended:
		s.stop = nil
		cancel()
		return fmt.Errorf("redis-server ended: %w", exit)
	case <-time.After(startTimeout):
		s.Kill()
		return fmt.Errorf("redis-server is not ready after %s", startTimeout)
	}
}
