package broker

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/embedded"
)

// cutting is a server whose connections are cut, while that is on, whenever a client asks for an answer to a ping: the client's own pings
// are cut as those are that a test is about. A connection that begins is not: it is there again until its first ping.
type cutting struct {
	InProcess
	on atomic.Bool
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
	if c.by.on.Load() && bytes.Contains(data, []byte("PING")) && !bytes.HasPrefix(data, []byte("CONNECT")) {
		return len(data), c.Close()
	}
	return c.Conn.Write(data)
}

// A connection that is lost while somebody begins to listen comes back: it is not closed.
func TestTail_AConnectionThatIsLostIsNotClosed(t *testing.T) {
	t.Parallel()
	s := &cutting{InProcess: startServer(t, embedded.Options{})}
	c := connect(t, ConnectOptions{InProcess: s})
	s.on.Store(true)
	_, err := c.Tail("x", func(string, map[string][]string, []byte) {})
	s.on.Store(false)
	if !errors.Is(err, nats.ErrDisconnected) || Closed(err) {
		t.Errorf("it fails with %v", err)
	}
	eventually(t, "it is connected again", c.Connected)
}
