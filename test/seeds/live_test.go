package seeds_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// listener hears what is told live of a run of desk.
type listener struct {
	mu     sync.Mutex
	events []wire.Live
	stop   func() error
}

// listen hears what is told of the run from now on.
func listen(t *testing.T, h *harness.Harness, subject string) *listener {
	t.Helper()
	l := &listener{}
	stop, err := h.Conn().WatchLive("desk", wire.NewRunKey(subject), func(e wire.Live) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
	}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	l.stop = sync.OnceValue(stop)
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *listener) all() []wire.Live {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// kept are the types of the events that the journal has, in the order in which they were heard.
func (l *listener) kept() []string {
	var types []string
	for _, e := range l.all() {
		if !e.Ephemeral {
			types = append(types, e.Type)
		}
	}
	return types
}

// heard are the events of those types, each with its data.
func (l *listener) heard(types ...string) []string { return told(l.all(), types...) }

// await waits until so many events of the type were heard.
func (l *listener) await(t *testing.T, kind string, count int) {
	t.Helper()
	await(t, kind+" is announced", func() bool { return len(l.heard(kind)) >= count })
}

// watchedRun is the run of desk, with all that was told of it live, when its end was told. Serve, unless nil, is called when
// its suspension was told: answers before that may be told first.
func watchedRun(t *testing.T, h *harness.Harness, serve func()) (harness.Run, []wire.Live) {
	t.Helper()
	init := h.Init("desk", message("hello"))
	l := listen(t, h, init.Subject)
	r := h.Send("desk", init)
	if serve != nil {
		l.await(t, "run.suspended", 1)
		serve()
	}
	h.Done(r)
	l.await(t, "run.finished", 1)
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	return r, l.all()
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

// streamed is a model that says what it writes while it writes it.
type streamed func(context.Context, func(sdk.Delta)) (sdk.ModelReply, error)

func (s streamed) Generate(ctx context.Context, _ sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	return s(ctx, onDelta)
}

// earlyToolName is row F33: who watches knows the tool of a call while the model still writes its arguments.
func earlyToolName(t *testing.T) {
	goOn := make(chan struct{})
	model := streamed(func(ctx context.Context, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
		parts := []string{`<tool>{"server_name":"local","tool_name":"note",`, `"arguments":{"n":1}}</tool>`}
		onDelta(sdk.Delta{Text: parts[0]})
		select {
		case <-goOn:
		case <-ctx.Done(): // the test has failed
			return sdk.ModelReply{}, ctx.Err()
		}
		onDelta(sdk.Delta{Text: parts[1]})
		return sdktest.Say(parts[0] + parts[1]), nil
	})
	a := noting()
	a.Spec.Limits.Interactions = 1
	h := start(t, inText(t, model), a)
	r, l := heardRun(t, h)
	l.await(t, "call.started", 1)
	equal(t, "while the arguments are written", l.heard("call.started", "call.ended"), []string{`call.started {"tool":"note"}`})
	close(goOn)
	equal(t, "reason", reason(h, r), "quota:interactions")
}

func allFragments(t *testing.T) {
	t.Run("parts", func(t *testing.T) { show(t, fragmentEvents) })
	t.Run("early tool name", earlyToolName)
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
	for _, e := range h.Parts(r) {
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
	began := time.Now().Add(-time.Second)
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done")), a)
	r, events := watchedRun(t, h, func() {
		h.Call("shop.find").Answer("shop.find.done", value("it"))
	})
	before, ids, told := "", map[string]bool{}, 0
	turns := map[string]int{wire.MilestoneStarted: 0, wire.MilestoneCall: 1, wire.MilestoneResult: 1, wire.MilestoneFinished: 2}
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
		if at, err := time.Parse(time.RFC3339, e.Time); err != nil || at.Before(began) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("%s is of the time %s: %v", e.Type, e.Time, err)
		}
		if turn, ok := turns[l.Type]; ok {
			equal(t, "turn of "+l.Type, *e.Turn, turn)
			told++
		}
		if !l.Ephemeral && e.Sequence <= before {
			t.Errorf("%s has the sequence %s after %s", e.Type, e.Sequence, before)
		}
		if !l.Ephemeral {
			before = e.Sequence
		}
	}
	equal(t, "events whose turns are known", told, 1+2+2+1)
}
