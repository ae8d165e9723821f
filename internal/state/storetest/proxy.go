package storetest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy passes a store's connections on to its server, and loses answers on demand: the server has done what it was
// asked, and the store cannot know.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	network  string
	target   string

	mu    sync.Mutex
	conns map[net.Conn]net.Conn
	fault fault
	lost  chan struct{}
	wg    sync.WaitGroup
}

// fault is what becomes of answers.
type fault int

const (
	none    fault = iota // they are passed on
	mute                 // they are swallowed
	cutNext              // the next one is, and its connection is cut
)

// NewProxy listens on a free port of the loopback and passes connections on to target until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listener: l, network: "tcp", target: target, conns: map[net.Conn]net.Conn{}, lost: make(chan struct{}, 1)}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Mute swallows every answer from now on, and accepts requests as before.
func (p *Proxy) Mute() { p.set(mute) }

// CutNext swallows the next answer and cuts the connection that it came on. Other connections work.
func (p *Proxy) CutNext() { p.set(cutNext) }

// Lost returns a channel that receives when an answer was swallowed since Mute or CutNext.
func (p *Proxy) Lost() <-chan struct{} { return p.lost }

// Heal cuts all connections, as some have lost bytes, and passes new ones on again.
func (p *Proxy) Heal() {
	p.set(none)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAll()
}

func (p *Proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	select {
	case <-p.lost:
	default:
	}
}

// cutAll closes all connections; p.mu is held.
func (p *Proxy) cutAll() {
	for client, server := range p.conns {
		p.report(client.Close())
		p.report(server.Close())
	}
	clear(p.conns)
}

func (p *Proxy) report(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		p.t.Errorf("proxy: %v", err)
	}
}

func (p *Proxy) close() {
	p.report(p.listener.Close())
	p.mu.Lock()
	p.cutAll()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			p.report(err)
			return
		}
		var d net.Dialer
		server, err := d.DialContext(context.Background(), p.network, p.target)
		if err != nil {
			p.report(client.Close()) // the server is away: so is the proxy
			continue
		}
		p.mu.Lock()
		p.conns[client] = server
		p.mu.Unlock()
		p.wg.Go(func() {
			_, _ = io.Copy(server, client) // either end may go away at any time
			p.drop(client)
		})
		p.wg.Go(func() { p.answers(client, server) })
	}
}

func (p *Proxy) answers(client, server net.Conn) {
	defer p.drop(client)
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		switch p.outcome() {
		case cutNext:
			return
		case mute:
			continue
		case none:
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// outcome is what happens to one answer.
func (p *Proxy) outcome() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f == none {
		return f
	}
	if f == cutNext {
		p.fault = none
	}
	select {
	case p.lost <- struct{}{}:
	default:
	}
	return f
}

func (p *Proxy) drop(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if server, ok := p.conns[client]; ok {
		p.report(client.Close())
		p.report(server.Close())
		delete(p.conns, client)
	}
}
