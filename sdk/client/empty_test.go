package client_test

import (
	"context"
	"errors"
	"testing"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A call that is to be cancelled has a name, and so has one that is answered with an event of any type.
func TestClient_RefusesWhatNamesNothing(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 1))},
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})),
			sdktest.Ask(sdktest.Tool("pay", map[string]int{"euros": 7})),
		),
	})
	c := connect(t, h)
	run, err := c.Start(t.Context(), request("one"))
	must(t, err)
	question := until(t, c, run, sdk.TypeQuestion)
	refused := func(what string, code sdk.Code, err error) {
		t.Helper()
		if !errors.Is(err, &sdk.Error{Code: code}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = c.CancelCall(t.Context(), run, "", "")
	refused("the cancellation of the only call", sdk.CodeUnknownRun, err)
	_, err = c.Answer(t.Context(), run, question.Call, client.Reply{Text: "All."})
	must(t, err)
	until(t, c, run, sdk.TypePermissionRequest)
	_, err = c.Publish(t.Context(), client.Call{Run: run}, "x", []byte(`{}`), nil)
	refused("an answer to no call", sdk.CodeInvalidEvent, err)
}

func TestClient_RefusesRunsThatAreNone(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{Agents: []sdk.Agent{clerk(make(chan string, 1))}})
	c := connect(t, h)
	for _, run := range []client.Run{{}, {Agent: "clerk"}, {Name: "one"}, {Agent: "*", Name: "one"}, {Agent: ">", Name: "one"}} {
		for name, do := range map[string]func(context.Context) error{
			"Status": func(ctx context.Context) error { _, err := c.Status(ctx, run); return err },
			"Wait":   func(ctx context.Context) error { _, err := c.Wait(ctx, run); return err },
			"Wait by an init event": func(ctx context.Context) error {
				_, err := c.Wait(ctx, client.Run{Agent: run.Agent, Name: run.Name, Init: "i"})
				return err
			},
			"Listen": func(context.Context) error { _, err := c.Listen(run); return err },
			"Send":   func(ctx context.Context) error { _, err := c.Send(ctx, run, "hurry"); return err },
			"Cancel": func(ctx context.Context) error { return c.Cancel(ctx, run, "") },
			"Publish": func(ctx context.Context) error {
				_, err := c.Publish(ctx, client.Call{Run: run, WaitingCall: wire.WaitingCall{Event: "c1-0-x"}}, "x", []byte(`{}`), nil)
				return err
			},
		} {
			ctx, stop := context.WithTimeout(t.Context(), sdktest.Patience)
			if err := do(ctx); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
				t.Errorf("%s of %+v: %v", name, run, err)
			}
			stop()
		}
	}
	for _, agent := range []string{"", "*", ">"} {
		var refused error
		for _, err := range c.List(t.Context(), agent, "") {
			refused = err
		}
		if !errors.Is(refused, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
			t.Errorf("the runs of agent %q are listed: %v", agent, refused)
		}
	}
}

// starting is a connection that keeps the init events.
type starting struct {
	client.Conn
	events []wire.Event
}

func (s *starting) Start(_ context.Context, _ string, event wire.Event) error {
	s.events = append(s.events, event)
	return nil
}

// An empty pattern would put nothing under permission, and whoever gave it would think that it does.
func TestStart_RefusesEmptyPatterns(t *testing.T) {
	t.Parallel()
	for _, patterns := range [][]string{{""}, {"pay", " "}, {"\t", "pay"}} {
		conn := &starting{}
		_, err := client.New(conn, client.Options{}).Start(t.Context(), client.Request{Agent: "clerk", Input: struct{}{}, Require: patterns})
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) || len(conn.events) > 0 {
			t.Errorf("%q: %v, and %d runs are started", patterns, err, len(conn.events))
		}
	}
	conn := &starting{}
	_, err := client.New(conn, client.Options{}).Start(t.Context(), client.Request{Agent: "clerk", Input: struct{}{}, Require: []string{"pay", "send_*"}})
	must(t, err)
	if got := conn.events[0].Extensions[wire.RequirePermission]; got != "pay,send_*" {
		t.Errorf("the run needs permission for %v", got)
	}
}

func TestUndoes_RefusesWhatNamesNothing(t *testing.T) {
	t.Parallel()
	status := wire.RunStatus{Run: "one", Status: wire.StatusDone, Undoable: []wire.UndoCall{{Call: "c1-0-x"}}}
	if calls, err := status.Undoes([]string{""}); !errors.Is(err, &sdk.Error{Code: sdk.CodeUndoRefused}) {
		t.Errorf("%v, %v", calls, err)
	}
}
