package mcp

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"agentd/internal/address"
	"agentd/internal/retry"
)

// ackTime is how long a new connection waits for its subscription, so that no change between it and the list of tools is
// missed. A server that takes longer is listed again when the subscription is there.
const ackTime = time.Second

// listen subscribes to changes of the tools, where the server offers that: in the protocol of 2026-07-28 it says nothing
// that was not asked for. The subscription is renewed for as long as the connection is used.
func (c *connection) listen(ctx context.Context) {
	capabilities := c.GetServerCapabilities()
	if !mcp.IsModernProtocol(c.ProtocolVersion()) || capabilities.Tools == nil || !capabilities.Tools.ListChanged {
		return
	}
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	c.stopListening = func() {
		stop()
		<-ended
	}
	first := c.subscribed
	go func() {
		defer close(ended)
		c.subscribe(listening)
	}()
	patience := time.NewTimer(ackTime)
	defer patience.Stop()
	select {
	case <-first:
	case <-ended:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// listening is how a subscription that ended is made again.
var listening = retry.Pauses{First: time.Second, Longest: time.Minute, Spread: 0.5}

func (c *connection) subscribe(ctx context.Context) {
	again := listening.Start()
	for c.alive() {
		began := time.Now()
		err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true})
		if ctx.Err() != nil {
			return
		}
		if _, broken := errors.AsType[*transport.Error](err); err != nil && !broken {
			c.logger.Debug("MCP server has no subscriptions", "error", err)
			return
		}
		if time.Since(began) > listening.Longest {
			again.Reset() // it was there for long enough
		}
		if retry.Sleep(ctx, again.Next()) != nil {
			return
		}
	}
}

// acknowledged notes that the server will say when its tools change. What changed before it did so is listed again, unless
// nothing was listed yet.
func (c *connection) acknowledged() {
	select {
	case <-c.subscribed:
	default:
		close(c.subscribed)
	}
	if c.listed.Load() {
		c.changed()
	}
}

// quiet is a handler for what the library says of itself: a worker's log is not the place for each attempt of its, nor for the URL of a
// server, which may hold a secret.
type quiet struct{ slog.Handler }

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	said := slog.NewRecord(r.Time, slog.LevelDebug, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.AnyValue(address.Failure(err))
		}
		said.AddAttrs(a)
		return true
	})
	return q.Handler.Handle(ctx, said)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
