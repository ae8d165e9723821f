// Package replay sees that runs which older versions began can go on: journals that were recorded once must be
// understood for ever.
//
// testdata/v<layout> has the journals of one layout version: <story>.jsonl, one entry a line, with blobs beside it, and
// <story>.history.json, what was read from it when it was recorded. Neither may ever change. To add journals:
//
//	go test ./internal/core -run 'TestTranscripts/^story$' -record ../../test/replay/testdata/v1
//	go test ./test/replay -update
//
// and -joint beside -record for entries with absorbed. purged.jsonl is the tombstone of one_call.jsonl. testdata/stores/v<layout> has what each store keeps of runs that wait,
// byte for byte; remove nothing there, and write those of a new layout beside:
//
//	go test ./test/replay -run TestStores -record-stores
package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

var update = flag.Bool("update", false, "write the history of journals that have none yet")

// specOf is the agent of a recorded journal, as far as Next and Step look at it here.
func specOf(file string) *core.Spec {
	s := &core.Spec{
		Name: "travel.desk", Type: "travel.desk", OutputType: "travel.desk.done", MaxTurns: 20, StaleAfter: 180_000,
		PermissionSchema: "#/agentd/permission/request/1.0.0",
		Tools: []core.Tool{
			{Name: "charge", Kind: core.CallInline, AtMostOnce: true},
			{Name: "pay", Kind: core.CallInline, AtMostOnce: true},
			service("lookup"), service("book"),
			{Name: "wipe", Kind: core.CallInline},
			{Name: "add", Kind: core.CallInline},
		},
	}
	if strings.HasPrefix(file, filepath.Join("testdata", "v1")) {
		return s
	}
	clerk, expert := service("clerk"), service("expert")
	clerk.Agent, expert.Agent, expert.Tokens = true, true, 30
	s.Tools = append(s.Tools, clerk, expert, core.Tool{Name: "add", Kind: core.CallInline})
	switch strings.TrimSuffix(filepath.Base(file), ".jsonl") {
	case "sequential":
		s.Sequential = true
	case "hooks_review":
		s.Hooked, s.Reviews, s.Ends = true, true, true
	case "stop_errors":
		s.Stop.Errors = 2
	case "context", "beside":
		s.Contexts = []core.ContextProvider{
			{Section: sdk.SectionPlanning, Service: service("planning"), Once: true},
			{Section: sdk.SectionRetrieval, Service: service("retrieval")},
		}
	case "permission_gates":
		s.Hooked = true
	case "guarded":
		look := service("look")
		look.ReadOnly = true
		s.Tools = append(s.Tools, look, service("act"), core.Tool{Name: "break", Kind: core.CallInline})
		s.Guards = sdk.Guards{Errors: 2, Failures: 2, Duplicates: 2}
	case "undone":
		s.Tools = append(s.Tools, service("cancel_booking"))
		s.Undo = map[string]core.UndoTool{"book": {Tool: "cancel_booking"}}
	case "plan_lists":
		s.Planning = &core.Planning{Replans: sdk.MaxReplans}
	case "plan":
		s.Planning = &core.Planning{Replans: 1}
	case "no_tool_call":
		s.NoToolCall = core.NoToolCall{Remind: true, Limit: 2}
	}
	return s
}

func service(name string) core.Tool {
	return core.Tool{
		Name: name, Kind: core.CallService, Type: "shop." + name, Schema: "#/shop/" + name + "/1.0.0", Timeout: 120_000,
		Retry:    core.Retry{Attempts: 4, Pause: 1000, Longest: 60_000},
		Validate: func(arguments string) (json.RawMessage, []sdk.Fault) { return json.RawMessage(arguments), nil },
	}
}

// recording is what a journal must be read as.
type recording struct {
	// Points are what there is to do, and to wait for, after each entry.
	Points []point `json:"points"`
	// System, Input and History are the run in the end.
	System  string          `json:"system"`
	Input   json.RawMessage `json:"input"`
	History []sdk.Message   `json:"history"`
}

type point struct {
	Next        action        `json:"next"`
	Outstanding []core.Effect `json:"outstanding,omitempty"`
}

