package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

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
