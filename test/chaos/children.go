package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// child is a process that can be killed and started again. Its methods are safe for concurrent use.
type child struct {
	name string

	mu      sync.Mutex
	process *os.Process
	// ended is closed when the process has ended and its notes are read.
	ended chan struct{}
	code  int
}

// startChild starts a command. onNote gets the notes that it writes; nil is a program of others, that writes none.
func startChild(name string, cmd *exec.Cmd, log *os.File, onNote func(note)) (*child, error) {
	c := &child{name: name, ended: make(chan struct{})}
	cmd.Stderr = log
	if onNote == nil {
		cmd.Stdout = log
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		c.process = cmd.Process
		go c.wait(cmd)
		return c, nil
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// Held open until the process has ended: it would end if this one did.
	if _, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.process = cmd.Process
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n note
			if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
				fmt.Fprintf(log, "%s\n", lines.Bytes()) // not of ours, such as what a test binary prints
				continue
			}
			n.Worker = name
			onNote(n)
		}
		c.wait(cmd)
	}()
	return c, nil
}

func (c *child) wait(cmd *exec.Cmd) {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		c.code = exit.ExitCode() // -1 is a signal
	}
	c.process = nil
	close(c.ended)
}

// signal sends a signal, unless the process has ended.
func (c *child) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return
	}
	_ = c.process.Signal(s) // it may end at this very moment
}

// kill ends the process and waits for its end.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.ended
}

// exitCode is that of a process that has ended: -1 after a signal.
func (c *child) exitCode() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.code
}
