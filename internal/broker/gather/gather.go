// Package gather has connections whose writes are gathered: what several have to say at once is one write.
package gather

import (
	"errors"
	"net"
	"os"
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
	// A turn of the others that takes longer than longTurn is the last one for hastyFor.
	longTurn = 50 * time.Millisecond
	hastyFor = time.Second
)

// Dialer dials connections whose writes are gathered.
type Dialer struct{ net.Dialer }

// Dial implements nats.CustomDialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return gather(conn), nil
}

// Server is a server in this process, to which writes are gathered.
type Server struct{ nats.InProcessConnProvider }

// InProcessConn implements nats.InProcessConnProvider.
func (s Server) InProcessConn() (net.Conn, error) {
	conn, err := s.InProcessConnProvider.InProcessConn()
	if err != nil {
		return nil, err
	}
	return gather(conn), nil
}

// gathered lets the goroutines that can run have their turn before it writes. The NATS client writes after each message, as soon as who
// published it waits for the answer: a worker that drives many runs would make a system call for each, its server another to read it, and
// wake up for it. Here the bytes wait for those of others: where one run is under way nobody else can run, and nothing waits; with many, a
// write has what several of them have to say.
//
// What Write has taken is lost when the connection is, as are bytes in the kernel's buffer: whoever must know waits for an answer.
type gathered struct {
	net.Conn

	mu sync.Mutex
	// changed is signalled when pending was taken, and when nothing is written any more.
	changed *sync.Cond
	// pending are the bytes to write next; spare is the buffer that was written before, to be filled again.
	pending, spare []byte
	// writing says that a goroutine writes what is pending. While nothing is there is none: the client forgets connections on which it
	// was refused without closing them, and the collector closes only what no goroutine holds.
	writing bool
	// until is how long Write may wait for room; zero is for ever.
	until time.Time
	// hasty is until when nobody is given a turn.
	hasty time.Time
	// err is why a write failed: nothing can be written after it.
	err    error
	closed bool
}

// gather returns a connection that owns conn.
func gather(conn net.Conn) *gathered {
	g := &gathered{Conn: conn}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// Write takes p to be written. Its error is that of an earlier write.
func (g *gathered) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.waitForRoom(); err != nil {
		return 0, err
	}
	g.pending = append(g.pending, p...)
	if !g.writing {
		g.writing = true
		go g.write()
	}
	return len(p), nil
}

func (g *gathered) waitForRoom() error {
	for {
		switch {
		case g.err != nil:
			return g.err
		case g.closed:
			return net.ErrClosed
		case len(g.pending) < mostGathered:
			return nil
		case g.until.IsZero():
			g.changed.Wait()
		case !time.Now().Before(g.until):
			return os.ErrDeadlineExceeded
		default:
			late := time.AfterFunc(time.Until(g.until), g.changed.Broadcast)
			g.changed.Wait()
			late.Stop()
		}
	}
}

// write writes until nothing is pending, or the connection fails.
func (g *gathered) write() {
	for {
		g.yield()
		out := g.take()
		if out == nil {
			return
		}
		if _, err := g.Conn.Write(out); err != nil {
			g.fail(err)
			return
		}
		g.give(out)
	}
}

// yield lets others have their turn. In a process whose processors are taken that is long, and nobody is given one for a while.
func (g *gathered) yield() {
	start := time.Now()
	if start.Before(g.hasty) {
		return
	}
	runtime.Gosched()
	if time.Since(start) > longTurn {
		g.hasty = start.Add(hastyFor)
	}
}

// take takes what is pending; nil is that nothing is, and nobody writes any more.
func (g *gathered) take() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changed.Broadcast()
	if len(g.pending) == 0 {
		g.writing = false
		return nil
	}
	var out []byte
	out, g.pending, g.spare = g.pending, g.spare, nil
	if !g.closed {
		_ = g.Conn.SetWriteDeadline(time.Now().Add(nats.DefaultFlusherTimeout)) // Write says it too
	}
	return out
}

// give returns a buffer that was written, unless a large message has made it large.
func (g *gathered) give(out []byte) {
	if cap(out) > 2*mostGathered {
		return
	}
	g.mu.Lock()
	g.spare = out[:0]
	g.mu.Unlock()
}

// fail closes the connection, which has who reads from it notice.
func (g *gathered) fail(err error) {
	g.mu.Lock()
	g.err, g.pending, g.writing = err, nil, false
	g.changed.Broadcast()
	g.mu.Unlock()
	_ = g.Conn.Close() // the error that counts is there
}

// Read reads. Where a write has failed its error is why.
func (g *gathered) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.err != nil && !g.closed {
			err = g.err
		}
	}
	return n, err
}

// Close writes what is pending, if the other side takes it, and closes the connection.
func (g *gathered) Close() error {
	g.mu.Lock()
	g.closed = true
	_ = g.Conn.SetWriteDeadline(time.Now().Add(closeWithin)) // else it is closed already
	g.changed.Broadcast()
	for g.writing {
		g.changed.Wait()
	}
	g.mu.Unlock()
	return g.Conn.Close()
}

// SetWriteDeadline bounds how long Write waits for room. What it has taken has a deadline of its own.
func (g *gathered) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = t
	g.changed.Broadcast()
	return nil
}

// SetDeadline sets the deadlines of Read and Write.
func (g *gathered) SetDeadline(t time.Time) error {
	return errors.Join(g.SetReadDeadline(t), g.SetWriteDeadline(t))
}
