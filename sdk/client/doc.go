// Package client starts runs and follows them, answers what they ask, and ends them, over NATS.
//
//	c, err := client.Connect(ctx, client.FromEnvironment())
//	run, err := c.Start(ctx, client.Request{Agent: "travel.desk", Input: map[string]any{"message": "Two nights in Lisbon"}})
//	result, err := c.Wait(ctx, run)
//
// A [Run] is a name, not a resource: it may be kept anywhere and used by another program, now or in a month. Starting is
// repeat-safe with [Request].Key. A run that fails is a [*RunError] of [Client.Wait]; every other error is *sdk.Error with a
// code (docs/wire.md, "Errors") or the context's.
package client
