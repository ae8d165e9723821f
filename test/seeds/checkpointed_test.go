package seeds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// committed are the entries of a run, each with the checkpoints that it is.
func committed(h *harness.Harness, r harness.Run) []string {
	var all []string
	for _, e := range h.Parts(r) {
		all = append(all, strings.TrimSuffix(fmt.Sprint(e.Kind, " ", e.Checkpoints), " []"))
	}
	return all
}

// checkpointOfReplay is row T5: a worker that finds a decision makes a checkpoint of results when it has made a call, and none when
// there was none to make.
func checkpointOfReplay(t *testing.T) {
	a := gated(asks(sdk.PermissionHold, "note"))
	a.Tools, a.Spec.Decisions = []sdk.Tool{echo("note")}, sdk.DecisionsBatch
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("note", n(2))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	asked := requests(t, h, 2)
	h.Suspended(r, 4)
	h.Restart()
	decide(asked["1"], allow) // its call waits for the other decision
	h.Suspended(r, 3)
	h.Restart()
	equal(t, "entries when nothing was made", committed(h, r), []string{
		"started [UserMessage]", "replied [AssistantTurnCommitted RunFinished]", "answered",
	})
	decide(asked["2"], allow)
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "entries in the end", committed(h, r), []string{
		"started [UserMessage]", "replied [AssistantTurnCommitted RunFinished]", "answered", "answered", "returned [ToolResultsCommitted]",
		"replied [AssistantTurnCommitted RunFinished]",
	})
}

// checkpointOfDecision is row T16: a decision that matches nothing makes no entry, one that does not count no checkpoint, and one
// that lets a call be made one, with the call's result.
func checkpointOfDecision(t *testing.T) {
	a := gated(asks(sdk.PermissionHold, "note"))
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	c := request(t, h)
	h.Suspended(r, 2)
	stray := c.Response("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", ArgsHash: fmt.Sprint(c.Data()["args_sha256"])})
	stray.ID, stray.ParentID = "stray", "c9-9-somethingelse"
	h.PublishAs("bob", c, stray)
	equal(t, "a decision on something else", h.DeadLetter().Reason, "unknown_run")
	before := []string{"started [UserMessage]", "replied [AssistantTurnCommitted RunFinished]"}
	equal(t, "entries", committed(h, r), before)

	wrong := c.Response("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", ArgsHash: strings.Repeat("0", 64)})
	wrong.ID = "wrong"
	h.PublishAs("eve", c, wrong)
	h.Until(r, "refused", func(s core.State) bool { return s.Rev == 3 })
	decide(c, allow)
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "entries", committed(h, r), append(before, "answered", "answered", "returned [ToolResultsCommitted]",
		"replied [AssistantTurnCommitted RunFinished]"))
}

// appends is a store that notes on which entry each new one was written.
type appends struct {
	runner.Store
	mu   sync.Mutex
	upon []string
}

func (s *appends) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	v, err := s.Store.Append(ctx, run, base, next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.upon = append(s.upon, base.Etag)
	}
	return v, err
}

// compareAndSet is row T57: every entry is written on condition that the one before is still the last. Who finds another there, of
// somebody who has taken the run, writes nothing more and makes no call.
func compareAndSet(t *testing.T) {
	store := &appends{Store: memory.New()}
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	model := sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
		once.Do(func() { close(asked) })
		<-answer
		return find(1), nil
	})
	open := harness.Options{
		Agents: []sdk.Agent{desk(service("shop.find"))}, Model: model, OpenStore: func(*broker.Conn) runner.Store { return store },
	}
	h := harness.Start(t, open)
	r := h.Run("desk", message("hello"))
	<-asked
	records, err := store.Entries(t.Context(), r.Key, runner.Version{})
	if err != nil || len(records) != 1 {
		t.Fatalf("%d entries: %v", len(records), err)
	}
	entry, err := core.DecodeEntry(records[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	// Another activation takes the run over.
	entry.Rev, entry.Etag, entry.Prev = 2, "of-another", core.Digest(records[0].Data)
	entry.Change = core.Change{Kind: "taken_over", Head: entry.Head}
	driver := *entry.Head.Driver
	driver.Owner = "another"
	entry.Head.Driver, entry.Head.Fence = &driver, entry.Head.Fence+1
	data, err := entry.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(t.Context(), r.Key, records[0].Version, runner.Record{Version: runner.Version{Rev: 2, Etag: "of-another"}, Data: data}); err != nil {
		t.Fatal(err)
	}
	close(answer)
	h.StopWorkers()
	h.Restart()
	equal(t, "entries", kinds(h.Parts(r)), []string{"started", "taken_over"})
	h.NoCall("shop.find")

	store.mu.Lock()
	store.upon = nil
	store.mu.Unlock()
	open.Model = sdktest.Script(find(1), sdktest.Say("done"))
	h = harness.Start(t, open)
	other := h.Send("desk", other(h, "desk", "whole", message("hello")))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, other, `{"response": "done"}`)
	h.StopWorkers()
	h.Restart()
	want := []string{""}
	for _, e := range h.Journal(other) {
		want = append(want, e.Etag)
	}
	equal(t, "what each entry was written on", store.upon, want[:len(want)-1])
	equal(t, "what they say", kinds(h.Parts(other)), []string{"started", "replied", "answered", "replied"})
}

// decidedAtOnce is row T41: a decision that comes while tools work does what it does at once: the call that it allows is out before
// they have returned.
func decidedAtOnce(t *testing.T) {
	tool, began, release := slow("note")
	a := gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find"))
	a.Tools = []sdk.Tool{tool}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	<-began
	decide(request(t, h), allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	state := h.Until(r, "answered", func(s core.State) bool { return len(s.Results) == 2 }) // the decision, and the call's
	equal(t, "status while the tool works", string(state.Status), "running")
	equalJSON(t, "the call's result", lastResult(state), `{"value": "it"}`)
	close(release)
	succeeds(t, h, r, `{"response": "done"}`)
}

func lastResult(s core.State) json.RawMessage { return s.Results[len(s.Results)-1].Data }
