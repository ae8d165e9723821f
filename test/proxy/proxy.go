// Package proxy is a TCP proxy that cuts connections, goes silent, and is slow.
package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy passes TCP connections on to a server. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	conns  map[net.Conn]net.Conn
	closed bool
	// silent, unless nil, is closed when bytes pass again.
	silent chan struct{}
	// rate is how many bytes a second pass each connection each way; 0 is as many as come.
	rate    atomic.Int64
	serving sync.WaitGroup
}

// New listens on a port of its own and passes on to target, a host and port. The caller closes it.
func New(ctx context.Context, target string) (*Proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]net.Conn{}}
	p.serving.Go(p.accept)
	return p, nil
}

// Address is the host and port to connect to.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.serving.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	d := net.Dialer{Timeout: time.Second}
	server, err := d.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close() // the server is away: so is the proxy
		return
	}
	if !p.add(client, server) {
		_, _ = client.Close(), server.Close()
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.pass(server, client) })
	ways.Go(func() { p.pass(client, server) })
	ways.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	p.mu.Unlock()
}

// add reports whether the proxy still serves.
func (p *Proxy) add(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[client] = server
	}
	return !p.closed
}

// pass copies one way until either end goes away.
func (p *Proxy) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.whileSilent()
		p.whileSlow(n)
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

func (p *Proxy) whileSilent() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// whileSlow lasts as long as n bytes take on a slow network.
func (p *Proxy) whileSlow(n int) {
	if rate := p.rate.Load(); rate > 0 {
		<-time.After(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

// Cut ends the connections that chosen picks, as a dying network does.
func (p *Proxy) Cut(chosen func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, server := range p.conns {
		if chosen() {
			_, _ = client.Close(), server.Close() // either may be closed already
		}
	}
}

// Silence keeps all bytes until Speak, as a network does that loses packets: both ends believe to be connected.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == nil {
		p.silent = make(chan struct{})
	}
}

// Speak ends a silence: what was kept passes.
func (p *Proxy) Speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent != nil {
		close(p.silent)
		p.silent = nil
	}
}

// Slow lets so many bytes a second pass on each connection each way: who sends more waits, and who is to receive more lags. 0 ends that.
func (p *Proxy) Slow(bytesPerSecond int) { p.rate.Store(int64(bytesPerSecond)) }

// Close ends all connections. It may be repeated.
func (p *Proxy) Close() {
	_ = p.listener.Close() // closing it is all that is wanted
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Speak()
	p.Cut(func() bool { return true })
	p.serving.Wait()
}
