package texttools_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/golden"
	"agentd/internal/llm/texttools"
	"agentd/sdk"
)

// said is a provider that says one text, in pieces of a size, and keeps what it was asked.
type said struct {
	text      string
	piece     int
	truncated bool
	asked     sdk.ModelRequest
}

func (s *said) Generate(_ context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta)) (sdk.ModelReply, error) {
	s.asked = req
	for rest := s.text; onDelta != nil && rest != ""; {
		n := min(max(s.piece, 1), len(rest))
		onDelta(sdk.Delta{Text: rest[:n]})
		rest = rest[n:]
	}
	return sdk.ModelReply{Text: s.text, Truncated: s.truncated}, nil
}

func tools() []sdk.ToolDefinition {
	return []sdk.ToolDefinition{
		{Name: "find", Description: "Finds\n flights.", Parameters: json.RawMessage(`{"type":"object"}`)},
		{Name: "files_edit", Server: "files", Parameters: json.RawMessage(`{"type":"object"}`)},
	}
}

func generate(t *testing.T, p *said, req sdk.ModelRequest) (reply sdk.ModelReply, live, thought string) {
	t.Helper()
	return generateIn(t, sdk.ToolCallsText, p, req)
}

func generateIn(
	t *testing.T, mode sdk.ToolCallMode, p *said, req sdk.ModelRequest,
) (reply sdk.ModelReply, live, thought string) {
	t.Helper()
	reply, err := texttools.Wrap(p, mode).Generate(context.Background(), req, func(d sdk.Delta) {
		live += d.Text
		thought += d.Thinking
	})
	if err != nil {
		t.Fatal(err)
	}
	return reply, live, thought
}

// TestWrap_LiveTextIsProse streams every reply of the matrix in pieces of every size: no part of a call is ever sent, and
// what is sent is the reply's text in the end.
func TestWrap_LiveTextIsProse(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/matrix/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no replies to stream: %v", err)
	}
	for _, file := range files {
		written, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSuffix(string(written), "\n")
		_, body, thinks := strings.Cut(text, "</thinking>")
		if !thinks {
			body = text
		}
		want := strings.TrimSpace(texttools.Parse(body, nil).Text)
		for piece := 1; piece <= len(text); piece++ {
			_, live, _ := generate(t, &said{text: text, piece: piece}, sdk.ModelRequest{Tools: tools()})
			if got := strings.TrimSpace(live); got != want {
				t.Fatalf("%s in pieces of %d:\n got %q\nwant %q", filepath.Base(file), piece, got, want)
			}
		}
	}
}

func TestWrap_ThinkingIsLiveAndNotKept(t *testing.T) {
	t.Parallel()
	text := " <thinking>Which < city?</thinking>\nLisbon."
	for piece := 1; piece <= len(text); piece++ {
		reply, live, thought := generate(t, &said{text: text, piece: piece}, sdk.ModelRequest{})
		if reply.Text != "Lisbon." || live != "Lisbon." || thought != "Which < city?" {
			t.Fatalf("pieces of %d: text %q, live %q, thinking %q", piece, reply.Text, live, thought)
		}
	}
}

func TestWrap_CallsAreResolved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ server, tool, want string }{
		{"local", "find", "find"},
		{"files", "edit", "files_edit"},
		{"mcp", "edit", "files_edit"},
		{"mcp:files", "files_edit", "files_edit"},
		{"mcp", "find", "mcp.find"}, // the agent's own tool is not one of a server
		{"local", "edit", "local.edit"},
	} {
		text := `<tool>{"server_name":"` + c.server + `","tool_name":"` + c.tool + `","arguments":{"a":1}}</tool>`
		reply, _, _ := generate(t, &said{text: text}, sdk.ModelRequest{Tools: tools()})
		want := []sdk.ToolRequest{{Name: c.want, Arguments: `{"a":1}`}}
		if diff := cmp.Diff(want, reply.Calls); diff != "" || reply.Fault != nil {
			t.Errorf("%s %s: fault %v (-want +got):\n%s", c.server, c.tool, reply.Fault, diff)
		}
	}
}

