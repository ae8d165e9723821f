package llm_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/golden"
	"agentd/internal/llm"
	"agentd/sdk"
)

// TestAnthropic_Requests compares what is sent with testdata/anthropic.
func TestAnthropic_Requests(t *testing.T) {
	t.Parallel()
	all := requests()
	all["thinking"] = sdk.ModelRequest{Model: "m", Thinking: "2048", Messages: []sdk.Message{
		sdk.Text(sdk.RoleUser, "Hi"),
		{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{
			{Kind: sdk.ContentThinking, Text: "mine", Signature: "s1", Model: "anthropic/m"},
			{Kind: sdk.ContentRedacted, Signature: "s2", Model: "anthropic/m"},
			{Kind: sdk.ContentThinking, Text: "another's", Signature: "s3", Model: "anthropic/other"},
			use("c1-0-aa", "find", `{}`),
		}},
		{Role: sdk.RoleUser, Content: []sdk.Content{result("c1-0-aa", "find", `1`)}},
	}}
	all["adaptive"] = sdk.ModelRequest{Model: "m", Thinking: llm.ThinkingAdaptive, Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Hi")}}
	for name, req := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body bytes.Buffer
			p := anthropicAt(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(&body, r.Body)
				_, _ = io.WriteString(w, "{}")
			})
			_, err := p.Generate(t.Context(), req, nil)
			if err == nil {
				t.Error("an empty answer is taken for a reply")
			}
			var got bytes.Buffer
			if err := json.Indent(&got, body.Bytes(), "", "  "); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", "anthropic", name+".json"), append(bytes.TrimSpace(got.Bytes()), '\n'))
		})
	}
}

func anthropicAt(t *testing.T, h http.HandlerFunc) sdk.Provider {
	t.Helper()
	base := serverOf(t, h)
	p, err := llm.NewAnthropic(llm.AnthropicOptions{BaseURL: base, APIKey: secretKey, HTTPClient: client(t)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAnthropic_Thinking: what a model thinks is live, kept with its signature, and taken when it is sent back.
func TestAnthropic_Thinking(t *testing.T) {
	t.Parallel()
	h := scriptedBy(t, `
conversations: [{replies: [
  {thinking: 'Where is Lisbon?', text: I look., calls: [{name: find}]},
  {text: Found.}]}]`)
	p := anthropicAt(t, h.ServeHTTP)
	req := sdk.ModelRequest{Model: "m", Thinking: llm.ThinkingAdaptive, Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Where?")}}
	var thought string
	reply, err := p.Generate(t.Context(), req, func(d sdk.Delta) { thought += d.Thinking })
	if err != nil || thought != "Where is Lisbon?" || len(reply.Thinking) != 1 || reply.Thinking[0].Text != thought {
		t.Fatalf("thought %q, reply %+v, error %v", thought, reply, err)
	}
	assistant := sdk.Message{Role: sdk.RoleAssistant, Seen: 1, Content: append(reply.Thinking, text(reply.Text), use("c1", "find", `{}`))}
	req.Messages = append(req.Messages, assistant, sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{result("c1", "find", `"here"`)}})
	if reply, err = p.Generate(t.Context(), req, nil); err != nil || reply.Text != "Found." {
		t.Errorf("with the thinking: %+v, %v", reply, err)
	}
	req.Messages[1].Content[0].Signature = "forged"
	if _, err = p.Generate(t.Context(), req, nil); sdk.AsError(err).Code != sdk.CodeModel {
		t.Errorf("the server checks signatures, or this proves nothing: %v", err)
	}
}

func TestAnthropic_CacheTokens(t *testing.T) {
	t.Parallel()
	p := anthropicAt(t, answering(200, "text/event-stream", `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"opaque"}}

event: ping
data: {"type":"ping"}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}

`))
	reply, err := p.Generate(t.Context(), hello(), nil)
	want := sdk.ModelReply{
		Model: "m", Units: 134_000_000, Usage: sdk.Usage{Prompt: 125, Completion: 9, CacheRead: 100, CacheWrite: 20},
		Thinking: []sdk.Content{{Kind: sdk.ContentRedacted, Signature: "opaque", Model: "anthropic/m"}},
	}
	if diff := cmp.Diff(want, reply); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestAnthropic_ErrorInStream(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]sdk.Code{
		"overloaded_error": sdk.CodeUnavailable, "rate_limit_error": sdk.CodeRateLimited, "invalid_request_error": sdk.CodeModel,
	} {
		p := anthropicAt(t, answering(200, "text/event-stream", "event: error\ndata: "+
			`{"type":"error","error":{"type":"`+kind+`","message":"with `+secretKey+`"}}`+"\n\n"))
		_, err := p.Generate(t.Context(), hello(), nil)
		if e := sdk.AsError(err); e.Code != want || strings.Contains(err.Error(), secretKey) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestRegistry_ProviderChangesHalfWay: the second call of a conversation is answered by another protocol's server.
func TestRegistry_ProviderChangesHalfWay(t *testing.T) {
	t.Parallel()
	first := scriptedBy(t, `{conversations: [{replies: [{thinking: Hm., text: I look., calls: [{name: find}]},
		{text: never, faults: [{status: 429, times: -1}]}]}]}`)
	second := scriptedBy(t, `{conversations: [{replies: [{text: wrong}, {text: Found.}]}]}`)
	r, err := llm.New(llm.Config{
		HTTPClient: client(t), Retry: llm.RetryOptions{Attempts: 1},
		Providers: []llm.ProviderConfig{
			{Name: "a", Protocol: llm.ProtocolAnthropic, BaseURL: serverOf(t, first.ServeHTTP)},
			{Name: "b", BaseURL: serverOf(t, second.ServeHTTP) + "/v1"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Provider(sdk.ModelSpec{Provider: "a", Name: "m", Fallback: []sdk.ModelSpec{
		{Provider: "b", Name: "n", On: []sdk.Code{sdk.CodeRateLimited}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req := sdk.ModelRequest{Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Where?")}}
	reply, err := p.Generate(t.Context(), req, nil)
	if err != nil || reply.Model != "m" || len(reply.Thinking) != 1 {
		t.Fatalf("first: %+v, %v", reply, err)
	}
	req.Messages = append(req.Messages,
		sdk.Message{Role: sdk.RoleAssistant, Seen: 1, Content: append(reply.Thinking, text(reply.Text), use("c1", "find", `{}`))},
		sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{result("c1", "find", `1`)}})
	if reply, err = p.Generate(t.Context(), req, nil); err != nil || reply.Model != "n" || reply.Text != "Found." {
		t.Errorf("second: %+v, %v", reply, err)
	}
}

// A connection that closes before the server has said why its reply ends looks like the end of a stream, and is not that of a reply.
func TestAnthropic_AStreamThatEndsEarlyIsNoReply(t *testing.T) {
	t.Parallel()
	p := anthropicAt(t, answering(200, "text/event-stream",
		event("message_start", `{"type":"message_start","message":{}}`)+
			event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hel"}}`)))
	_, err := p.Generate(t.Context(), hello(), nil)
	checkFailure(t, err, sdk.CodeUnavailable, []string{"broke off"})
}
