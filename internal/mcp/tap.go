package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"agentd/internal/address"
)

// maxRequests is how many requests of a server may be under way at once. Each holds a goroutine until the server has read its answer.
const maxRequests = 64

var errAsksTooMuch = errors.New("the server asks more at once than is answered")

// admit counts a request of the server that begins, and reports whether it is answered. One too many loses the connection.
func (c *connection) admit() bool {
	begun := c.requests.Add(1)
	if begun == maxRequests+1 {
		c.lose(errAsksTooMuch)
	}
	return begun <= maxRequests
}

// answered counts a request that has ended.
func (c *connection) answered() { c.requests.Add(-1) }

// until runs f, and leaves it when ctx ends: f waits for what knows no contexts.
func until(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stdioTap is the library's transport on stdio, which writes without regard to contexts.
type stdioTap struct {
	*transport.Stdio
	conn *connection
	out  io.Writer
}

// newStdioTap returns the transport that reads from in, and writes lines to out, which is safe for concurrent use.
func newStdioTap(c *connection, in io.Reader, out io.WriteCloser) *stdioTap {
	stdio := transport.NewIO(&lines{r: in}, out, nil)
	transport.WithCommandLogger(c.logger)(stdio)
	return &stdioTap{stdio, c, out}
}

// SendRequest implements transport.Interface.
func (t *stdioTap) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	return tapped(ctx, r, t.send)
}

func (t *stdioTap) send(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	var resp *transport.JSONRPCResponse
	var err error
	if ended := until(ctx, func() { resp, err = t.Stdio.SendRequest(ctx, r) }); ended != nil {
		return nil, ended
	}
	return resp, err
}

// SendNotification implements transport.Interface.
func (t *stdioTap) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	var err error
	if ended := until(ctx, func() { err = t.Stdio.SendNotification(ctx, n) }); ended != nil {
		return ended
	}
	return err
}

// SetRequestHandler implements transport.BidirectionalInterface. Answers are written here: the library writes them when the
// handler has returned, and does not say how many wait for that.
func (t *stdioTap) SetRequestHandler(handle transport.RequestHandler) {
	t.Stdio.SetRequestHandler(func(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
		if t.conn.admit() {
			defer t.conn.answered()
			response, err := handle(ctx, r)
			if err != nil {
				response = transport.NewJSONRPCErrorResponse(r.ID, mcp.INTERNAL_ERROR, err.Error(), nil)
			}
			t.answer(response)
		}
		return nil, nil
	})
}

func (t *stdioTap) answer(response *transport.JSONRPCResponse) {
	line, err := json.Marshal(response)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		t.conn.logger.Debug("MCP server cannot be answered", "error", err)
	}
}

// httpTap is the library's transport over HTTP.
type httpTap struct {
	*transport.StreamableHTTP
	conn *connection
}

// SetRequestHandler implements transport.BidirectionalInterface.
func (t *httpTap) SetRequestHandler(handle transport.RequestHandler) {
	t.StreamableHTTP.SetRequestHandler(func(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
		if !t.conn.admit() {
			return nil, nil
		}
		context.AfterFunc(ctx, t.conn.answered) // the library ends the context when the server has the answer, or after 30 s
		return handle(ctx, r)
	})
}

// SendRequest implements transport.Interface.
func (t *httpTap) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	resp, err := tapped(ctx, r, t.StreamableHTTP.SendRequest)
	err = address.Failure(err)
	if err != nil && ctx.Err() != nil && r.Method == string(mcp.MethodToolsCall) && !mcp.IsModernProtocol(t.conn.ProtocolVersion()) {
		t.conn.givenUp.Go(func() { t.giveUp(ctx, r) })
	}
	return resp, err
}

// SendNotification implements transport.Interface.
func (t *httpTap) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	return address.Failure(t.StreamableHTTP.SendNotification(ctx, n))
}

// giveUpTime is how long a server has to take note of a call that is given up.
const giveUpTime = 5 * time.Second

// giveUp says that nobody waits for the call any more: in the older protocol a stream that ends does not. The library says it
// on stdio only.
func (t *httpTap) giveUp(ended context.Context, r transport.JSONRPCRequest) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ended), giveUpTime)
	defer stop()
	var n mcp.JSONRPCNotification
	n.JSONRPC, n.Method = mcp.JSONRPC_VERSION, string(mcp.MethodNotificationCancelled)
	n.Params.AdditionalFields = map[string]any{"requestId": r.ID, "reason": fmt.Sprint(context.Cause(ended))}
	if err := t.SendNotification(ctx, n); err != nil {
		t.conn.logger.Debug("MCP server could not be told that a call is given up", "error", err)
	}
}
