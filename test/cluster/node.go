package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"agentd/test/proxy"
)

// Node is one server of a cluster. Its methods are for one goroutine at a time.
type Node struct {
	// Name is the server's name, by which streams name their leaders.
	Name string
	// Monitor is the base URL of its monitoring port.
	Monitor string

	dir, config string
	// client is what its clients connect to, direct where it listens; routes are between it and the others, both ways.
	client *proxy.Proxy
	direct string
	routes []*proxy.Proxy

	process *os.Process
	input   io.WriteCloser
	ended   chan struct{}
	log     *os.File
}

// URL is where clients reach the server.
func (n *Node) URL() string { return "nats://" + n.client.Address() }

// Direct is where who is not hurt with the clients reaches it.
func (n *Node) Direct() string { return "nats://" + n.direct }

// Begin starts the process, and returns before it is ready.
func (n *Node) Begin() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), configVariable+"="+n.config)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	if n.input, err = cmd.StdinPipe(); err == nil { // held open until the process has ended: it would end if this one did
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start server %s: %w", n.Name, err)
	}
	n.process, n.ended = cmd.Process, make(chan struct{})
	ended := n.ended
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(ended)
	}()
	return nil
}

// startTimeout is how long a server may take to load its data and to catch up with the others.
const startTimeout = time.Minute

// Ready waits until the server has all that the cluster has.
func (n *Node) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := n.healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-n.ended:
			return fmt.Errorf("server %s ended while it started; see %s", n.Name, n.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("server %s is not ready: %w", n.Name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n *Node) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Monitor+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", response.Status, text))
	}
	return errors.Join(err, response.Body.Close())
}

// Kill ends the process at once (SIGKILL) and waits for its end.
func (n *Node) Kill() { n.end(syscall.SIGKILL) }

// Terminate ends the process as an operator does.
func (n *Node) Terminate() { n.end(syscall.SIGTERM) }

func (n *Node) end(s syscall.Signal) {
	n.signal(s)
	<-n.ended
	_ = n.input.Close() // nobody reads it any more
}

// Freeze stops the process (SIGSTOP): its connections stay, and nothing is answered. Thaw lets it go on.
func (n *Node) Freeze() { n.signal(syscall.SIGSTOP) }

// Thaw ends a freeze.
func (n *Node) Thaw() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s syscall.Signal) {
	_ = n.process.Signal(s) // it may have ended
}

// LoseDisk deletes what the server has stored. It must have ended.
func (n *Node) LoseDisk() error { return os.RemoveAll(filepath.Join(n.dir, "data")) }

// CutOff cuts the server off from the others, not from its clients: packets are lost. Rejoin ends that.
func (n *Node) CutOff() {
	for _, r := range n.routes {
		r.Silence()
	}
}

// Rejoin ends what CutOff began.
func (n *Node) Rejoin() {
	for _, r := range n.routes {
		r.Speak()
	}
}

// Clients is the proxy between the server and its clients.
func (n *Node) Clients() *proxy.Proxy { return n.client }
