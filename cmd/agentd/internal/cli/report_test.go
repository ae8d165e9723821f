package cli

import (
	"bytes"
	"errors"
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
