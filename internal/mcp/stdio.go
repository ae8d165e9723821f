package mcp

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/server"
)

// ServeStdio serves one host until its input or ctx ends. Runs go on then. It is called once, and not beside Handler.
func (a *Agents) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	input := &watched{Reader: in}
	a.hostCancels = func() bool { return ctx.Err() == nil && !input.ended.Load() }
	err := server.NewStdioServer(a.server).Listen(ctx, input, out)
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// watched remembers that the input has ended, before anybody learns it.
type watched struct {
	io.Reader
	ended atomic.Bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil {
		w.ended.Store(true)
	}
	return n, err
}
