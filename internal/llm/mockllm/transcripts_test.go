package mockllm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/internal/llm/mockllm"
	"agentd/sdk"
	"agentd/test/e2e/recorded"
)

// transcripts finds the recorded conversations, or skips the test.
func transcripts(t *testing.T) ([]recorded.Record, []string) {
	t.Helper()
	shared := ""
	for dir := "."; len(dir) < 40; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			shared = filepath.Join(dir, "..", "shared", "data", "airline")
			break
		}
	}
	dir := os.Getenv("AGENTD_TRANSCRIPTS")
	if dir == "" {
		dir = shared
	}
	if _, err := os.Stat(filepath.Join(dir, "transcripts.jsonl")); err != nil {
		t.Skipf("no recorded conversations (set AGENTD_TRANSCRIPTS): %v", err)
	}
	records, err := recorded.LoadTranscripts(dir)
	if err != nil {
		t.Fatal(err)
	}
	tools := filepath.Join(dir, "tools.json")
	if _, err := os.Stat(tools); err != nil {
		tools = filepath.Join(shared, "tools.json")
	}
	names, err := recorded.LoadToolNames(tools)
	if err != nil {
		t.Fatal(err)
	}
	return records, names
}

func serveTranscripts(t *testing.T, records []recorded.Record, tools []string) (*mockllm.Server, sdk.Provider) {
	t.Helper()
	script, err := recorded.Script(records, tools)
	if err != nil {
		t.Fatal(err)
	}
	mock, _, p := start(t, script)
	return mock, p
}

// player is a minimal agent: it sends what a run would, and takes replies into its history.
type player struct {
	record recorded.Record
	req    sdk.ModelRequest
	at     int
	turns  int
	calls  []sdk.Content
}

func newPlayer(record recorded.Record, tools []string, run string) *player {
	p := &player{record: record, req: sdk.ModelRequest{Run: run, Model: "airline", System: record.Messages[0].Text}, at: 1}
	for _, name := range tools {
		p.req.Tools = append(p.req.Tools, sdk.ToolDefinition{Name: name})
	}
	return p
}

// next takes what others say from the record until the model is to answer; it is false at the end.
func (p *player) next(t *testing.T) bool {
	t.Helper()
	for ; p.at < len(p.record.Messages); p.at++ {
		m := p.record.Messages[p.at]
		switch m.Role {
		case "assistant":
			return true
		case "tool":
			data, err := json.Marshal(map[string]string{"result": m.Text})
			if err != nil {
				t.Fatal(err)
			}
			call := p.calls[0]
			p.calls = p.calls[1:]
			p.req.Messages = append(p.req.Messages, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
				{Kind: sdk.ContentToolResult, CallID: call.CallID, Tool: call.Tool, Text: string(data)},
			}})
		default:
			p.req.Messages = append(p.req.Messages, sdk.Text(sdk.RoleUser, m.Text))
		}
	}
	return false
}

// take adds a reply to the history and checks it against the record.
func (p *player) take(t *testing.T, reply sdk.ModelReply) {
	t.Helper()
	want := p.record.Messages[p.at]
	if reply.Text != want.Text || len(reply.Calls) != len(want.Calls) {
		t.Fatalf("message %d: got %+v, want %+v", p.at, reply, want)
	}
	m := sdk.Message{Role: sdk.RoleAssistant, Seen: 1}
	if reply.Text != "" {
		m.Content = append(m.Content, sdk.Content{Kind: sdk.ContentText, Text: reply.Text})
	}
	p.calls = nil
	for i, c := range reply.Calls {
		if c.Name != want.Calls[i].Name || c.Arguments != want.Calls[i].Arguments {
			t.Fatalf("message %d: got call %+v, want %+v", p.at, c, want.Calls[i])
		}
		// Keys in another order and numbers written otherwise, like those of canonical JSON, are the same arguments.
		var args any
		if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil {
			t.Fatal(err)
		}
		canonical, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		p.calls = append(p.calls, sdk.Content{
			Kind: sdk.ContentToolUse, CallID: fmt.Sprintf("c%d-%d-x", p.turns, i), Tool: c.Name, Args: canonical,
		})
	}
	m.Content = append(m.Content, p.calls...)
	p.req.Messages = append(p.req.Messages, m)
	p.at, p.turns = p.at+1, p.turns+1
}

// play plays the record to its end.
func (p *player) play(t *testing.T, model sdk.Provider, onDelta func(sdk.Delta)) {
	t.Helper()
	for p.next(t) {
		reply, err := model.Generate(t.Context(), p.req, onDelta)
		if err != nil {
			t.Fatalf("%s: %v", p.record.Run(), err)
		}
		p.take(t, reply)
	}
}

