package broker

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// mostGathered is how many bytes may wait before who writes more waits too.
	mostGathered = 64 << 10
	// closeWithin bounds the last write of a connection that is closed: what is worth waiting for was flushed before.
	closeWithin = 100 * time.Millisecond
)

// gatheringDialer dials connections whose writes are gathered.
type gatheringDialer struct{ net.Dialer }

// Dial implements nats.CustomDialer.
func (d *gatheringDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return gather(conn), nil
}

// gatheringServer is a server in this process, to which writes are gathered.
type gatheringServer struct{ InProcess }

// InProcessConn implements nats.InProcessConnProvider.
func (s gatheringServer) InProcessConn() (net.Conn, error) {
	conn, err := s.InProcess.InProcessConn()
	if err != nil {
		return nil, err
	}
	return gather(conn), nil
}

// gatheredConn writes when nothing else in the process can run. The NATS client writes after each message, as soon as who published it
// waits for the answer: a worker that drives many runs would make a system call for each, its server another to read it, and wake up for
// it. Here the bytes wait until the goroutines that can run have had their turn, which add theirs: with one run there are none, and nothing
// waits; with many, a write has what several of them have to say.
//
// What Write has taken is lost when the connection is, as are bytes in the kernel's buffer: whoever must know waits for an answer.
type gatheredConn struct {
	net.Conn
	// wake has a token when there may be something to write.
	wake chan struct{}
	// done is closed when nothing is written any more.
	done chan struct{}

	mu sync.Mutex
	// room is signalled when pending was taken.
	room *sync.Cond
	// pending are the bytes to write next; spare is the buffer that was written before, to be filled again.
	pending, spare []byte
	// err is why a write failed: nothing can be written after it.
	err    error
	closed bool
}

// gather returns a connection that owns conn.
func gather(conn net.Conn) *gatheredConn {
	g := &gatheredConn{Conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	g.room = sync.NewCond(&g.mu)
	go g.write()
	return g
}

// Write takes p to be written. Its error is that of an earlier write.
func (g *gatheredConn) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.pending) >= mostGathered && g.err == nil && !g.closed {
		g.room.Wait()
	}
	switch {
	case g.err != nil:
		return 0, g.err
	case g.closed:
		return 0, net.ErrClosed
	}
	g.pending = append(g.pending, p...)
	g.signal()
	return len(p), nil
}

func (g *gatheredConn) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// write writes what is pending, until the connection fails or is closed.
func (g *gatheredConn) write() {
	defer close(g.done)
	for range g.wake {
		runtime.Gosched()
		out, last := g.take()
		if len(out) > 0 {
			_, err := g.Conn.Write(out)
			if last = last || err != nil; err != nil {
				g.fail(err)
			}
		}
		if last {
			return
		}
		g.give(out)
	}
}

// take takes what is pending, and says whether it is the last.
func (g *gatheredConn) take() (out []byte, last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	out, g.pending, g.spare = g.pending, g.spare, nil
	g.room.Broadcast()
	if !g.closed {
		_ = g.Conn.SetWriteDeadline(time.Now().Add(nats.DefaultFlusherTimeout)) // Write says it too
	}
	return out, g.closed
}

// give returns a buffer that was written, unless a large message has made it large.
func (g *gatheredConn) give(out []byte) {
	if cap(out) > 2*mostGathered {
		return
	}
	g.mu.Lock()
	g.spare = out[:0]
	g.mu.Unlock()
}

// fail closes the connection, which has who reads from it notice.
func (g *gatheredConn) fail(err error) {
	g.mu.Lock()
	g.err = err
	g.room.Broadcast()
	g.mu.Unlock()
	_ = g.Conn.Close() // the error that counts is there
}

// Close writes what is pending, if the other side takes it, and closes the connection.
func (g *gatheredConn) Close() error {
	g.mu.Lock()
	g.closed = true
	_ = g.Conn.SetWriteDeadline(time.Now().Add(closeWithin)) // else it is closed already
	g.room.Broadcast()
	g.signal()
	g.mu.Unlock()
	<-g.done
	return g.Conn.Close()
}

// SetWriteDeadline does nothing: Write does not wait for the other side, and what is written later has a deadline of its own.
func (g *gatheredConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is for reading only, as SetWriteDeadline says.
func (g *gatheredConn) SetDeadline(t time.Time) error { return g.SetReadDeadline(t) }
