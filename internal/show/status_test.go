package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"agentd/sdk/wire"
)

func TestProgress_TerminalShowsWhatGoesOn(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Progress{W: &b, Columns: func() int { return 80 }}
	said := func() string {
		defer b.Reset()
		return b.String()
	}
	event := func(ephemeral bool, kind, data string) {
		p.Show(wire.Live{Run: "one", Agent: "desk", Revision: 1, Ephemeral: ephemeral, Type: kind, Data: json.RawMessage(data)})
	}
	event(true, wire.LiveTurnStarted, `{"model":"gpt"}`)
	if got := said(); !strings.HasSuffix(got, "thinks    gpt\x1b[0m") {
		t.Errorf("a turn begins: %q", got)
	}
	event(true, wire.LiveDelta, `{"text":"Let me\n"}`)
	event(true, wire.LiveDelta, `{"text":"see\u001b[2J."}`)
	if got := said(); !strings.HasSuffix(got, "writes    Let me see\\u001b[2J.\x1b[0m") {
		t.Errorf("fragments: %q", got)
	}
	event(true, wire.LiveDelta, `{"text":"`+strings.Repeat("long ", 40)+`"}`)
	if got := said(); len([]rune(got)) > statusTail+40 || strings.Contains(got, "\n") {
		t.Errorf("a long text takes %d characters: %q", len([]rune(got)), got)
	}
	event(true, wire.LiveDelta, `{"reset":true,"text":"Anew"}`)
	if got := said(); !strings.HasSuffix(got, "writes    Anew\x1b[0m") {
		t.Errorf("an attempt begins anew: %q", got)
	}
	event(false, wire.MilestoneReply, `{"text":"Anew."}`)
	if got := said(); got != eraseLine+"says      Anew.\n" {
		t.Errorf("a milestone: %q", got)
	}
}
