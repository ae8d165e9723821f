package seeds_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentd/sdk/wire"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// watchedRun is the run of desk, with all that was told of it live, when its end was told. Serve, unless nil, is called when
// its suspension was told: answers before that may be told first.
func watchedRun(t *testing.T, h *harness.Harness, serve func()) (harness.Run, []wire.Live) {
	t.Helper()
	init := h.Init("desk", message("hello"))
	var mu sync.Mutex
	var events []wire.Live
	stop, err := h.Conn().WatchLive(h.Conn().Subjects().Live("desk", wire.NewRunKey(init.Subject)), func(l wire.Live) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	announced := func(kind string) {
		await(t, kind+" is announced", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.ContainsFunc(events, func(l wire.Live) bool { return l.Type == kind })
		})
	}
	r := h.Send("desk", init)
	if serve != nil {
		announced(wire.MilestoneSuspended)
		serve()
	}
	h.Done(r)
	announced(wire.MilestoneFinished)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return r, events
}

// told are the events of those types, each with its data.
func told(events []wire.Live, types ...string) []string {
	var all []string
	for _, l := range events {
		for _, kind := range types {
			if l.Type == kind {
				all = append(all, strings.TrimSpace(l.Type+" "+string(l.Data)))
			}
		}
	}
	return all
}

// loopEvents is row F31: the start of a loop, each iteration with its number, the limit and the end with its reason.
func loopEvents(t *testing.T) {
	a := desk()
	a.Tools, a.Spec.Limits.Interactions = []sdk.Tool{echo("note")}, 2
	note := sdktest.Ask(sdktest.Tool("note", n(1)))
	h := start(t, sdktest.Script(note, note), a)
	_, events := watchedRun(t, h, nil)
	var loop []string
	for _, l := range events {
		switch l.Type {
		case wire.MilestoneStarted, wire.LiveTurnStarted, wire.MilestoneExhausted, wire.MilestoneFinished:
			loop = append(loop, l.Type)
		}
	}
	equal(t, "events", loop, []string{
		wire.MilestoneStarted, wire.LiveTurnStarted, wire.LiveTurnStarted, wire.MilestoneExhausted, wire.MilestoneFinished,
	})
	equal(t, "limit", told(events, wire.MilestoneExhausted), []string{
		`run.exhausted {"interactions":2,"limit":"interactions","used":4}`,
	})
	for _, l := range events {
		if l.Type == wire.MilestoneFinished {
			var end struct{ Reason, Code string }
			if err := json.Unmarshal(l.Data, &end); err != nil {
				t.Fatal(err)
			}
			equal(t, "end", []string{end.Reason, end.Code}, []string{"quota", "interactions"})
		}
	}
}

// fragmentEvents is rows F32 and F33: what a reply is made of is told as it is made, each part with its start and end, and a
// call's tool before its arguments. Thinking is kept nowhere.
func fragmentEvents(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, inText(t, sdktest.Script(
		sdktest.Say(`<thinking>A note is needed.</thinking>I note it. <tool>{"server_name":"local","tool_name":"note","arguments":{"n":1}}</tool>`),
		sdktest.Say(`<thinking>That was it.</thinking>done`))), a)
	r, events := watchedRun(t, h, nil)
	equal(t, "events", told(events,
		wire.LiveThinkingStarted, wire.LiveThinkingEnded, wire.LiveMessageStarted, wire.LiveMessageEnded, wire.LiveCallStarted,
		wire.LiveCallEnded, wire.LiveDelta), []string{
		`thinking.started {}`, `model.delta {"thinking":"A note is needed."}`, `thinking.ended {}`,
		`message.started {}`, `model.delta {"text":"I note it."}`, `message.ended {}`,
		`call.started {"tool":"note"}`, `model.delta {"tool":"note"}`, `call.ended {"tool":"note"}`,
		`thinking.started {}`, `model.delta {"thinking":"That was it."}`, `thinking.ended {}`,
		`message.started {}`, `model.delta {"text":"done"}`, `message.ended {}`,
	})
	var kept []byte
	for _, l := range events {
		if !l.Ephemeral {
			kept = append(kept, l.Data...)
		}
	}
	for _, e := range h.Journal(r) {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, data...)
	}
	if !strings.Contains(string(kept), "I note it") || strings.Contains(string(kept), "A note is needed") {
		t.Errorf("thinking is kept: %s", kept)
	}
}

// envelope is row T62: every live event names its run, its turn and the time, and has an id; those that the journal has are
// numbered so that texts of the attribute sequence sort as the events were told.
func envelope(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done")), a)
	r, events := watchedRun(t, h, func() {
		h.Call("shop.find").Answer("shop.find.done", value("it"))
	})
	before, ids := "", map[string]bool{}
	for _, l := range events {
		data, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			SpecVersion, ID, Type, Subject, Time, Agent, Sequence string
			Turn                                                  *int
		}
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		if e.SpecVersion != "1.0" || e.Subject != r.Subject || e.Agent != "desk" || e.Time == "" || e.Turn == nil || ids[e.ID] {
			t.Errorf("the envelope is not complete, or its id is not its own: %s", data)
		}
		ids[e.ID] = true
		if !l.Ephemeral && e.Sequence <= before {
			t.Errorf("%s has the sequence %s after %s", e.Type, e.Sequence, before)
		}
		if !l.Ephemeral {
			before = e.Sequence
		}
	}
	equal(t, "turns", []int{events[0].Turn, events[len(events)-1].Turn}, []int{0, 2})
}
