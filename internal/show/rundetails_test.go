package show

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

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
	if err := d.Write(&b, 0, false); err != nil {
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
