package llm_test

import (
	"context"
	"strings"
	"testing"

	"agentd/internal/llm"
	"agentd/sdk"
)

// What a server does not say of the tokens that it used, or says as nobody can have used them, is estimated: limits of tokens hold.
func TestRegistry_EstimatesWhatIsNotSaid(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("word ", 400)
	whole := func(usage string) string {
		return `{"choices":[{"finish_reason":"tool_calls","message":{"content":"` + words + `","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}}]` + usage + `}`
	}
	claude := func(usage string) string {
		return event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"`+words+`"}}`) +
			event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+usage+`}`)
	}
	const estimate = -1 // of 400 words or more
	for name, tt := range map[string]struct {
		body               string
		prompt, completion int64
	}{
		"said":                {whole(`,"usage":{"prompt_tokens":7,"completion_tokens":5}`), 7, 5},
		"not said":            {whole(``), estimate, estimate},
		"not said in streams": {chunk(`{"content":"`+words+`"}`) + `data: {"choices":[{"index":0,"finish_reason":"stop"}]}` + "\n\n", estimate, estimate},
		"said as a text":      {whole(`,"usage":{"prompt_tokens":"7","completion_tokens":"5"}`), estimate, estimate},
		"less than none":      {whole(`,"usage":{"prompt_tokens":-7000,"completion_tokens":-5}`), estimate, estimate},
		"of the prompt alone": {whole(`,"usage":{"prompt_tokens":7}`), 7, estimate},
		"of the reply alone":  {whole(`,"usage":{"completion_tokens":5}`), estimate, 5},
		"of an empty reply":   {`{"choices":[{"finish_reason":"stop","message":{}}],"usage":{"prompt_tokens":7}}`, 7, 0},
		"said by claude":      {claude(`{"input_tokens":7,"output_tokens":5}`), 7, 5},
		"not said by claude":  {claude(`{}`), estimate, estimate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := asked(t, tt.body, "said "+words)
			estimated := func(want, got int64) bool {
				return want >= 0 && got == want || want == estimate && got > 400 && got < 800
			}
			if u := reply.Usage; !estimated(tt.prompt, u.Prompt) || !estimated(tt.completion, u.Completion) || reply.Units != sdk.Units(u.Prompt*2+u.Completion*3) {
				t.Errorf("used %+v for %d", u, reply.Units)
			}
			if reply.Estimated != (tt.prompt == estimate || tt.completion == estimate) {
				t.Errorf("estimated: %v", reply.Estimated)
			}
		})
	}
}

// asked is the reply of a server that answers with body, at 2 units a token of the prompt and 3 of the reply.
func asked(t *testing.T, body, system string) sdk.ModelReply {
	t.Helper()
	contentType, protocol, onDelta := "text/event-stream", llm.ProtocolOpenAI, func(sdk.Delta) {}
	if strings.HasPrefix(body, "event:") {
		protocol = llm.ProtocolAnthropic
	} else if strings.HasPrefix(body, "{") {
		contentType, onDelta = "application/json", nil
	}
	registry, err := llm.New(llm.Config{
		Providers:  []llm.ProviderConfig{{Name: "p", Protocol: protocol, BaseURL: serverOf(t, answering(200, contentType, body))}},
		HTTPClient: client(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := registry.Provider(sdk.ModelSpec{Provider: "p", Name: "m", UnitsPerPromptToken: 2, UnitsPerCompletionToken: 3})
	if err != nil {
		t.Fatal(err)
	}
	req := hello()
	req.System = system
	reply, err := p.Generate(t.Context(), req, onDelta)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

type replying sdk.ModelReply

func (r replying) Generate(context.Context, sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
	return sdk.ModelReply(r), nil
}

// A provider that prices itself is not priced by an estimate.
func TestRegistry_EstimatesNoPrices(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		said   sdk.ModelReply
		priced bool
	}{
		"by tokens":     {sdk.ModelReply{Text: "Hi"}, true},
		"by its prices": {sdk.ModelReply{Text: "Hi", Units: 5}, false},
	} {
		registry, err := llm.New(llm.Config{Custom: map[string]sdk.Provider{"p": replying(tt.said)}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := registry.Provider(sdk.ModelSpec{Provider: "p", Name: "m"})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := p.Generate(t.Context(), hello(), nil)
		want := tt.said.Units
		if tt.priced {
			want = llm.Price(sdk.ModelSpec{}, reply.Usage)
		}
		if err != nil || reply.Usage.Prompt == 0 || reply.Units != want {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}
