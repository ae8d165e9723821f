package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// unread is the stdin of a server that reads only while it is told to.
type unread struct {
	lines  chan string
	reads  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (u *unread) Write(p []byte) (int, error) {
	u.lines <- string(p)
	select {
	case <-u.reads:
		return len(p), nil
	case <-u.closed:
		return 0, os.ErrClosed
	}
}

func (u *unread) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}

// tapStdio returns a connection over pipes, with what a server would write to.
func tapStdio(t *testing.T) (*connection, *stdioTap, *unread, io.Writer) {
	t.Helper()
	in, server := io.Pipe()
	stdin := &unread{lines: make(chan string, 2*maxRequests), reads: make(chan struct{}), closed: make(chan struct{})}
	c := &connection{logger: slog.New(slog.DiscardHandler), stopListening: func() {}}
	tap := newStdioTap(c, in, stdin)
	c.Client = client.NewClient(tap)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, tap, stdin, server
}

// receive waits for something.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing comes")
	}
	return value
}

// A server may ask as often as it likes, one after the other.
func TestStdioTap_AnswersAgainAndAgain(t *testing.T) {
	t.Parallel()
	_, _, stdin, server := tapStdio(t)
	for i := range 4 * maxRequests {
		pingFrom(t, server, i)
		if line, want := receive(t, stdin.lines), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", i); line != want {
			t.Fatalf("the answer is %s, want %s", line, want)
		}
		stdin.reads <- struct{}{}
	}
}

// A server that has more requests under way than are answered at once is lost; one that has as many is not.
func TestStdioTap_LosesAServerThatAsksTooMuch(t *testing.T) {
	t.Parallel()
	c, _, stdin, server := tapStdio(t)
	for i := range maxRequests {
		pingFrom(t, server, i)
		receive(t, stdin.lines)
	}
	if c.lost.Load() {
		t.Fatalf("the connection is lost with %d requests under way", maxRequests)
	}
	pingFrom(t, server, maxRequests)
	receive(t, stdin.closed)
	if c.alive() {
		t.Error("the connection lives")
	}
}

func pingFrom(t *testing.T, server io.Writer, id int) {
	t.Helper()
	if _, err := fmt.Fprintf(server, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id); err != nil {
		t.Fatal(err)
	}
}

// A request that nobody knows how to answer is answered so.
func TestStdioTap_RefusesWhatIsNotOffered(t *testing.T) {
	t.Parallel()
	_, _, stdin, server := tapStdio(t)
	if _, err := io.WriteString(server, `{"jsonrpc":"2.0","id":"a","method":"roots/list"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	want := `{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"no roots handler configured"}}` + "\n"
	if line := receive(t, stdin.lines); line != want {
		t.Errorf("the answer is %s, want %s", line, want)
	}
	stdin.reads <- struct{}{}
}

// Whatever is sent to a server that reads nothing ends with its context.
func TestStdioTap_SendsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(context.Context, *stdioTap) error{
		"request": func(ctx context.Context, tap *stdioTap) error {
			_, err := tap.SendRequest(ctx, transport.JSONRPCRequest{ID: mcp.NewRequestId(1), Method: "tools/call"})
			return err
		},
		"notification": func(ctx context.Context, tap *stdioTap) error {
			return tap.SendNotification(ctx, mcp.JSONRPCNotification{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, tap, stdin, _ := tapStdio(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- send(ctx, tap) }()
			receive(t, stdin.lines)
			cancel()
			if err := receive(t, ended); !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A write that nobody reads is given up, and with it the connection.
func TestTimely_GivesUpAWriteThatNobodyReads(t *testing.T) {
	t.Parallel()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var why error
	line := &timely{File: out, timeout: time.Millisecond, failed: func(err error) { why = err }}
	defer line.Close()
	if _, err := line.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(why, err) {
		t.Errorf("the write ends with %v, and the connection because of %v", err, why)
	}
}
