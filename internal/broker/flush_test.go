package broker

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"agentd/internal/broker/embedded"

	"github.com/nats-io/nats.go"
)

// cutting is a server whose connections are cut while the client waits for the answer to its next ping.
type cutting struct {
	InProcess
	next atomic.Bool
}

func (c *cutting) InProcessConn() (net.Conn, error) {
	conn, err := c.InProcess.InProcessConn()
	return &cut{conn, c}, err
}

type cut struct {
	net.Conn
	by *cutting
}

func (c *cut) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte("PING")) && c.by.next.CompareAndSwap(true, false) {
		return len(data), c.Close()
	}
	return c.Conn.Write(data)
}

// A connection that is lost while somebody begins to listen comes back: it is not closed.
func TestTail_AConnectionThatIsLostIsNotClosed(t *testing.T) {
	t.Parallel()
	s := &cutting{InProcess: startServer(t, embedded.Options{})}
	c := connect(t, ConnectOptions{InProcess: s})
	s.next.Store(true)
	if _, err := c.Tail("x", func(string, map[string][]string, []byte) {}); !errors.Is(err, nats.ErrDisconnected) || Closed(err) {
		t.Errorf("it fails with %v", err)
	}
}
