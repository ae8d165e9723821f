package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// program is a process of whoever is tried.
type program struct {
	cmd *exec.Cmd
	// ended is closed when the process is gone.
	ended chan struct{}
	// asked is set when the process was asked to end.
	asked bool
}

// start starts the service's program at a server.
func start(o Options, url string) (*program, error) {
	return launch(o.Command, append([]string{"NATS_URL=" + url}, o.Environ...), func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = o.Output, o.Output
		return nil
	})
}

// launch starts a program that learns of nothing but these variables where NATS is. connect says what it reads and where it prints.
func launch(command, environ []string, connect func(*exec.Cmd) error) (*program, error) {
	p := &program{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})} //nolint:noctx // it is what the user asked for, and kill ends it
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "NATS_") && !strings.HasPrefix(e, "AGENTD_") {
			p.cmd.Env = append(p.cmd.Env, e)
		}
	}
	p.cmd.Env = append(p.cmd.Env, environ...)
	if err := connect(p.cmd); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// over reports whether the process is gone.
func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end says how the process ended.
func (p *program) end() string { return p.cmd.ProcessState.String() }

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *program) kill() {
	p.asked = true
	_ = p.cmd.Process.Kill() // unless it is gone already
	<-p.ended
}

// terminate asks the process to end. The error says that this system cannot.
func (p *program) terminate() error {
	p.asked = true
	return p.cmd.Process.Signal(syscall.SIGTERM)
}
