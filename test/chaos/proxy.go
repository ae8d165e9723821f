package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// proxy passes TCP connections on to a server, cuts them, and goes silent.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]net.Conn
	// silent, unless nil, is closed when bytes pass again.
	silent  chan struct{}
	serving sync.WaitGroup
}

func newProxy(ctx context.Context, target string) (*proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]net.Conn{}}
	p.serving.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
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

func (p *proxy) connect(client net.Conn) {
	d := net.Dialer{Timeout: time.Second}
	server, err := d.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close() // the server is away: so is the proxy
		return
	}
	p.mu.Lock()
	p.conns[client] = server
	p.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { p.pass(server, client) })
	ways.Go(func() { p.pass(client, server) })
	ways.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	p.mu.Unlock()
}

// pass copies one way until either end goes away.
func (p *proxy) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.whileSilent()
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

func (p *proxy) whileSilent() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// cut ends the connections that chosen picks, as a dying network does.
func (p *proxy) cut(chosen func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, server := range p.conns {
		if chosen() {
			_, _ = client.Close(), server.Close() // either may be closed already
		}
	}
}

// mute keeps all bytes for a while.
func (p *proxy) mute(ctx context.Context, d time.Duration) {
	silent := make(chan struct{})
	p.mu.Lock()
	p.silent = silent
	p.mu.Unlock()
	pause(ctx, d)
	p.mu.Lock()
	p.silent = nil
	p.mu.Unlock()
	close(silent)
}

func (p *proxy) close() {
	_ = p.listener.Close() // closing it is all that is wanted
	p.cut(func() bool { return true })
	p.serving.Wait()
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
