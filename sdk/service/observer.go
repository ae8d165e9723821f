package service

import (
	"context"

	"agentd/sdk/wire"
)

// Observer is told what services do. Its methods may be called concurrently.
type Observer interface {
	// Delivered tells that a consumer has delivered a message, and how often it has.
	Delivered(ctx context.Context, consumer string, times int)
	// Serve tells that a call is about to be handled. The handler gets the context, the answer has parent as its traceparent.
	// end is called once, with that context and the answer, which is nil when the call was not answered.
	Serve(ctx context.Context, call *wire.Event) (_ context.Context, parent string, end func(context.Context, *wire.Event))
}

// unobserved is the Observer of programs without one: answers carry the caller's trace.
type unobserved struct{}

func (unobserved) Delivered(context.Context, string, int) {}

func (unobserved) Serve(ctx context.Context, call *wire.Event) (context.Context, string, func(context.Context, *wire.Event)) {
	return ctx, call.TraceParent, func(context.Context, *wire.Event) {}
}
