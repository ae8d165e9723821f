package core_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// recorded are the entries of the journals in test/replay.
func recorded(tb testing.TB) [][]byte {
	tb.Helper()
	files, err := filepath.Glob("../../test/replay/testdata/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no recorded journals: %v", err)
	}
	var lines [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
			lines = append(lines, bytes.Clone(s.Bytes()))
		}
	}
	return lines
}

// FuzzDecodeEntry sees that no bytes make the core panic: what is not an entry is refused, and what is one can be gone on
// from.
func FuzzDecodeEntry(f *testing.F) {
	for _, line := range recorded(f) {
		f.Add(line)
	}
	f.Add([]byte(`{"v":1,"rev":1,"head":{"status":"running"}}`))
	f.Add([]byte(`{"v":1,"rev":1,"head":{"status":"paused"}}`))
	f.Add([]byte(`{"v":1,"rev":1,"head":{"status":"done","reason":"error","calls":[{}]}}`))
	f.Add([]byte(`{"v":1,"rev":1,"head":{"status":"waiting","timer":1,"calls":[{"id":"c0-0-aaaaaaaaaaaaaaaaaaaaaaaaaa","kind":"turn"}]}}`))
	spec := newSpec(service("lookup", second), inline("charge", true))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := core.DecodeEntry(data)
		if err != nil {
			return
		}
		line, err := e.Encode()
		if err != nil {
			t.Fatalf("an entry that was read cannot be written: %v", err)
		}
		again, err := core.DecodeEntry(line)
		if err != nil {
			t.Fatalf("an entry that was written cannot be read: %v\n%s", err, line)
		}
		if rewritten, err := again.Encode(); err != nil || !bytes.Equal(line, rewritten) {
			t.Fatalf("an entry is written in two ways: %v\n%s\n%s", err, line, rewritten)
		}
		goOn(spec, &e)
	})
}

// goOn does to an entry whatever can be done to one; errors are as good as none.
func goOn(spec *core.Spec, e *core.Entry) {
	milestone.Of(e)
	core.Outstanding(&e.Head)
	core.Next(spec, &e.Head, e.At)
	if s, err := core.Apply(core.State{Rev: e.Rev - 1}, e); err == nil {
		s.Messages()
		s.StopText()
		s.Arguments("c1")
	}
	owner := ""
	if e.Head.Driver != nil {
		owner = e.Head.Driver.Owner
	}
	r := &rig{spec: spec, now: e.At, state: core.State{Head: e.Head}}
	results, ids := []core.Result{}, []string{}
	events := []core.Event{
		core.Fired{Now: e.Head.Timer, Due: e.Head.Timer},
		core.CancelAsked{},
		core.TakenOver{},
		core.Built{},
		started("other", ""), r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: "{}"}), r.replied("text"),
	}
	for _, c := range e.Head.Calls {
		ref, _ := wire.ParseCallRef(c.ID) // what does not parse is refused
		events = append(events, core.Answered{Ref: ref, Address: c.Addresses(&e.Head)[0]})
		results, ids = append(results, core.Result{Call: c.ID}), append(ids, c.ID)
	}
	for _, ev := range append(events, core.Began{Calls: ids}, core.Returned{Results: results}) {
		in := core.Input{At: e.At + 1, Cause: e.Cause, Owner: owner, Rev: e.Rev + 1, Event: ev}
		_, _ = core.Step(spec, e.Head, in) // refused or not
	}
}

func TestDecodeEntry_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, want string }{
		"no JSON":           {`{"v":1`, "decode journal entry"},
		"more than one":     {`{"v":1}{"v":1}`, "decode journal entry"},
		"no layout":         {`{"rev":7}`, "entry 7 has layout 0"},
		"a later layout":    {`{"v":99,"rev":7}`, "it has layout 99, this worker reads 1 to 10"},
		"of other types":    {`{"v":99,"rev":"7"}`, "it has layout 99, this worker reads 1 to 10"},
		"no head":           {`{"v":1,"rev":7}`, "unknown status"},
		"a driver too few":  {`{"v":1,"rev":7,"head":{"status":"running"}}`, "a running run with driver"},
		"nothing to expect": {`{"v":1,"rev":7,"head":{"status":"waiting","timer":1}}`, "waits for nothing"},
		"a call of another step": {
			`{"v":1,"rev":7,"head":{"status":"running","driver":{},"step":2,"calls":[{"id":"c1-0-aaaaaaaaaaaaaaaaaaaaaaaaaa"}]}}`,
			"does not belong to step 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := core.DecodeEntry([]byte(c.line)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("DecodeEntry(%s) = %v, want %q", c.line, err, c.want)
			}
		})
	}
}

