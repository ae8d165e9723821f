package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// late is a connection on which the history of a run is told when all of its live events were heard.
type late struct {
	client.Conn
	events []wire.Live
}

func (l *late) WatchLive(_ string, _ wire.RunKey, handle func(wire.Live), _ func(error)) (func() error, error) {
	for _, e := range l.events {
		handle(e)
	}
	return func() error { return nil }, nil
}

func (l *late) Ask(_ context.Context, _ string, _ wire.Query, answer any) error {
	var status wire.RunStatus
	for _, e := range l.events {
		if !e.Ephemeral {
			status.Milestones = append(status.Milestones, e)
		}
	}
	data, err := json.Marshal(status)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, answer)
}

func (l *late) Subjects() wire.Subjects { return wire.DefaultSubjects() }

// Ephemeral events that were heard are told, each in its place, although their milestones were asked for.
func TestFollow_HistoryTakesNothingThatWasHeard(t *testing.T) {
	t.Parallel()
	l := &late{events: []wire.Live{
		{Revision: 1, Count: 2, Type: "run.started"},
		{Revision: 1, Index: 1, Count: 2, Type: "checkpoint"},
		{Revision: 1, Type: "turn.started", Ephemeral: true, ID: "a"},
		{Revision: 1, Type: "model.delta", Ephemeral: true, ID: "b"},
		{Revision: 2, Count: 1, Type: "model.reply"},
		{Revision: 2, Type: "tool.started", Ephemeral: true, ID: "c"},
		{Revision: 3, Count: 1, Type: "run.finished"},
	}}
	want := []string{"run.started", "checkpoint", "turn.started", "model.delta", "model.reply", "tool.started", "run.finished"}
	for range 20 { // what is heard and what is asked for come in any order
		var got []string
		for e, err := range client.New(l, client.Options{}).Follow(t.Context(), client.Run{Agent: "desk", Name: "one"}, wire.Mark{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Type)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// gone is a connection on which a run is told whose history was removed. What is missed is asked for.
type gone struct{ client.Conn }

func (gone) WatchLive(_ string, _ wire.RunKey, _ func(wire.Live), missed func(error)) (func() error, error) {
	missed(nil)
	return func() error { return nil }, nil
}

func (gone) Ask(_ context.Context, _ string, _ wire.Query, answer any) error {
	answer.(*wire.RunStatus).Purged = 1_795_229_924_408
	return nil
}

func (gone) Subjects() wire.Subjects { return wire.DefaultSubjects() }

func TestFollow_EndsWhereTheHistoryIsGone(t *testing.T) {
	t.Parallel()
	var ended error
	for _, err := range client.New(gone{}, client.Options{}).Follow(t.Context(), client.Run{Agent: "desk", Name: "one"}, wire.Mark{}) {
		ended = err
	}
	if !errors.Is(ended, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("a run whose history is gone: %v", ended)
	}
}

// failing is a connection on which a question about a run has an error, once or again and again. Then the run has ended.
type failing struct {
	gone
	err   error
	times int
}

func (f *failing) Ask(_ context.Context, _ string, _ wire.Query, answer any) error {
	if f.times--; f.times >= 0 {
		return fmt.Errorf("ask: %w", f.err)
	}
	answer.(*wire.RunStatus).Milestones = []wire.Live{{Revision: 1, Count: 1, Type: wire.MilestoneFinished}}
	return nil
}

// What may pass is waited for. Whatever else goes wrong is told whoever follows, and not tried for ever.
func TestFollow_AsksAgainWhereThatMayHelp(t *testing.T) {
	t.Parallel()
	unreadable := errors.New("unexpected end of JSON input")
	for _, c := range []struct {
		failing
		want error
	}{
		{failing{err: sdk.Errorf(sdk.CodeInternal, "the store is away"), times: 3}, nil},
		{failing{err: sdk.Errorf(sdk.CodeUnavailable, "no worker answers"), times: 3}, nil},
		{failing{err: nats.ErrReconnectBufExceeded, times: 3}, nil},
		{failing{err: unreadable, times: always}, unreadable},
		{failing{err: nats.ErrMaxPayload, times: always}, nats.ErrMaxPayload},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			var ended error
			for _, err := range client.New(&c.failing, client.Options{}).Follow(ctx, client.Run{Agent: "desk", Name: "one"}, wire.Mark{}) {
				ended = err
			}
			if !errors.Is(ended, c.want) {
				t.Errorf("after %v, it ends with %v", c.err, ended)
			}
		})
	}
}
