package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// Whoever asks something of a run is told, soon, that it was refused and why, and what is asked again counts.
func TestClient_IsToldWhyARequestIsRefused(t *testing.T) {
	t.Parallel()
	fails := make(chan struct{})
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 1))}, Identity: true,
		Model: sdktest.ModelFunc(func(ctx context.Context, _ sdk.ModelRequest) (sdk.ModelReply, error) {
			select {
			case <-fails:
				return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the request is wrong")
			case <-ctx.Done():
				return sdk.ModelReply{}, ctx.Err()
			}
		}),
	})
	c := connect(t, h)
	nobody, err := client.Connect(t.Context(), client.Options{InProcess: h, Patience: 30 * time.Second})
	must(t, err)
	t.Cleanup(func() { must(t, nobody.Close()) })
	run, err := c.Start(t.Context(), request("bill-7"))
	must(t, err)
	for _, err := range c.Follow(t.Context(), run, wire.Mark{}) {
		must(t, err)
		if s, err := c.Status(t.Context(), run); err == nil && s.Status == wire.StatusRunning {
			break
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeIdentityRequired}) {
			t.Errorf("%s of nobody in particular: %v", what, err)
		}
	}
	_, err = nobody.Send(t.Context(), run, "hurry")
	refused("a message", err)
	close(fails)
	if _, err := c.Wait(t.Context(), run); !errors.Is(err, &sdk.Error{Code: sdk.CodeModel}) {
		t.Fatalf("the run ended with %v", err)
	}
	_, taken, err := nobody.Retry(t.Context(), run)
	refused("a retry", err)
	if taken {
		t.Error("a retry that is refused has taken up the run")
	}
	next, taken, err := c.Retry(t.Context(), run)
	must(t, err)
	if _, err := c.Wait(t.Context(), next); !taken || !errors.Is(err, &sdk.Error{Code: sdk.CodeModel}) {
		t.Errorf("the run is taken up: %t; it ended with %v", taken, err)
	}
	for range 2 {
		h.DeadLetter()
	}
	h.NoDeadLetter()
}
