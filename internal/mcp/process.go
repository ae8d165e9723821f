package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// inherited are the variables of the worker that a server gets beside its own: what programs need to be found and to run.
// Whatever else it is to know is in its env.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR", "SYSTEMROOT"}

const (
	// writeTimeout is how long a server may leave its stdin unread.
	writeTimeout = 10 * time.Second
	// exitTime is how long a server has to end after its stdin was closed.
	exitTime = 2 * time.Second
)

// process is a server on stdio. The process is ours and not the transport's, so that what it writes is bounded, a write
// that it does not read ends, and everything is released.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	exited chan struct{}
	once   sync.Once
	stderr *logWriter
}

func startProcess(ctx context.Context, s *ServerConfig, logger *slog.Logger) (*process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Command, s.Args...)
	cmd.Dir, cmd.Env = s.Dir, environment(s.Env)
	cmd.WaitDelay = exitTime
	stderr := &logWriter{logger: logger}
	cmd.Stderr = stderr
	ownGroup(cmd)
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start MCP server %s: %w", s.Name, err)
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start MCP server %s: %w", s.Name, err), childIn.Close(), stdin.Close())
	}
	cmd.Stdin, cmd.Stdout = childIn, childOut
	err = cmd.Start()
	closed := errors.Join(childIn.Close(), childOut.Close())
	if err = errors.Join(err, closed); err != nil {
		return nil, errors.Join(fmt.Errorf("start MCP server %s: %w", s.Name, err), stdin.Close(), stdout.Close())
	}
	p := &process{cmd: cmd, stdin: stdin, stdout: stdout, exited: make(chan struct{}), stderr: stderr}
	go func() {
		defer close(p.exited)
		if err := cmd.Wait(); err != nil {
			logger.Debug("MCP server ended", "error", err)
		}
	}()
	return p, nil
}

func environment(own map[string]string) []string {
	var env []string
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok && own[name] == "" {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// close ends the process: its stdin is closed, then it is killed with all that it started.
func (p *process) close() {
	p.once.Do(func() {
		_ = p.stdin.Close() // the transport may have done it
		select {
		case <-p.exited:
		case <-time.After(exitTime):
		}
		killGroup(p.cmd)
		<-p.exited
		_ = p.stdout.Close() // its reader has ended
	})
}

// timely gives up a write that nobody reads, and says so: half of a line may be written, and no other can follow it.
type timely struct {
	*os.File
	timeout time.Duration
	failed  func(error)

	mu sync.Mutex
}

// Write writes one line. It waits for others that are written.
func (t *timely) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.SetWriteDeadline(time.Now().Add(t.timeout))
	n := 0
	if err == nil {
		n, err = t.File.Write(p)
	}
	if err != nil {
		t.failed(err)
	}
	return n, err
}

var errFlood = errors.New("the server sent a line that is longer than a message may be")

// lines ends with errFlood at a line that is longer than maxMessage.
type lines struct {
	r io.Reader
	n int
}

func (l *lines) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for _, b := range p[:n] {
		if l.n++; b == '\n' {
			l.n = 0
		}
	}
	if l.n > maxMessage {
		return 0, errFlood
	}
	return n, err
}

// maxLogged is what is logged of one write of a server to its stderr.
const maxLogged = 4 << 10

// maxKept is how much of what a server wrote to its stderr is kept, to say why it could not be connected.
const maxKept = 1 << 10

type logWriter struct {
	logger *slog.Logger

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (w *logWriter) Write(p []byte) (int, error) {
	w.logger.Debug("MCP server says", "text", string(p[:min(len(p), maxLogged)]))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p[max(0, len(p)-maxKept):]...)
	w.kept = w.kept[max(0, len(w.kept)-maxKept):]
	return len(p), nil
}

// last is the end of what was written, as one line.
func (w *logWriter) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(w.kept), "?")), " ")
}
