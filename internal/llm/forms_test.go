package llm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

// Compatible servers send calls in forms of their own. A call is made as the model wrote it, or not at all.
func TestProvider_FormsOfCalls(t *testing.T) {
	t.Parallel()
	message := func(calls string) string {
		return `{"choices":[{"finish_reason":"tool_calls","message":{"content":null,"tool_calls":` + calls + `}}]}`
	}
	delta := func(calls string) string { return chunk(`{"tool_calls":` + calls + `}`) }
	const end = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
	begun := func(block string) string {
		return event("content_block_start", `{"type":"content_block_start","index":0,"content_block":`+block+`}`)
	}
	input := func(index, input string) string {
		return event("content_block_delta", `{"type":"content_block_delta","index":`+index+`,"delta":{"type":"input_json_delta","partial_json":`+input+`}}`)
	}
	ended := event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`)
	one := []sdk.ToolRequest{{Name: "f", Arguments: `{"x": 12345678901234567890}`}}
	two := []sdk.ToolRequest{{Name: "f", Arguments: `{"x":1}`}, {Name: "f", Arguments: `{"x":2}`}}
	nothing := []sdk.ToolRequest{}
	others := []sdk.ToolRequest{{Name: "f", Arguments: `{"x":1}`}, {Name: "g", Arguments: `{"x":2}`}}
	for name, tt := range map[string]struct {
		body string
		want []sdk.ToolRequest
	}{
		"an object":                   {message(`[{"id":"a","function":{"name":"f","arguments":{"x": 12345678901234567890}}}]`), one},
		"no list":                     {message(`{"id":"a","function":{"name":"f","arguments":"{\"x\": 12345678901234567890}"}}`), one},
		"numbers as ids":              {message(`[{"id":7,"function":{"name":"f","arguments":"{\"x\":1}"}},{"id":8,"function":{"name":"f","arguments":{"x":2}}}]`), two},
		"no calls, as an object":      {message(`{}`), nothing},
		"no calls, as a text":         {message(`""`), nothing},
		"no calls in a stream":        {delta(`{}`) + end, nothing},
		"a name in pieces":            {delta(`[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]`) + delta(`[{"index":0,"function":{"name":"g","arguments":"{\"x\":1}"}}]`) + end, two[:1]},
		"none, as a list":             {message(`[{"id":"a","function":{"name":"f","arguments":[]}}]`), []sdk.ToolRequest{{Name: "f", Arguments: "{}"}}},
		"no arguments":                {message(`[{"id":"a","function":{"name":"f","arguments":null}}]`), []sdk.ToolRequest{{Name: "f"}}},
		"a list of arguments":         {message(`[{"id":"a","function":{"name":"f","arguments":[1]}}]`), nil},
		"a number as its name":        {message(`[{"id":"a","function":{"name":1,"arguments":"{}"}}]`), nil},
		"a text in place of a call":   {message(`["f"]`), nil},
		"a text in place of calls":    {message(`"f()"`), nil},
		"a streamed object":           {delta(`[{"index":0,"id":"a","function":{"name":"f","arguments":{"x": 12345678901234567890}}}]`) + end, one},
		"no list in a stream":         {delta(`{"index":0,"function":{"name":"f","arguments":"{\"x\":"}}`) + delta(`{"index":0,"function":{"arguments":" 12345678901234567890}"}}`) + end, one},
		"numbers as ids in a stream":  {delta(`[{"index":0,"id":7,"function":{"name":"f","arguments":"{\"x\":1"}},{"index":0,"id":8,"function":{"name":"f","arguments":"{\"x\":"}}]`) + delta(`[{"index":0,"id":7,"function":{"arguments":"}"}},{"index":0,"id":8,"function":{"arguments":"2}"}}]`) + end, two},
		"neither index nor id":        {delta(`[{"function":{"name":"f","arguments":"{\"x\":1}"}},{"function":{"name":"f","arguments":"{\"x\":2}"}}]`) + end, two},
		"neither, of other tools":     {delta(`[{"function":{"name":"f","arguments":""}},{"function":{"arguments":"{\"x\":1}"}}]`) + delta(`[{"function":{"name":"g","arguments":""}},{"function":{"arguments":"{\"x\":2}"}}]`) + end, others},
		"neither, and names again":    {delta(`[{"function":{"name":"f","arguments":"{\"x\":"}}]`) + delta(`[{"function":{"name":"f","arguments":" 12345678901234567890}"}}]`) + end, one},
		"a text as index":             {delta(`[{"index":"0","id":"a","function":{"name":"f","arguments":"{}"}}]`) + end, nil},
		"a streamed list":             {delta(`[{"index":0,"id":"a","function":{"name":"f","arguments":[1]}}]`) + end, nil},
		"claude's input at once":      {begun(`{"type":"tool_use","name":"f","input":{"x": 12345678901234567890}}`) + ended, one},
		"claude's input as a text":    {begun(`{"type":"tool_use","name":"f","input":"{\"x\": 12345678901234567890}"}`) + ended, one},
		"claude's input twice":        {begun(`{"type":"tool_use","name":"f","input":{"y":0}}`) + input("0", `"{\"x\": 12345678901234567890}"`) + ended, one},
		"claude's input as an object": {begun(`{"type":"tool_use","name":"f","input":{}}`) + input("0", `{"x": 12345678901234567890}`) + ended, one},
		"claude's without input":      {begun(`{"type":"tool_use","name":"f","input":null}`) + ended, []sdk.ToolRequest{{Name: "f", Arguments: "{}"}}},
		"claude's list of input":      {begun(`{"type":"tool_use","name":"f","input":[1]}`) + ended, nil},
		"claude's number as its name": {begun(`{"type":"tool_use","name":1,"input":{}}`) + ended, nil},
		"claude's text as index":      {begun(`{"type":"tool_use","name":"f","input":{}}`) + input(`"0"`, `"{}"`) + ended, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply, err := answered(t, tt.body)
			if tt.want == nil {
				checkFailure(t, err, sdk.CodeModel, []string{"tool call"})
			} else if diff := cmp.Diff(tt.want, append([]sdk.ToolRequest{}, reply.Calls...)); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestOpenAI_FormsOfContent(t *testing.T) {
	t.Parallel()
	const parts = `[{"type":"thinking","thinking":[]},{"type":"text","text":"Hel"},{"type":"text","text":"lo"},{"type":"text","text":7}]`
	for name, tt := range map[string]struct{ body, want string }{
		"parts":             {`{"choices":[{"message":{"content":` + parts + `},"finish_reason":"stop"}]}`, "Hello"},
		"parts in a stream": {chunk(`{"content":`+parts+`}`) + `data: {"choices":[{"index":0,"finish_reason":"stop"}]}` + "\n\n", "Hello"},
		"a number":          {`{"choices":[{"message":{"content":7},"finish_reason":"stop"}]}`, ""},
	} {
		if reply, err := answered(t, tt.body); err != nil || reply.Text != tt.want {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}

// answered is what a provider makes of an answer, of the protocol and the kind that it is of.
func answered(t *testing.T, body string) (sdk.ModelReply, error) {
	t.Helper()
	switch {
	case strings.HasPrefix(body, "event:"):
		return anthropicAt(t, answering(200, "text/event-stream", body)).Generate(t.Context(), hello(), nil)
	case strings.HasPrefix(body, "data:"):
		return serve(t, answering(200, "text/event-stream", body)).Generate(t.Context(), hello(), func(sdk.Delta) {})
	}
	return serve(t, answering(200, "application/json", body)).Generate(t.Context(), hello(), nil)
}
