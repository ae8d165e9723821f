package interop

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"agentd/test/capture"
)

// process is a running program.
type process struct {
	cmd  *exec.Cmd
	stop func()
	log  capture.Output
}

// run starts a program against the server at host as the user that docs/services.md describes. It is killed at the end of
// the test, with whatever it started.
func run(t *testing.T, c command, host string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(c.args[0], c.args[1:]...)}
	p.cmd.Env = append(os.Environ(), "NATS_URL=nats://"+host, "NATS_USER=weather", "NATS_PASSWORD=cold")
	p.cmd.Env = append(p.cmd.Env, c.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = sync.OnceFunc(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the group that this process leads
		_ = p.cmd.Wait()                                      // it was killed
	})
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", c.args, p.log.String())
		}
	})
	return p
}

// cut is a proxy in front of the server. What clients send comes to a halt, for good, before the first message whose
// protocol line contains mark: so a program can be killed between two things that it does.
type cut struct {
	host string
	mark []byte
	// reached is closed when the mark has been seen.
	reached chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

func newCut(t *testing.T, server, mark string) *cut {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{host: listener.Addr().String(), mark: []byte(mark), reached: make(chan struct{})}
	c.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.pass(client, server) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		c.wg.Wait()
	})
	return c
}

// pass connects a client with the server until one of them is gone.
func (c *cut) pass(client net.Conn, server string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	c.wg.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, upstream) // it ends with the connection
	})
	defer upstream.Close()
	buffer := make([]byte, 64<<10)
	var held []byte
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		// What may be the beginning of the mark is held back until the rest shows.
		held = append(held, buffer[:n]...)
		if bytes.Contains(held, c.mark) {
			c.once.Do(func() { close(c.reached) })
		}
		select {
		case <-c.reached:
			continue
		default:
		}
		end := bytes.LastIndexByte(held, '\n') + 1
		if _, err := upstream.Write(held[:end]); err != nil {
			return
		}
		held = held[end:]
	}
}
