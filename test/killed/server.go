// Package killed runs an embedded NATS server in a process of its own, so that tests can kill it.
package killed

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/test/ports"
)

// These name the folder and the port of the server that a process is to be.
const (
	folderVariable = "AGENTD_TEST_NATS_FOLDER"
	portVariable   = "AGENTD_TEST_NATS_PORT"
)

// Main is for TestMain: where Server has asked for it, it makes this process a server, and does not return.
func Main() {
	dir, ok := os.LookupEnv(folderVariable)
	if !ok {
		return
	}
	port, err := strconv.Atoi(os.Getenv(portVariable))
	var s *embedded.Server
	if err == nil {
		s, err = embedded.Start(embedded.Options{Dir: dir, Listen: true, Port: port, PortOnly: true})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // the test has closed it, or is gone
	_ = s.Close()
	os.Exit(0)
}

// Server is a process. Its address stays the same when it is started again. Its methods are for one goroutine.
type Server struct {
	t testing.TB
	// Dir is its folder, which may be changed while it does not run.
	Dir string
	// Traced, unless empty, is a file to which strace writes the calls that have the disk written.
	Traced string

	port    int
	command *exec.Cmd
	input   io.Closer
}

// New makes a server that Start starts, and that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir()}
	var err error
	s.port, err = ports.Find(t.Context())
	s.check(err)
	t.Cleanup(s.Kill)
	return s
}

func (s *Server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("NATS server: %v", err)
	}
}

// URL is where clients reach it.
func (s *Server) URL() string { return "nats://" + s.address() }

func (s *Server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// startTimeout is how long a server may take to load its data.
const startTimeout = time.Minute

// Start starts the process, and returns when clients can connect.
func (s *Server) Start() {
	s.t.Helper()
	self, err := os.Executable()
	s.check(err)
	program, arguments := self, []string{"-test.run=^$"}
	if s.Traced != "" {
		// The tracer is not the parent: the process that is killed is the server.
		program, arguments = "strace", append([]string{"-D", "-f", "-qq", "-y", "-e", "trace=fsync,fdatasync", "-o", s.Traced, self}, arguments...)
	}
	s.command = exec.CommandContext(context.WithoutCancel(s.t.Context()), program, arguments...)
	s.command.Env = append(os.Environ(), folderVariable+"="+s.Dir, portVariable+"="+strconv.Itoa(s.port))
	s.command.Stderr = os.Stderr
	s.input, err = s.command.StdinPipe()
	s.check(err)
	s.check(s.command.Start())
	var dialer net.Dialer
	for late := time.Now().Add(startTimeout); ; <-time.After(5 * time.Millisecond) {
		conn, err := dialer.DialContext(s.t.Context(), "tcp", s.address())
		if err == nil {
			_ = conn.Close() // nothing was sent
			return
		}
		if time.Now().After(late) {
			s.t.Fatalf("the NATS server does not start: %v", err)
		}
	}
}

// Kill kills the process, as kill -9 does: what it has not handed to the operating system is gone. It may be repeated.
func (s *Server) Kill() {
	if s.command == nil {
		return
	}
	_ = s.command.Process.Kill()
	s.ended()
}

// Stop ends the process in good order.
func (s *Server) Stop() {
	_ = s.input.Close()
	s.ended()
}

func (s *Server) ended() {
	_ = s.command.Wait() // it says how it ended, which is known
	s.command = nil
}
