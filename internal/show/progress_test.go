package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/toolbox"
	"agentd/sdk/wire"
)

func TestProgress_ShowsEachMilestoneOnce(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Progress{W: &b, Quiet: map[string]bool{toolbox.AskQuestion: true}}
	event := func(rev uint64, index int, kind, data string) {
		p.Show(wire.Live{Run: "one", Agent: "desk", Revision: rev, Index: index, Type: kind, Data: json.RawMessage(data)})
	}
	event(1, 0, wire.MilestoneStarted, `{"input":{"city":"Bern"}}`)
	event(2, 0, wire.MilestoneReply, `{"text":"Let me\nlook."}`)
	p.Show(wire.Live{Run: "one", Revision: 2, Ephemeral: true, Type: "delta", Data: json.RawMessage(`{"text":"Le"}`)})
	event(2, 1, wire.MilestoneCall, `{"call":"c1","tool":"search","args":{"n":1}}`)
	event(2, 2, wire.MilestoneCall, `{"call":"c2","tool":"search","args":{"n":2}}`)
	event(2, 1, wire.MilestoneCall, `{"call":"c1","tool":"search","args":{"n":1}}`)
	event(2, 3, wire.MilestoneSuspended, `{"calls":2}`)
	event(3, 0, wire.MilestoneResult, `{"call":"c1","data":{"found":1}}`)
	event(3, 1, wire.MilestoneSuspended, `{"calls":2}`)
	event(4, 0, wire.MilestoneResult, `{"call":"c2","data":{"code":"tool_failed"},"error":true}`)
	event(2, 0, wire.MilestoneReply, `{"text":"late"}`)
	event(5, 0, wire.MilestoneCall, `{"call":"c3","tool":"ask_question","args":{"question":"Which?"}}`)
	event(5, 1, wire.MilestoneSuspended, `{"calls":1}`)
	event(6, 0, wire.MilestoneResult, `{"call":"c3","data":{"answer":"both"}}`)
	event(7, 0, wire.MilestoneParked, `{"why":"model","model":"small"}`)
	event(7, 1, wire.MilestoneSuspended, `{"calls":0}`)
	event(8, 0, wire.MilestoneFinished, `{"reason":"completed","type":"desk.done","data":{}}`)
	want := `started   {"city":"Bern"}
says      Let me look.
calls     search {"n":1}
calls     search {"n":2}
waits     for 2 answers
result    search {"found":1}
waits     for 1 answer
error     search {"code":"tool_failed"}
answer    both
waits     its time has come
finished  completed
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	select {
	case <-p.Ended("one"):
	default:
		t.Error("the end is not noticed")
	}
}

// What guards do, and that the history is shortened, is said in words.
func TestProgress_SaysWhatGuardsDo(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Progress{W: &b}
	for n, e := range [][2]string{
		{wire.MilestoneGuarded, `{"guard":"errors"}`},
		{wire.MilestoneGuarded, `{"guard":"failures","tool":"pay","reason":"the bank is closed"}`},
		{wire.MilestoneGuarded, `{"guard":"duplicates","tool":"search","call":"c2"}`},
		{wire.MilestoneGuarded, `{"guard":"conclude"}`},
		{wire.MilestoneGuarded, `{"guard":"of a later version","tool":"search"}`},
		{wire.MilestoneCompacted, `{"messages":12,"lined":20,"evicted":900,"files":["/a"]}`},
	} {
		p.Show(wire.Live{Run: "one", Agent: "desk", Revision: uint64(n) + 1, Type: e[0], Data: json.RawMessage(e[1])})
	}
	want := `guarded   all calls fail; the model was told what to do about it
guarded   the tool pay was withdrawn: the bank is closed
guarded   the call of search was answered from the result of an earlier one
guarded   the model repeats itself, and is asked for its final answer
guarded   of a later version search
shortened to the model, a summary stands for 12 messages, and results of 8 more have one line: about 900 tokens fewer
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What somebody allowed with other arguments is shown with them. That somebody looked at a request changes nothing, and the name of a
// call's tool need not have been seen before.
func TestProgress_OfACallThatIsEdited(t *testing.T) {
	t.Parallel()
	have := shown(
		wire.Live{Revision: 4, Type: wire.MilestoneCall, Data: json.RawMessage(`{"call":"c1","tool":"refund","args":{"euros":80}}`)},
		wire.Live{Revision: 4, Index: 1, Type: wire.MilestoneSuspended, Data: json.RawMessage(`{"calls":2}`)},
		wire.Live{Revision: 5, Type: wire.MilestoneSuspended, Data: json.RawMessage(`{"calls":2}`)},
		wire.Live{Revision: 6, Type: wire.MilestoneDecided, Data: json.RawMessage(`{"decision":{"request":"p1","call":"c1","decision":"allow","who":"root","reason":"half"},"args":{"euros":40}}`)},
		wire.Live{Revision: 7, Type: wire.MilestoneSuspended, Data: json.RawMessage(`{"calls":1}`)},
		wire.Live{Revision: 8, Type: wire.MilestoneResult, Data: json.RawMessage(`{"call":"c1","tool":"refund","data":{"paid":40}}`)},
		wire.Live{Revision: 9, Type: wire.MilestoneResult, Data: json.RawMessage(`{"call":"c0","tool":"stock","data":{"left":2}}`)},
	)
	want := `calls     refund {"euros":80}
waits     for answers
decided   allow by root, with {"euros":40}: half
waits     for answers
result    refund {"paid":40}
result    stock {"left":2}
`
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A run that waits for its model says why, as of the time of the event, and asks nobody for anything.
func TestProgress_OfAParkedRun(t *testing.T) {
	t.Parallel()
	const since = 1_790_000_000_000
	have := shown(
		wire.Live{Revision: 1, Type: wire.MilestoneStarted, Data: json.RawMessage(`{"input":{"message":"Hello"}}`)},
		wire.Live{Revision: 2, Time: since, Type: wire.MilestoneParked, Data: json.RawMessage(
			`{"why":"model","model":"small","message":"the key is not accepted","since":1790000000000,"until":1790000030420}`)},
		wire.Live{Revision: 2, Index: 1, Type: wire.MilestoneSuspended, Data: json.RawMessage(`{"calls":0}`)},
		wire.Live{Revision: 3, Type: wire.MilestoneMessage, Data: json.RawMessage(`{"message":"Still there?"}`)},
		wire.Live{Revision: 3, Index: 1, Type: wire.MilestoneSuspended, Data: json.RawMessage(`{"calls":0}`)},
		wire.Live{Revision: 4, Time: since + 31_000, Type: wire.MilestoneParked, Data: json.RawMessage(
			`{"why":"rate","model":"small","message":"slow down","since":1790000000000,"until":1790000091000}`)},
	)
	want := `started   Hello
waits     model small since 0s, next try within 31s: the key is not accepted
message   Still there?
waits     model small since 31s, next try within 1m: slow down
`
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// shown is what is printed of milestones of a run.
func shown(milestones ...wire.Live) string {
	var b bytes.Buffer
	p := &Progress{W: &b}
	for _, l := range milestones {
		l.Run, l.Agent = "one", "desk"
		p.Show(l)
	}
	return b.String()
}

// People read JSON on terminals too.
func TestProgress_ShowsAllThatJSONHas(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := &Progress{W: &b, JSON: true}
	p.Show(wire.Live{Run: "one", Revision: 1, Type: wire.MilestoneReply, Data: json.RawMessage("{\"text\":\"\u009b2J\u202e\"}")})
	if got := b.String(); !strings.HasSuffix(got, `"data":{"text":"\u009b2J\u202e"}}`+"\n") {
		t.Error(got)
	}
}

// A command that is printed to be copied is that of the server that was asked, and is whole where the terminal is narrow.
func TestProgress_HasCommandsThatCanBeCopied(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	command := func(args ...string) string { return "agentd --nats nats://prod " + strings.Join(args, " ") }
	p := &Progress{W: &b, Command: command, Columns: func() int { return 40 }}
	p.Note(LabelWaits, "for somebody to answer; for example: "+command("runs", "follow", "one"))
	p.Show(wire.Live{Run: "one", Revision: 1, Type: wire.MilestoneRequested, Data: json.RawMessage(`{"request":"c1-0-abcdefghij","asked":{"tool":"pay"}}`)})
	want := `waits     for somebody to answer; for example: agentd --nats nats://prod runs follow one
asks      permission for pay: agentd --nats nats://prod approvals show c1-0-abc
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
