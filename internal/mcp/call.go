package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"agentd/internal/clip"
	"agentd/internal/retry"
	"agentd/sdk"
)

// The keys of _meta that a call carries. The first is ours: a server that knows it does nothing twice.
const (
	metaIdempotencyKey = "dev.agentd/idempotencyKey"
	metaTraceParent    = "traceparent"
)

// maxBusy is how often a server may put a call off, and busyPauses how long it is left alone then.
const maxBusy = 4

var busyPauses = retry.Pauses{First: 500 * time.Millisecond, Longest: 4 * time.Second}

// run makes one call, or goes on with one that asked a person.
func (s *Server) run(ctx context.Context, tool string, once bool, call sdk.ToolCall) (json.RawMessage, error) {
	kept, err := resume(call.Answer)
	if err != nil {
		return nil, err
	}
	if kept.open() {
		return nil, kept.ask() // of several questions the next
	}
	for busy := 0; ; busy++ {
		x := &exchange{method: string(mcp.MethodToolsCall), call: call, extra: kept.parameters(), answered: kept.Answered, once: once}
		err := s.exchange(ctx, tool, x)
		if err != nil && x.asked == nil {
			return nil, err
		}
		if x.asked != nil {
			kept.Asked = []asked{*x.asked}
			return nil, kept.ask()
		}
		result, required, err := read(x.result)
		if err != nil || required == nil {
			return result, err
		}
		if err := kept.require(required); err != nil {
			return nil, err
		}
		if len(kept.Asked) > 0 {
			return nil, kept.ask()
		}
		if busy == maxBusy {
			return nil, &sdk.Error{Code: sdk.CodeUnavailable, Message: "the MCP server is busy", Retryable: true}
		}
		if err := retry.Sleep(ctx, busyPauses.Nth(busy+1)); err != nil {
			return nil, s.unavailable(err)
		}
	}
}

// exchange sends the call, anew where that does no harm: a session that the server has forgotten is opened again, once, and a
// call that was given up because several of them asked is made when it is alone. A call that is made once is not: what says that
// there is no session may stand before a server that has carried it out.
func (s *Server) exchange(ctx context.Context, tool string, x *exchange) error {
	again := false
	for {
		conn, err := s.connected(ctx)
		if err != nil {
			return err
		}
		if !conn.listed.Swap(true) {
			s.noteChange() // a server that was started anew may have other tools
		}
		err = conn.callTool(ctx, tool, x)
		switch {
		case x.result != nil || x.asked != nil:
			conn.timeouts.Store(0)
			s.worked()
			return nil
		case ctx.Err() == nil && errors.Is(context.Cause(x.ctx), errParted):
			continue
		case errors.Is(err, transport.ErrSessionTerminated) && !again && !x.once:
			again = true
			conn.lost.Store(true)
			continue
		}
		s.judge(ctx, conn, err)
		return s.failure(ctx, tool, x, err)
	}
}

func (c *connection) callTool(ctx context.Context, tool string, x *exchange) error {
	ctx, x.cancel = context.WithCancelCause(ctx)
	defer x.cancel(nil)
	x.ctx = ctx
	if err := c.enter(ctx, x); err != nil {
		return err
	}
	defer c.leave(x)
	request := mcp.CallToolRequest{}
	request.Params.Name, request.Params.Arguments = tool, x.call.Args
	request.Params.Meta = &mcp.Meta{ProgressToken: x.call.ID, AdditionalFields: map[string]any{metaIdempotencyKey: x.call.ID}}
	if x.call.TraceParent != "" {
		request.Params.Meta.AdditionalFields[metaTraceParent] = x.call.TraceParent
	}
	_, err := c.CallTool(context.WithValue(ctx, exchangeKey{}, x), request)
	c.mu.Lock() // x is shared with whoever answers the server's questions
	defer c.mu.Unlock()
	return err
}

// enter notes a call that runs. Where calls exclude each other it waits for the others to end.
func (c *connection) enter(ctx context.Context, x *exchange) error {
	for {
		c.mu.Lock()
		c.exclusive = c.exclusive || len(x.answered) > 0 // it will ask again
		if !c.exclusive || len(c.calls) == 0 {
			c.calls[x.call.ID] = x
			c.mu.Unlock()
			return nil
		}
		left := c.left
		c.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *connection) leave(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, x.call.ID)
	c.signal()
}

// asks returns the call that a question is of, with c locked. Over HTTP it comes on the stream of its call, from most servers.
func (c *connection) asks(ctx context.Context) (*exchange, error) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		c.mu.Lock()
		return x, nil
	}
	return c.only(ctx)
}

// only returns the one call that runs, with c locked. Others that run beside it are waited for; no more begin. Where all of
// them ask, or some go on for too long, nobody can tell whose question it is: all are given up, and made again one by one.
func (c *connection) only(ctx context.Context) (*exchange, error) {
	c.mu.Lock()
	c.exclusive = true
	c.asking++
	c.signal()
	x, err := c.alone(ctx)
	c.asking--
	if err != nil {
		c.mu.Unlock()
	}
	return x, err
}

// alone is called with c locked, and returns so.
func (c *connection) alone(ctx context.Context) (*exchange, error) {
	patience := time.NewTimer(aloneTime)
	defer patience.Stop()
	late := false
	for parted := c.parted; parted == c.parted; {
		if len(c.calls) == 1 {
			for _, x := range c.calls {
				return x, nil
			}
		}
		if late || c.asking >= len(c.calls) {
			c.part()
			break
		}
		left := c.left
		c.mu.Unlock()
		select {
		case <-left:
		case <-patience.C:
			late = true
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if c.kept {
		return nil, errKept
	}
	return nil, errAmbiguous
}

// part gives all calls up that can be made again. It is called with c locked.
func (c *connection) part() {
	c.parted++
	c.kept = false
	for _, x := range c.calls {
		if x.once {
			c.kept = true
			continue
		}
		x.cancel(errParted)
	}
	c.signal()
}

// signal wakes who waits for a change of the calls. It is called with c locked.
func (c *connection) signal() {
	close(c.left)
	c.left = make(chan struct{})
}

// aloneTime is how long a question waits for calls to end that may as well have asked it.
const aloneTime = 10 * time.Second

// failure is what the model is told of a call that has no result.
func (s *Server) failure(ctx context.Context, tool string, x *exchange, err error) error {
	_, broken := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return sdk.Errorf(sdk.CodeDeadline, "%s did not answer in time", tool).WithCause(err)
	case ctx.Err() != nil:
		return fmt.Errorf("call %s of MCP server %s: %w", tool, s.config.Name, ctx.Err())
	case broken && x.once:
		return sdk.Errorf(sdk.CodeOutcomeUnknown, "%s was interrupted; whether it took effect is unknown, and it was not run again", tool).WithCause(err)
	case broken:
		return sdk.Errorf(sdk.CodeUnavailable, "the MCP server %s was lost during the call of %s; whether it took effect is unknown",
			s.config.Name, tool).WithCause(err)
	}
	return sdk.Errorf(sdk.CodeTool, "%s", clip.Text(err.Error(), maxFault))
}

// maxFault is the longest text of an error that a model is shown.
const maxFault = 4 << 10
