package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Who reads a run sees what its calls were made with, not only what the model wrote.
func TestRunDetails_OfEditedCalls(t *testing.T) {
	t.Parallel()
	journal, err := os.ReadFile("../../test/replay/testdata/v1/permission_edit.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var entries []core.Entry
	for line := range bytes.Lines(journal) {
		e, err := core.DecodeEntry(line)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	d, err := DetailsOf(entries)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := d.Write(&b, 0, false, commandLine); err != nil {
		t.Fatal(err)
	}
	want := `  call     book {"seat":1}
    edited   to {"seat":2} (anna)
    result   book {"booked":2}
    decided  book allow, with {"seat":2}
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("got %s\nwant %s", b.String(), want)
	}
}

func commandLine(args ...string) string { return "agentd " + strings.Join(args, " ") }

// Who may not read the store is told by workers that a run is paused, parked or purged, in its details and in lists.
func TestRunDetails_OfAStatusSayWhyARunDoesNotGoOn(t *testing.T) {
	t.Parallel()
	now := time.Now()
	parked := &wire.Parking{
		Why: wire.ParkModel, Model: "gpt-4o-mini", Code: sdk.CodeModel, Message: "no route to host", Tries: 2,
		Since: now.Add(-time.Hour).UnixMilli(), Until: now.Add(time.Hour).UnixMilli(),
	}
	for name, c := range map[string]struct {
		status    wire.RunStatus
		text, row string
		json      []string
	}{
		"paused": {
			wire.RunStatus{Status: wire.StatusWaiting, Started: 1, Paused: &wire.Pause{At: 1, Reason: "look first"}},
			" look first\n", "waiting, paused",
			[]string{`"paused":{"at":1,"reason":"look first"}`, `"started":1,`, `"messages":[]`, `"journal":[]`},
		},
		"parked": {
			wire.RunStatus{Status: wire.StatusWaiting, Started: 1, Parked: parked},
			"no route to host (model_failed, try 2)\n", "no route to host",
			[]string{`"parked":{"why":"model"`},
		},
		"purged": {
			wire.RunStatus{Status: wire.StatusDone, Reason: wire.ReasonCompleted, Started: 1, Purged: 2, Revision: 7},
			": 7 entries\n", "done (completed), history removed",
			[]string{`"purged":{"at":2,"rev":7,"digest":""}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.status.Run = "one"
			d := DetailsOfStatus(c.status)
			var text, list bytes.Buffer
			if err := errors.Join(d.Write(&text, 0, false, commandLine), Runs(&list, []RunRow{RowOfStatus(c.status)}, 0)); err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), c.text) || !strings.Contains(list.String(), c.row) {
				t.Errorf("it is shown as\n%s\nand in the list as\n%s; want %q and %q", text.String(), list.String(), c.text, c.row)
			}
			for _, want := range c.json {
				if !strings.Contains(string(data), want) {
					t.Errorf("%s is not in %s", want, data)
				}
			}
			if purged := c.status.Purged > 0; purged == strings.Contains(string(data), `"started"`) || purged == strings.Contains(text.String(), "started") {
				t.Errorf("when it started is known unless it was purged: %s\n%s", data, text.String())
			}
		})
	}
}

// What is printed to be typed reaches the server that was asked.
func TestWrite_CommandLinesAreThoseOfTheCommand(t *testing.T) {
	t.Parallel()
	command := func(args ...string) string { return "agentd --nats nats://prod " + strings.Join(args, " ") }
	var b bytes.Buffer
	letter := LetterDetail{Letter: Letter{Sequence: 12}}
	run := RunDetails{Run: "one", Undoable: []wire.UndoCall{{Call: "c1-0"}}}
	if err := errors.Join(letter.Write(&b, false, command), run.Write(&b, 0, false, command)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  agentd --nats nats://prod dlq redrive 12\n", "  agentd --nats nats://prod dlq drop 12 --yes\n", "with: agentd --nats nats://prod runs undo one\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// What a run cost is a number of execution units, as on the wire, and not of the millionths in which it is held.
func TestRunDetails_CostIsInExecutionUnits(t *testing.T) {
	t.Parallel()
	var first core.Entry
	first.Rev, first.Head.Units = 1, 33_500_000
	journaled, err := DetailsOf([]core.Entry{first})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]RunDetails{
		"of a journal":  journaled,
		"of its status": DetailsOfStatus(wire.RunStatus{Units: 33_500_000}),
	} {
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), `"executionunits":33.5,`) {
			t.Errorf("%s: the cost is not 33.5 in %s", name, data)
		}
	}
}

// What the model is told of a decision is told to people in words, and nobody can write a text that is shown as one.
func TestContentText_OfADecision(t *testing.T) {
	t.Parallel()
	const said = `{"permission":{"tool":"pay","decision":"deny","scope":"call","reason":"no proof","note":"The call was not made."}}`
	for name, c := range map[string]struct {
		content   sdk.Content
		who, text string
	}{
		"a decision": {sdk.Content{Kind: sdk.ContentText, CallID: "p1", Tool: "pay", Text: said}, "  decided", "pay deny: no proof"},
		"a message":  {sdk.Content{Kind: sdk.ContentText, CallID: "n1", Text: said}, "user", said},
		"a result":   {sdk.Content{Kind: sdk.ContentText, CallID: "c1", Tool: "pay", Pending: true, Text: said}, "user", said},
		"an input":   {sdk.Content{Kind: sdk.ContentText, Text: said}, "user", said},
	} {
		if who, text := ContentText(sdk.RoleUser, &c.content); who != c.who || text != c.text {
			t.Errorf("%s: %q %q, want %q %q", name, who, text, c.who, c.text)
		}
	}
}

// What has no type or no time of its own is shown without.
func TestWaitingCall_ShowsWhatItHas(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]WaitingCall{
		"refund (shop.refund)": {Tool: "refund", Type: "shop.refund"},
		"ask":                  {Tool: "ask"},
		"permission for refund (agentd.permission.request), due in 0s": {Tool: "refund", Type: sdk.TypePermissionRequest, Due: 1},
	} {
		if got := c.text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