type action struct {
	Do     string       `json:"do"`
	Run    []string     `json:"run,omitempty"`
	Begin  []string     `json:"begin,omitempty"`
	Lost   []string     `json:"lost,omitempty"`
	Ending *core.Ending `json:"ending,omitempty"`
}

func describe(next core.Action) action {
	switch next := next.(type) {
	case core.CallModel:
		return action{Do: "call_model"}
	case core.AskContext:
		return action{Do: "ask_context"}
	case core.RunTools:
		return action{Do: "run_tools", Run: ids(next.Run), Begin: ids(next.Begin), Lost: ids(next.Lost)}
	case core.Review:
		return action{Do: "review"}
	case core.BuildOutput:
		return action{Do: "build_output"}
	case core.Undo:
		return action{Do: "undo", Run: []string{next.Call.Call}}
	case core.End:
		return action{Do: "end", Ending: &next.Ending}
	}
	return action{Do: "rest"}
}

func ids(calls []core.Call) []string {
	var list []string
	for _, c := range calls {
		list = append(list, c.ID)
	}
	return list
}

// journals are the recorded files, by version.
func journals(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/v*/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for v := 1; v <= core.LayoutVersion; v++ {
		if v == core.PackedLayout {
			continue // no entry has it
		}
		prefix := filepath.Join("testdata", fmt.Sprintf("v%d", v)) + string(filepath.Separator)
		if !strings.Contains(strings.Join(files, "\n"), prefix) {
			t.Errorf("no journal of layout %d is recorded", v)
		}
	}
	return files
}

// read decodes a journal and checks that it holds together.
func read(t *testing.T, file string) []core.Entry {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entries []core.Entry
	prev := ""
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		e, err := core.DecodeEntry(line)
		if err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		if e.Prev != prev {
			t.Fatalf("entry %d follows %q, not %q", e.Rev, e.Prev, prev)
		}
		prev = core.Digest(line)
		for _, b := range e.Blobs {
			content, err := os.ReadFile(filepath.Join(filepath.Dir(file), "blobs", b.Digest))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Restore(b, content); err != nil {
				t.Fatal(err)
			}
		}
		entries = append(entries, e)
	}
	return entries
}

// TestJournals_AreReadAsRecorded folds every recorded journal.
func TestJournals_AreReadAsRecorded(t *testing.T) {
	t.Parallel()
	for _, file := range journals(t) {
		t.Run(strings.TrimSuffix(file, ".jsonl"), func(t *testing.T) {
			t.Parallel()
			var have recording
			var state core.State
			for _, e := range read(t, file) {
				var err error
				if state, err = core.Apply(state, &e); err != nil {
					t.Fatal(err)
				}
				have.Points = append(have.Points, point{
					Next: describe(core.Next(specOf(file), &state.Head, e.At)), Outstanding: outstanding(&state.Head),
				})
			}
			have.System, have.Input, have.History = state.System, state.Input, state.Messages()
			compare(t, strings.TrimSuffix(file, ".jsonl")+".history.json", have)
		})
	}
}

// outstanding are what the run waits for, each with the revision of the entry that lists it.
func outstanding(h *core.Head) []core.Effect {
	var effects []core.Effect
	for _, f := range core.Outstanding(h) {
		f.Opened = f.Rev
		effects = append(effects, f.Effect)
	}
	return effects
}

func compare(t *testing.T, file string, have recording) {
	t.Helper()
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		data = write(t, file, have)
	} else if err != nil {
		t.Fatal(err)
	}
	var want recording
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	plain := cmp.Transformer("JSON", func(raw json.RawMessage) string {
		if len(raw) == 0 {
			return "null" // as it is written
		}
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return err.Error()
		}
		return b.String()
	})
	if diff := cmp.Diff(want, have, plain); diff != "" {
		t.Errorf("-recorded +now:\n%s", diff)
	}
}

