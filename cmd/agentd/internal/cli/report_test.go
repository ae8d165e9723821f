package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"agentd/sdk"
)

// What an error quotes may be of strangers, and people read JSON on terminals too.
func TestReport_ShowsAllThatAnErrorQuotes(t *testing.T) {
	t.Parallel()
	const evil = "\u009b2J\u202e"
	for output, want := range map[string]string{
		OutputText: `agentd: no run \u009b2J\u202e` + "\n",
		OutputJSON: `{"error":{"errorName":"unknown_run","errorMessage":"no run \u009b2J\u202e","errorStack":null,"code":"unknown_run","retryable":false}}` + "\n",
	} {
		var b bytes.Buffer
		a := &App{Streams: Streams{Err: &b}, Output: output}
		a.Report(sdk.Errorf(sdk.CodeUnknownRun, "no run %s", evil))
		if b.String() != want {
			t.Errorf("%s: %s, want %s", output, b.String(), want)
		}
	}
	var b bytes.Buffer
	(&App{Streams: Streams{Err: &b}, Output: OutputText}).Report(sdk.Errorf(sdk.CodeConfig, "two faults").WithCause(errors.New("one\ntwo")))
	if want := "agentd: two faults\n  one\n  two\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	if err := WriteText(&b, evil+"\tx\n"); err != nil || b.String() != evil+"\tx\n" {
		t.Errorf("a pipe gets %q, %v", b.String(), errors.Join(err))
	}
}

// What another package tells somebody to run reaches the server of this command line, and once; what it says of other commands stays.
func TestReport_HasCommandsThatReachTheSameServer(t *testing.T) {
	t.Parallel()
	const said = "none is there; run: agentd provision, or make a project: agentd init NAME (see: agentd -c x runs list)"
	for given, want := range map[string]string{
		"":               said,
		"nats://$1:4222": "none is there; run: agentd --nats 'nats://$1:4222' provision, or make a project: agentd init NAME (see: agentd -c x runs list)",
	} {
		for output, form := range map[string]string{
			OutputText: "agentd: %s\n",
			OutputJSON: `{"error":{"errorName":"config","errorMessage":"%s","errorStack":null,"code":"config","retryable":false}}` + "\n",
		} {
			var b bytes.Buffer
			a := &App{Streams: Streams{Err: &b}, Output: output, NATS: given, begun: true}
			a.Report(sdk.Errorf(sdk.CodeConfig, said))
			if want := fmt.Sprintf(form, want); b.String() != want {
				t.Errorf("%s: %s, want %s", output, b.String(), want)
			}
		}
	}
	var b bytes.Buffer
	a := &App{Streams: Streams{Err: &b}, NATS: "nats://n"}
	a.Report(errors.New("it is unknown\nsee: agentd runs --help"))
	if want := "agentd: it is unknown\nsee: agentd runs --help\n"; b.String() != want {
		t.Errorf("a refused command line: %s, want %s", b.String(), want)
	}
}