func TestTranscripts_AllRecords(t *testing.T) {
	t.Parallel()
	records, tools := transcripts(t)
	mock, model := serveTranscripts(t, records, tools)
	turns := 0
	for i, r := range records {
		var onDelta func(sdk.Delta)
		if i%2 == 1 {
			onDelta = func(sdk.Delta) {}
		}
		p := newPlayer(r, tools, "store/2 "+r.Run())
		p.play(t, model, onDelta)
		turns += p.turns
	}
	s := mock.Stats()
	if s.Requests != turns || s.Answered != turns || s.Turns != turns || s.Conversations != len(records) ||
		s.Repeats != 0 || s.Mismatches != 0 {
		t.Errorf("%d records, %d turns, stats %+v", len(records), turns, s)
	}
	t.Logf("%d records, %d turns", len(records), turns)
}

// record is a short conversation with two parallel calls.
func record(t *testing.T, trial int, last string) recorded.Record {
	t.Helper()
	var r recorded.Record
	data := fmt.Sprintf(`{"task_id": 3, "trial": %d, "messages": [
		{"role": "system", "content": "Be kind."},
		{"role": "user", "content": "Hi, two please"},
		{"role": "assistant", "content": "Sure.", "tool_calls": [
			{"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{\"n\": 1.0, \"m\": [2]}"}},
			{"id": "call_2", "type": "function", "function": {"name": "find", "arguments": "{\"n\":2}"}}]},
		{"role": "tool", "tool_call_id": "call_1", "name": "find", "content": "one"},
		{"role": "tool", "tool_call_id": "call_2", "name": "find", "content": "{\"two\": 2}"},
		{"role": "assistant", "content": %q},
		{"role": "user", "content": "Bye"}]}`, trial, last)
	if err := json.Unmarshal([]byte(data), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTranscripts_RefusesWhatDiffers(t *testing.T) {
	t.Parallel()
	r, tools := record(t, 1, "Here."), []string{"find", "book"}
	for _, tc := range []struct {
		name    string
		corrupt func(*sdk.ModelRequest)
		says    string
	}{
		{
			"system", func(q *sdk.ModelRequest) { q.System = "Be rude." },
			`message 0: system text: want "Be kind.", got "Be rude."`,
		},
		{"no system", func(q *sdk.ModelRequest) { q.System = "" }, "message 0: want system"},
		{
			"text", func(q *sdk.ModelRequest) { q.Messages[0] = sdk.Text(sdk.RoleUser, "Hi, two pleas") },
			`message 1: user text: want "Hi, two please", got "Hi, two pleas"`,
		},
		{
			"text beside calls", func(q *sdk.ModelRequest) { q.Messages[1].Content[0].Text = "Sure" },
			"message 2: assistant text",
		},
		{
			"call name", func(q *sdk.ModelRequest) { q.Messages[1].Content[2].Tool = "book" },
			`message 2: name of call 1: want "find", got "book"`,
		},
		{
			"arguments", func(q *sdk.ModelRequest) { q.Messages[1].Content[1].Args = json.RawMessage(`{"n":1,"m":[3]}`) },
			"message 2: arguments of call 0",
		},
		{"call order", func(q *sdk.ModelRequest) {
			c := q.Messages[1].Content
			c[1], c[2] = c[2], c[1]
		}, "message 2: arguments of call 0"},
		{
			"lost call", func(q *sdk.ModelRequest) { q.Messages[1].Content = q.Messages[1].Content[:2] },
			"message 2: want 2 calls, got 1",
		},
		{
			"same id twice", func(q *sdk.ModelRequest) { q.Messages[1].Content[2].CallID = "c0-0-x" },
			`message 2: the id "c0-0-x" of call 1 is not unique`,
		},
		{
			"vendor's id", func(q *sdk.ModelRequest) { q.Messages[1].Content[2].CallID = "call_abc" },
			`message 2: the id "call_abc" of call 1 is the one of the vendor`,
		},
		{
			"results swapped", func(q *sdk.ModelRequest) { q.Messages[2], q.Messages[3] = q.Messages[3], q.Messages[2] },
			"message 3: result",
		},
		{
			"result of another call", func(q *sdk.ModelRequest) { q.Messages[2].Content[0].CallID = "c0-1-x" },
			`message 3: id of the call that the result is for: want "c0-0-x", got "c0-1-x"`,
		},
		{
			"result without its wrapping", func(q *sdk.ModelRequest) { q.Messages[2].Content[0].Text = "one" },
			`message 3: result: want "{\"result\":\"one\"}", got "one"`,
		},
		{
			"result as an object", func(q *sdk.ModelRequest) { q.Messages[3].Content[0].Text = `{"result":{"two":2}}` },
			"message 4: result",
		},
		{
			"message more", func(q *sdk.ModelRequest) { q.Messages = append(q.Messages, sdk.Text(sdk.RoleUser, "?")) },
			"message 5: want assistant",
		},
		{
			"asked too early", func(q *sdk.ModelRequest) { q.Messages = q.Messages[:3] },
			"message 4: the model is asked, but the record goes on with tool",
		},
		{"asked too late", func(q *sdk.ModelRequest) {
			q.Messages = append(q.Messages, sdk.Text(sdk.RoleAssistant, "Here."), sdk.Text(sdk.RoleUser, "Bye"))
		}, "message 7: the record has ended"},
		{"beyond the end", func(q *sdk.ModelRequest) {
			q.Messages = append(q.Messages, sdk.Text(sdk.RoleAssistant, "Here."), sdk.Text(sdk.RoleUser, "Bye"),
				sdk.Text(sdk.RoleUser, "Hello?"))
		}, "message 7: the record has 7 messages only"},
		{"media", func(q *sdk.ModelRequest) {
			q.Messages[0].Content = append(q.Messages[0].Content, sdk.Content{
				Kind: sdk.ContentMedia, Media: &sdk.Media{MIME: "image/png", URI: "https://example.com/a.png"},
			})
		}, "message 1: media"},
		{
			"tool more", func(q *sdk.ModelRequest) { q.Tools = append(q.Tools, sdk.ToolDefinition{Name: "extra"}) },
			"tools: want book, find, got book, extra, find",
		},
		{"unknown run", func(q *sdk.ModelRequest) { q.Run = "airline-3-11" }, `run "airline-3-11"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			mock, model := serveTranscripts(t, []recorded.Record{r}, tools)
			p := newPlayer(r, tools, r.Run())
			p.next(t)
			reply, err := model.Generate(t.Context(), p.req, nil)
			if err != nil {
				t.Fatal(err)
			}
			p.take(t, reply)
			p.next(t)
			if _, err := model.Generate(t.Context(), p.req, nil); err != nil {
				t.Fatalf("before it is corrupted: %v", err)
			}
			tc.corrupt(&p.req)
			_, err = model.Generate(t.Context(), p.req, nil)
			if e := sdk.AsError(err); e.Code != sdk.CodeModel || !strings.Contains(e.Message, tc.says) {
				t.Errorf("got %v\nwant %s", err, tc.says)
			}
			if s := mock.Stats(); s.Mismatches != 1 || s.Details[0].Run != p.req.Run || s.Details[0].Message == "" {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestTranscripts_RepeatsAreAnsweredAlike(t *testing.T) {
	t.Parallel()
	r := record(t, 1, "Here.")
	mock, model := serveTranscripts(t, []recorded.Record{r}, []string{"find"})
	p := newPlayer(r, []string{"find"}, r.Run())
	for p.next(t) {
		first, err := model.Generate(t.Context(), p.req, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := model.Generate(t.Context(), p.req, nil)
		if err != nil || again.Text != first.Text || len(again.Calls) != len(first.Calls) {
			t.Errorf("first %+v, then %+v, %v", first, again, err)
		}
		p.take(t, first)
	}
	if s := mock.Stats(); s.Turns != 2 || s.Repeats != 2 || s.Conversations != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestTranscripts_WithoutTheRunRecordsMustAgree(t *testing.T) {
	t.Parallel()
	tools := []string{"find"}
	records := []recorded.Record{record(t, 1, "Here."), record(t, 2, "There.")}
	_, model := serveTranscripts(t, records, tools)
	p := newPlayer(records[1], tools, "")
	p.next(t)
	reply, err := model.Generate(t.Context(), p.req, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.take(t, reply)
	p.next(t)
	_, err = model.Generate(t.Context(), p.req, nil)
	if err == nil || !strings.Contains(err.Error(), "airline-3-1, airline-3-2 agree so far and then differ") {
		t.Errorf("got %v", err)
	}
	p.req.Run = records[1].Run()
	if reply, err = model.Generate(t.Context(), p.req, nil); err != nil || reply.Text != "There." {
		t.Errorf("got %q, %v", reply.Text, err)
	}
}

func TestTranscripts_LongDifferencesAreCutAround(t *testing.T) {
	t.Parallel()
	r := record(t, 1, "Here.")
	r.Messages[1].Text = strings.Repeat("é", 1000) + "AB" + strings.Repeat("é", 1000)
	_, model := serveTranscripts(t, []recorded.Record{r}, []string{"find"})
	p := newPlayer(r, []string{"find"}, r.Run())
	p.next(t)
	p.req.Messages[0] = sdk.Text(sdk.RoleUser, strings.Replace(r.Messages[1].Text, "AB", "AC", 1))
	_, err := model.Generate(t.Context(), p.req, nil)
	if e := sdk.AsError(err); !strings.Contains(e.Message, "éABé") || strings.Contains(e.Message, "�") {
		t.Errorf("got %v", err)
	}
}