func write(t *testing.T, file string, r recording) []byte {
	t.Helper()
	data, err := core.EncodeJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestJournals_GoOnFromEveryEntry sees that a run which this version finds at any entry is understood by Step: its
// driver's message is taken over, its answers are accepted, its timer fires, and it can be cancelled.
func TestJournals_GoOnFromEveryEntry(t *testing.T) {
	t.Parallel()
	for _, file := range journals(t) {
		t.Run(strings.TrimSuffix(file, ".jsonl"), func(t *testing.T) {
			t.Parallel()
			entries := read(t, file)
			for i := range entries {
				goOn(t, specOf(file), entries[:i+1])
			}
		})
	}
}

func goOn(t *testing.T, spec *core.Spec, entries []core.Entry) {
	t.Helper()
	last := &entries[len(entries)-1]
	try := func(cause core.Cause, ev core.Event) {
		t.Helper()
		in := core.Input{At: last.At, Cause: cause, Owner: "somebody", Rev: last.Rev + 1, Event: ev}
		change, err := core.Step(spec, last.Head, in)
		if err != nil {
			t.Errorf("entry %d: %T: %v", last.Rev, ev, err)
			return
		}
		if _, err := core.EncodeJSON(change); err != nil {
			t.Errorf("entry %d: %T: %v", last.Rev, ev, err)
		}
	}
	h := &last.Head
	cause := core.Cause{Stream: "AGENTD_IN", Sequence: 1000, EventID: "later"}
	if h.Status == core.StatusDone {
		return
	}
	if h.Cancel == nil {
		try(cause, core.CancelAsked{})
	}
	if d := h.Driver; d != nil {
		try(d.Cause(), core.TakenOver{})
	}
	if h.Cancel == nil && !slices.Contains(h.Heard, "nlater") && len(h.Undo) == 0 {
		ev := core.Steered{Note: core.Note{ID: "nlater", Text: "and another thing", Event: "later", Source: "somebody"}}
		if h.Budget > 0 && h.TokensLeft() <= 0 && len(h.Calls) == 0 { // no model call is left to read it
			in := core.Input{At: last.At, Cause: cause, Owner: "somebody", Rev: last.Rev + 1, Event: ev}
			if _, err := core.Step(spec, last.Head, in); !errors.Is(err, &sdk.Error{Code: sdk.CodeMessageRefused}) {
				t.Errorf("entry %d: a message that nobody would read: %v", last.Rev, err)
			}
		} else {
			try(cause, ev)
		}
	}
	for _, f := range core.Outstanding(h) {
		switch f.Kind {
		case core.EffectTimer:
			try(cause, core.Fired{Now: f.Due, Due: f.Due})
		case core.EffectCall:
			try(cause, answer(h, entries[f.Rev-1].Effect(f.Kind, f.Call)))
		case core.EffectVoid, core.EffectTerminal, core.EffectGrant, core.EffectCleanup, core.EffectRunEnd, core.EffectPark, core.EffectAnswer:
		}
	}
}

// answer is a response to a call, as its event is addressed; a permission request is allowed.
func answer(h *core.Head, f core.Effect) core.Answered {
	ref, _ := wire.ParseCallRef(f.Call) // the journal's own id
	ref.Attempt = max(f.Attempt, 1)
	ev := core.Answered{
		Ref: ref, ParentID: f.Call, EventID: "answer", Data: json.RawMessage(`{"message":"yes","end":true}`), Who: "carl",
		Address: wire.CallAddress{
			Domain: wire.DomainToken(f.Lanes()[0]), Type: wire.NameToken(f.Type), Agent: wire.NameToken(h.Agent), Run: h.Key(),
			Call: ref.EventID(),
		},
	}
	for _, c := range h.Calls {
		if c.ID == f.Call && c.Permission != nil {
			ev.Decision = &sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: c.Permission.ArgsHash}
			ev.Who = fmt.Sprintf("approver-%d", len(c.Permission.Allowed))
			if len(c.Permission.Approvers) > 0 {
				ev.Who = c.Permission.Approvers[len(c.Permission.Allowed)]
			}
			ev.EventID += " of " + ev.Who
		}
	}
	return ev
}

// TestJournals_ResumeToTheirEnd takes every run up after every one of its entries, and brings it to its terminal event.
func TestJournals_ResumeToTheirEnd(t *testing.T) {
	t.Parallel()
	for _, file := range journals(t) {
		t.Run(strings.TrimSuffix(file, ".jsonl"), func(t *testing.T) {
			t.Parallel()
			entries := read(t, file)
			for n := range entries {
				resume(t, specOf(file), entries[:n+1])
			}
		})
	}
}