// TestDecodeEntry_IgnoresWhatItDoesNotKnow: a newer version adds fields, which an older worker must not choke on.
func TestDecodeEntry_IgnoresWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, line := range recorded(t) {
		newer := bytes.Replace(line, []byte(`{"v":1,`), []byte(`{"v":1,"added":{"later":[1]},`), 1)
		newer = bytes.Replace(newer, []byte(`"head":{`), []byte(`"head":{"added":"later",`), 1)
		want, err := core.DecodeEntry(line)
		if err != nil {
			t.Fatal(err)
		}
		have, err := core.DecodeEntry(newer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("an added field changes an entry:\n%s", diff)
		}
	}
}

// TestDecodeEntry_ReadsRawValuesAsTheyAre: what a model or a service sent cannot make a run unreadable.
func TestDecodeEntry_ReadsRawValuesAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`{"a":1,"a":2}`, "{\"a\":\"\xff\"}"} {
		e, err := core.DecodeEntry(recorded(t)[0])
		if err != nil {
			t.Fatal(err)
		}
		e.Input = json.RawMessage(data)
		line, err := core.EncodeJSON(e)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := core.DecodeEntry(line); err != nil || string(have.Input) != data {
			t.Errorf("DecodeEntry(%s) = %s, %v", line, have.Input, err)
		}
	}
}

func TestRestore_PutsSectionsBack(t *testing.T) {
	t.Parallel()
	whole := core.Entry{Rev: 3, Change: core.Change{
		Input:    json.RawMessage(`{"message":"<hello>"}`),
		Messages: []sdk.Message{sdk.Text(sdk.RoleAssistant, "a & b")},
		Results:  []core.Result{{Call: "c1", Kind: core.ResultAnswer, Data: json.RawMessage(`{"n":1}`)}},
		Terminal: &core.Terminal{Type: "done", Schema: "#/1.0.0", Data: json.RawMessage(`{}`)},
	}}
	have := core.Entry{Rev: 3}
	for name, section := range map[string]any{
		"input": whole.Input, "messages": whole.Messages, "results": whole.Results, "terminal": whole.Terminal,
	} {
		content := []byte(encode(t, section))
		if err := have.Restore(core.Blob{Section: name, Digest: core.Digest(content), Size: len(content)}, content); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(whole, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}

func TestRestore_Refuses(t *testing.T) {
	t.Parallel()
	list := []byte(`[]`)
	for name, c := range map[string]struct {
		section string
		content []byte
		digest  string
		want    string
	}{
		"another content":    {"messages", list, core.Digest([]byte(`[1]`)), "another content"},
		"an unknown section": {"head", list, core.Digest(list), `unknown section "head"`},
		"another type":       {"terminal", list, core.Digest(list), "decode section terminal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := core.Entry{Rev: 3}
			err := e.Restore(core.Blob{Section: c.section, Digest: c.digest}, c.content)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Restore = %v, want %q", err, c.want)
			}
		})
	}
}

// TestApply_RefusesWhatDoesNotFollow: entries are folded in order, and each tool result needs its result.
func TestApply_RefusesWhatDoesNotFollow(t *testing.T) {
	t.Parallel()
	if _, err := core.Apply(core.State{Rev: 3}, &core.Entry{Rev: 5}); !errors.Is(err, core.ErrIllegal) {
		t.Errorf("entry 5 after entry 3: %v", err)
	}
	unanswered := core.Entry{Rev: 1, Change: core.Change{Messages: []sdk.Message{{
		Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: "c1"}},
	}}}}
	if _, err := core.Apply(core.State{}, &unanswered); !errors.Is(err, core.ErrIllegal) {
		t.Errorf("a tool result without a result: %v", err)
	}
}

// A stream that was made anew counts from 1 again: what stands at the same place is another message.
func TestCause_IsThatOfOneMessage(t *testing.T) {
	t.Parallel()
	decision := core.Cause{Stream: "AGENTD_IN", Sequence: 5, EventID: "decision-1"}
	for other, want := range map[core.Cause]bool{
		decision:                           true,
		{Stream: "AGENTD_IN", Sequence: 5}: true, // a driver's, which knows the place only
		{Stream: "AGENTD_IN", Sequence: 5, EventID: "decision-2"}:  false,
		{Stream: "AGENTD_IN", Sequence: 6, EventID: "decision-1"}:  false,
		{Stream: "AGENTD_CTL", Sequence: 5, EventID: "decision-1"}: false,
	} {
		if got := decision.Is(other); got != want {
			t.Errorf("%+v is %+v: %t", other, decision, got)
		}
		if got := other.Is(decision); got != want {
			t.Errorf("the other way round, %+v: %t", other, got)
		}
	}
}