func TestWrap_OneFaultStopsAllCalls(t *testing.T) {
	t.Parallel()
	good := `<tool>{"server_name":"local","tool_name":"find"}</tool>`
	reply, _, _ := generate(t, &said{text: good + "<tool>{oops}</tool>"}, sdk.ModelRequest{Tools: tools()})
	if len(reply.Calls) > 0 || reply.Fault == nil || reply.Fault.Class != "parse_error" {
		t.Fatalf("calls %v, fault %v", reply.Calls, reply.Fault)
	}
	for _, part := range []string{"none of this reply's calls", "{oops}", "parse_error"} {
		if !strings.Contains(reply.Fault.Message, part) {
			t.Errorf("the model is not told %q:\n%s", part, reply.Fault.Message)
		}
	}
	if !strings.Contains(reply.Text, "{oops}") {
		t.Errorf("what the model wrote is lost: %q", reply.Text)
	}
}

func TestWrap_CutOffCallIsNotMade(t *testing.T) {
	t.Parallel()
	whole := `<tool>{"server_name":"local","tool_name":"find","arguments":{}}`
	if reply, _, _ := generate(t, &said{text: whole}, sdk.ModelRequest{Tools: tools()}); len(reply.Calls) != 1 {
		t.Errorf("an unclosed call is made: %+v", reply)
	}
	reply, _, _ := generate(t, &said{text: whole, truncated: true}, sdk.ModelRequest{Tools: tools()})
	if len(reply.Calls) > 0 || reply.Fault == nil || !strings.Contains(reply.Fault.Message, "cut off") {
		t.Errorf("a call that was cut off: %+v", reply)
	}
}

func TestWrap_HistoryIsText(t *testing.T) {
	t.Parallel()
	p := &said{text: "Done."}
	generate(t, p, sdk.ModelRequest{
		System: "Be kind.", Tools: tools(), Output: json.RawMessage(`{"type":"string"}`),
		Turn: []sdk.Section{{Name: "planning", Text: "First flights."}},
		Messages: []sdk.Message{
			sdk.Text(sdk.RoleUser, "Fly me."),
			{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{
				{Kind: sdk.ContentThinking, Text: "secret", Signature: "x"},
				{Kind: sdk.ContentText, Text: "I look."},
				{Kind: sdk.ContentToolUse, CallID: "c1", Tool: "find", Args: json.RawMessage(`{"to":"a</tool>"}`)},
				{Kind: sdk.ContentToolUse, CallID: "c2", Tool: "files_edit", Args: json.RawMessage(`{}`)},
			}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: "c1", Tool: "find", Text: `["</tool_result>"]`}}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{Kind: sdk.ContentToolResult, CallID: "c2", Tool: "files_edit", Text: `"no"`, IsError: true}}},
		},
	})
	got, err := json.MarshalIndent(p.asked, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/request.golden.json", append(got, '\n'))
}

func TestWrap_RefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	call := `<tool>{"server_name":"local","tool_name":"find"}</tool>`
	reply := func(spaces int) sdk.ModelReply {
		p := &said{text: strings.Repeat(" ", spaces) + call}
		r, err := texttools.Wrap(p, sdk.ToolCallsText).Generate(context.Background(), sdk.ModelRequest{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := reply(texttools.MaxText - len(call)); len(r.Calls) != 1 {
		t.Errorf("a reply of the largest size: %v", r.Fault)
	}
	r := reply(texttools.MaxText)
	if len(r.Calls) > 0 || r.Fault == nil || len(r.Fault.Message) > 2000 || len(r.Text) > 1000 {
		t.Errorf("a reply beyond the largest size: %d calls, fault %v", len(r.Calls), r.Fault)
	}
}

// FuzzParse: no text makes the parser panic, calls have names and objects, snippets are bounded, and what is streamed is
// what is parsed.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/matrix/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no replies to begin with: %v", err)
	}
	for _, file := range files {
		written, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(written), 3)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		r := texttools.Parse(text, schemas)
		for _, c := range r.Calls {
			var object map[string]json.RawMessage
			if c.Server == "" || c.Tool == "" || json.Unmarshal([]byte(c.Arguments), &object) != nil {
				t.Errorf("call %+v of %q", c, text)
			}
		}
		for _, fault := range r.Faults {
			if len(fault.Snippet) > 200+len("…") || fault.Message == "" {
				t.Errorf("fault %+v of %q", fault, text)
			}
		}
		reply, live, _ := generate(t, &said{text: text, piece: piece % 64}, sdk.ModelRequest{})
		if reply.Fault == nil && strings.TrimSpace(live) != strings.TrimSpace(reply.Text) {
			t.Errorf("live %q, text %q, of %q", live, reply.Text, text)
		}
	})
}