// resume plays the worker that finds the journal, and everybody that the run waits for.
func resume(t *testing.T, spec *core.Spec, found []core.Entry) {
	t.Helper()
	var state core.State
	entries := append([]core.Entry(nil), found...)
	for i := range entries {
		var err error
		if state, err = core.Apply(state, &entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	at := entries[len(entries)-1].At
	commit := func(owner string, cause core.Cause, ev core.Event) {
		t.Helper()
		in := core.Input{At: at, Cause: cause, Owner: owner, Rev: state.Rev + 1, Event: ev}
		change, err := core.Step(spec, state.Head, in)
		if err != nil {
			t.Fatalf("after entry %d of %d: %T: %v", state.Rev, len(found), ev, err)
		}
		e := core.Entry{V: change.Head.V, Rev: state.Rev + 1, Cause: cause, At: at, Change: change}
		if state, err = core.Apply(state, &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if d := state.Driver; d != nil {
		commit("resumed", d.Cause(), core.TakenOver{})
	}
	for n := uint64(0); state.Status != core.StatusDone; n++ {
		if n > 50 {
			t.Fatalf("after entry %d the run does not end: %+v", len(found), state.Head)
		}
		cause := core.Cause{Stream: "AGENTD_IN", Sequence: 1000 + n, EventID: "later"}
		if state.Status == core.StatusRunning {
			d := state.Driver
			commit(d.Owner, d.Cause(), work(spec, &state))
			continue
		}
		commit(fmt.Sprintf("w%d", n), cause, next(entries, &state.Head))
	}
	if last := entries[len(entries)-1]; last.Terminal == nil && last.Head.Purged == nil {
		t.Errorf("after entry %d the run ends without a terminal event", len(found))
	}
}

// next is what happens to a waiting run: it is resumed, its timer fires when it is parked or another attempt is planned, or one of its
// calls is answered.
func next(entries []core.Entry, h *core.Head) core.Event {
	if h.Paused != nil {
		return core.ResumeAsked{Received: entries[len(entries)-1].At + 1}
	}
	if h.Parked != nil && h.Parked.Until > 0 {
		return core.Fired{Now: h.Timer, Due: h.Timer}
	}
	for _, c := range h.Calls {
		if c.RetryAt > 0 && !c.Closed() {
			return core.Fired{Now: h.Timer, Due: h.Timer}
		}
	}
	f := core.Outstanding(h)[0]
	return answer(h, entries[f.Rev-1].Effect(f.Kind, f.Call))
}

// work is what the driver of a run has done.
func work(spec *core.Spec, s *core.State) core.Event {
	switch next := core.Next(spec, &s.Head, s.Deadline-1).(type) {
	case core.RunTools:
		if len(next.Begin) > 0 {
			return core.Began{Calls: ids(next.Begin)}
		}
		if len(next.Judge) > 0 {
			return core.Returned{Passed: ids(next.Judge)}
		}
		var results []core.Result
		for _, c := range next.Run {
			results = append(results, core.Result{Call: c.ID, Kind: core.ResultInline, Data: json.RawMessage(`{}`)})
		}
		for _, c := range next.Lost {
			results = append(results, core.OutcomeUnknown(c))
		}
		return core.Returned{Results: results}
	case core.AskContext:
		return core.Inquired{Question: json.RawMessage(`{}`)}
	case core.MakePlan:
		return core.Planned{Fault: "nobody plans"}
	case core.RouteSteps:
		ev := core.Routed{}
		for _, n := range next.Steps {
			ev.Routes = append(ev.Routes, core.Route{Step: n, Fault: "nobody chooses"})
		}
		return ev
	case core.Undo:
		reply := sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: spec.Undo[next.Call.Tool].Tool, Arguments: "{}"}}}
		return core.Undoing{Admission: core.Admit(spec, &s.Head, s.Input, reply, nil, s.Deadline-1)}
	case core.Review:
		return core.Reviewed{}
	case core.Park:
		return core.Parked{Why: core.ParkPaused}
	case core.BuildOutput:
		return core.Built{Output: core.Output{Data: json.RawMessage(`{}`)}}
	case core.End:
		return core.Ended{Ending: next.Ending}
	}
	return core.Replied{Reply: sdk.ModelReply{Text: "done"}, Output: &core.Output{Data: json.RawMessage(`{}`)}}
}
