package show

import (
	"bytes"
	"encoding/json"
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
