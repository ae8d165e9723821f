package httpguard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// one is a listener with one connection.
type one struct{ connections chan net.Conn }

func (o one) Accept() (net.Conn, error) {
	if c, ok := <-o.connections; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (o one) Close() error {
	close(o.connections)
	return nil
}

func (o one) Addr() net.Addr { return &net.TCPAddr{} }

// Whoever sends nothing more, or reads nothing, loses the connection.
func TestServer_KeepsNoSlowConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sent string
		want time.Duration
	}{
		"headers": {"POST / HTTP/1.1\r\nHost: x\r\n", 10 * time.Second},
		"a body":  {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", 30 * time.Second},
		"nothing": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, accepted := net.Pipe()
				l := one{make(chan net.Conn, 1)}
				l.connections <- accepted
				s := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						panic(http.ErrAbortHandler)
					}
					fmt.Fprintln(w, "ok")
				}), 0)
				done := make(chan error, 1)
				go func() { done <- s.Serve(l) }()
				begin := time.Now()
				if _, err := io.WriteString(client, test.sent); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, client) // until the server closes the connection
				if took := time.Since(begin); took != test.want {
					t.Errorf("the connection is closed after %s, want %s", took, test.want)
				}
				_ = s.Close()
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
