package follow

import (
	"bufio"
	"bytes"
	"encoding/json"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/wire"
	"agentd/test/tty"
)

// An answer is the model's: a terminal shows all that is in it, and a program gets its bytes.
func TestPrintResult_OnATerminalAllOfAnAnswerIsSeen(t *testing.T) {
	t.Parallel()
	event := wire.Event{Type: "done", Data: json.RawMessage(`{"response":"Paid\u001b[2J\u202e\n\tall"}`)}
	var pipe bytes.Buffer
	f := &follower{a: &cli.App{Streams: cli.Streams{Out: &pipe}, Output: cli.OutputText}}
	if err := f.printResult(event); err != nil || pipe.String() != "Paid\x1b[2J\u202e\n\tall\n" {
		t.Errorf("a pipe gets %q, %v", pipe.String(), err)
	}
	command, person := tty.Open(t)
	f.a.Out = command
	if err := f.printResult(event); err != nil {
		t.Fatal(err)
	}
	screen := bufio.NewScanner(person)
	for _, want := range []string{`Paid\u001b[2J\u202e`, "    all"} {
		if !screen.Scan() || screen.Text() != want {
			t.Errorf("a terminal shows %q, %v; want %q", screen.Text(), screen.Err(), want)
		}
	}
}
