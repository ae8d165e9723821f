package follow

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

func TestAnswerer_AsksAgainAfterAnEmptyLine(t *testing.T) {
	var err bytes.Buffer
	d := &answerer{a: &cli.App{Streams: cli.Streams{Err: &err}}, lines: cli.ReadLines(strings.NewReader("  \n yes \n"))}
	if answer, ok := d.prompt(t.Context(), ""); !ok || answer != "yes" {
		t.Errorf("answer %q, %t", answer, ok)
	}
	if want := "> (a text, please; Ctrl-C leaves it to others) > "; err.String() != want {
		t.Errorf("printed %q, want %q", err.String(), want)
	}
}

// asking is a run that asks one question.
type asking struct {
	client.Conn
	// asks are what it is told who asks for the run, one after the other; then it is told how the run is.
	asks []error
	got  []string
	live func(wire.Live)
}

func (*asking) Subjects() wire.Subjects { return wire.DefaultSubjects() }

func (a *asking) Ask(_ context.Context, _ string, _ wire.Query, answer any) error {
	if len(a.asks) > 0 {
		err := a.asks[0]
		if a.asks = a.asks[1:]; err != nil {
			return err
		}
	}
	*answer.(*wire.RunStatus) = wire.RunStatus{
		Run: "one", Agent: "chat", Waiting: []wire.WaitingCall{{Call: "c1-0", Event: "e1", Type: sdk.TypeQuestion, Asked: []byte(`{"question":"Which?"}`)}},
	}
	return nil
}

func (a *asking) WatchLive(_ string, _ wire.RunKey, handle func(wire.Live), _ func(error)) (func() error, error) {
	a.live = handle
	return func() error { return nil }, nil
}

func (a *asking) Reply(_ context.Context, _ string, event wire.Event) error {
	a.got = append(a.got, string(event.Data))
	a.live(wire.Live{Run: "one", Type: wire.MilestoneAnswered, Data: []byte(`{"question":"c1-0"}`)})
	return nil
}

// What somebody answered while the worker was away is neither lost nor asked for again; what cannot be an answer is.
func TestAnswerer_KeepsAnAnswerUntilItIsTaken(t *testing.T) {
	t.Parallel()
	away := sdk.Errorf(sdk.CodeUnavailable, "no worker answers")
	const waits = "waits     for a worker to take the answer, which is sent again\n"
	for name, c := range map[string]struct {
		asks    []error
		answers []string
		tries   int
		got     string
		told    string
	}{
		"taken":            {answers: []string{"Red", "Blue"}, tries: 1, got: `{"answer":"Red"}`},
		"the worker goes":  {asks: []error{nil, away, away}, answers: []string{"Red", "Blue"}, tries: 3, got: `{"answer":"Red"}`, told: waits},
		"not an answer":    {answers: []string{" ", "Blue"}, tries: 1, got: `{"answer":"Blue"}`, told: "error     contract_violation: the answer is empty\nasks      Which?\n"},
		"not one any more": {asks: []error{nil, sdk.Errorf(sdk.CodeUnknownRun, "it is gone")}, answers: []string{"Red"}, tries: 1, told: "error     ask for run one: unknown_run: it is gone\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var printed bytes.Buffer
			run := &asking{asks: c.asks}
			progress := &show.Progress{W: &printed}
			d := &answerer{
				a: &cli.App{}, client: client.New(run, client.Options{}), progress: progress, aloud: progress, run: Run{Agent: "chat", Subject: "one"},
				answers: c.answers, answered: map[string]bool{}, unsent: map[string]string{},
			}
			tries := 1
			for ; errors.Is(d.answer(t.Context()), &sdk.Error{Code: sdk.CodeUnavailable}); tries++ {
			}
			if err := d.answer(t.Context()); err != nil {
				t.Error(err)
			}
			want := []string{c.got}
			if c.got == "" {
				want = nil
			}
			if !slices.Equal(run.got, want) || tries != c.tries {
				t.Errorf("the run got %q after %d tries, want %q after %d", run.got, tries, want, c.tries)
			}
			if want := "asks      Which?\n" + c.told; printed.String() != want {
				t.Errorf("printed %q, want %q", printed.String(), want)
			}
		})
	}
}

// Who wants no progress is asked all the same, and told nothing of a question that was answered beforehand.
func TestNew_QuietAsksWhatHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answers []string
		told    string
	}{
		{nil, "asks      Which?\nwaits     for somebody to answer; for example: agentd runs follow one --answer TEXT\n"},
		{[]string{"Red"}, ""},
	} {
		var printed bytes.Buffer
		run := &asking{}
		a := &cli.App{Streams: cli.Streams{In: strings.NewReader(""), Err: &printed}}
		d := New(a, &cli.Client{Conn: &broker.Conn{}}, Run{Agent: "chat", Subject: "one"}, Options{quiet: true, answers: c.answers}).desk
		d.client = client.New(run, client.Options{})
		if err := d.answer(t.Context()); err != nil || printed.String() != c.told || len(run.got) != len(c.answers) {
			t.Errorf("%q given: told %q, and the run got %q, %v", c.answers, printed.String(), run.got, err)
		}
	}
}
