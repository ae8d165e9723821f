package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/show"
)

// A list that fails half-way is JSON all the same.
func TestLetterList_IsJSONWhereverItEnds(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		var b bytes.Buffer
		list := letterList{a: &cli.App{Streams: cli.Streams{Out: &b}, Output: cli.OutputJSON}}
		var err error
		for range n {
			_, adding := list.add(show.Letter{})
			err = errors.Join(err, adding)
		}
		if err := errors.Join(err, list.close()); err != nil {
			t.Fatal(err)
		}
		if n > 0 && !json.Valid(b.Bytes()) || n == 0 && b.Len() > 0 {
			t.Errorf("after %d dead letters: %s", n, b.String())
		}
	}
}

// What was not looked at when a person interrupted the command is not said to be refused.
func TestEachLetter_InterruptedSaysNothingOfTheRest(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out, problem bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &out, Err: &problem}, Output: cli.OutputText}
	err := eachLetter(ctx, a, &cli.Client{}, choice{named: []uint64{1, 2}}, nil)
	if !errors.Is(err, context.Canceled) || out.Len()+problem.Len() > 0 {
		t.Errorf("it ends with %v, %q and %q", err, out.String(), problem.String())
	}
}
