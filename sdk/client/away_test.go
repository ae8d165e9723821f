package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// away is a connection on which nobody answers the first so many times that something is asked, as while a server is away. Then the run
// that is asked for has ended.
type away struct {
	client.Conn
	times int
}

func (a *away) Subjects() wire.Subjects { return wire.DefaultSubjects() }

func (a *away) lost() bool {
	a.times--
	return a.times >= 0
}

func (a *away) Ask(ctx context.Context, _ string, _ wire.Query, answer any) error {
	if a.lost() {
		<-ctx.Done()
		return fmt.Errorf("ask: %w", ctx.Err())
	}
	*answer.(*wire.RunStatus) = wire.RunStatus{
		Status: wire.StatusDone, Reason: wire.ReasonCompleted, Init: "i",
		Terminal:   &wire.Terminal{Type: "clerk.done", Data: json.RawMessage(`{"paid":true}`)},
		Milestones: []wire.Live{{Revision: 1, Count: 1, Type: wire.MilestoneFinished}},
	}
	return nil
}

func (a *away) WaitDone(context.Context, string, wire.RunKey, string) (wire.Event, error) {
	if a.lost() {
		return wire.Event{}, fmt.Errorf("watch: %w", nats.ErrTimeout)
	}
	return wire.Event{Type: "clerk.done", Data: json.RawMessage(`{"paid":true}`)}, nil
}

func (a *away) WatchLive(string, wire.RunKey, func(wire.Live), func(error)) (func() error, error) {
	if a.lost() {
		return nil, fmt.Errorf("watch: %w", nats.ErrTimeout)
	}
	return func() error { return nil }, nil
}

func (a *away) Start(context.Context, string, wire.Event) error {
	return fmt.Errorf("publish: %w", context.DeadlineExceeded)
}

func (a *away) Control(context.Context, wire.ControlVerb, string, wire.RunKey, string, wire.Event) error {
	return fmt.Errorf("publish: %w", context.DeadlineExceeded)
}

func (a *away) Reply(context.Context, string, wire.Event) error {
	return fmt.Errorf("publish: %w", nats.ErrDisconnected)
}

const always = 1 << 30

func TestClient_SaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	run := client.Run{Agent: "clerk", Name: "one"}
	for name, do := range map[string]func(context.Context, *client.Client) error{
		"Status": func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx, run); return err },
		"Start": func(ctx context.Context, c *client.Client) error {
			_, err := c.Start(ctx, client.Request{Agent: "clerk", Input: struct{}{}})
			return err
		},
		"Cancel": func(ctx context.Context, c *client.Client) error { return c.Cancel(ctx, run, "") },
		"Send":   func(ctx context.Context, c *client.Client) error { _, err := c.Send(ctx, run, "hurry"); return err },
		"Listen": func(_ context.Context, c *client.Client) error { _, err := c.Listen(run); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			err := do(context.Background(), client.New(&away{times: always}, client.Options{}))
			e, ok := errors.AsType[*sdk.Error](err)
			if !ok || e.Code != sdk.CodeUnavailable || !e.Retryable || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // an answer is sent where listening works
		call := client.Call{Run: run, WaitingCall: wire.WaitingCall{Event: "c1-0-x"}}
		_, err := client.New(&away{}, client.Options{}).Publish(context.Background(), call, "x", json.RawMessage(`{}`), nil)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			t.Errorf("Publish: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		if _, err := client.New(&away{times: always}, client.Options{}).Status(ctx, run); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline of the caller: %v", err)
		}
	})
}

func TestClient_WaitsWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]client.Run{
		"a run by its name": {Agent: "clerk", Name: "one"}, "a run by its init event": {Agent: "clerk", Name: "one", Init: "i"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := client.New(&away{times: 2}, client.Options{})
			if result, err := c.Wait(context.Background(), run); err != nil || string(result.Data) != `{"paid":true}` {
				t.Errorf("%s: %s, %v", name, result.Data, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var told []string
		for l, err := range client.New(&away{times: 2}, client.Options{}).Follow(context.Background(), client.Run{Agent: "clerk", Name: "one"}, wire.Mark{}) {
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, l.Type)
		}
		if len(told) != 1 || told[0] != wire.MilestoneFinished {
			t.Errorf("whoever follows is told %q", told)
		}
	})
}

func TestNew_PanicsWithoutAConnection(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); p != "client: a client of no connection" {
			t.Errorf("it says %v", p)
		}
	}()
	client.New(nil, client.Options{})
}
