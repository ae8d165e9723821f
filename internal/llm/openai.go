package llm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"agentd/sdk"
)

// DefaultOpenAIURL is where OpenAI itself answers.
const DefaultOpenAIURL = "https://api.openai.com/v1"

// RunHeader carries the subject of the run, percent-encoded, to servers that keep conversations apart by it.
const RunHeader = "X-Agentd-Run"

// OpenAIOptions say where an OpenAI-compatible server is and how to be let in.
type OpenAIOptions struct {
	// Name is what errors call the provider; empty is "openai".
	Name string
	// BaseURL ends before "/chat/completions"; empty is DefaultOpenAIURL.
	BaseURL string
	// APIKey may be empty for servers that ask for none. It never appears in errors.
	APIKey       string
	Organization string
	// SendRun adds RunHeader to every request: it tells the server which requests belong together.
	SendRun bool
	// HTTPClient is http.DefaultClient when nil.
	HTTPClient *http.Client
}

// OpenAI is a sdk.Provider for the chat completions protocol. Its Units are tokens; a Registry prices them.
type OpenAI struct {
	vendor
	endpoint endpoint
	// legacyLimit sends max_tokens, which OpenAI's newer models refuse and many compatible servers know alone.
	legacyLimit bool
}

// NewOpenAI returns a provider, or CodeConfig when the address is not a URL. It reads nothing from the environment and
// connects to nothing yet.
func NewOpenAI(o OpenAIOptions) (*OpenAI, error) {
	name, base := cmp.Or(o.Name, "openai"), cmp.Or(o.BaseURL, DefaultOpenAIURL)
	v, err := newVendor(name, o.APIKey, base, o.SendRun)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	if o.APIKey != "" {
		header.Set("Authorization", "Bearer "+o.APIKey)
	}
	if o.Organization != "" {
		header.Set("OpenAI-Organization", o.Organization)
	}
	e, err := newEndpoint(o.HTTPClient, base, header)
	return &OpenAI{vendor: v, endpoint: e, legacyLimit: !isDefaultURL(base)}, err
}

func isDefaultURL(base string) bool {
	return base == "" || strings.TrimRight(base, "/") == DefaultOpenAIURL
}

// Embed implements sdk.Embedder.
func (p *OpenAI) Embed(ctx context.Context, model string, texts []string) ([][]float64, error) {
	res, err := p.endpoint.post(ctx, "embeddings", nil, embeddingRequest{Input: texts, Model: model, EncodingFormat: "float"})
	if err != nil {
		return nil, p.failure(ctx, model, res, err)
	}
	defer func() { _ = res.Body.Close() }() // the answer is whole or lost by now
	var answer embeddingAnswer
	if err := read(res, &answer); err != nil {
		return nil, p.failure(ctx, model, res, err)
	}
	vectors := make([][]float64, len(texts))
	for _, e := range answer.Data {
		if e.Index < 0 || e.Index >= len(texts) {
			return nil, p.unavailable("answered embeddings of texts that it was not given", nil)
		}
		vectors[e.Index] = e.Embedding
	}
	return vectors, nil
}

// Generate implements sdk.Provider. It streams when onDelta is given.
func (p *OpenAI) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	if err := checkSchemas(req); err != nil {
		return sdk.ModelReply{}, err
	}
	body := p.body(req)
	if onDelta != nil {
		body.Stream, body.StreamOptions = true, &streamOptions{IncludeUsage: true}
	}
	res, err := p.endpoint.post(ctx, "chat/completions", p.runHeader(req), body)
	var c completion
	if err == nil {
		defer func() { _ = res.Body.Close() }() // the reply is whole or lost by now
		if onDelta == nil {
			c, err = complete(res)
		} else {
			c, err = stream(res, onDelta)
		}
	}
	if err != nil {
		if reply, ok := rescued(req, res); ok {
			return reply, nil
		}
		return sdk.ModelReply{}, p.failure(ctx, req.Model, res, err)
	}
	if c.finish == "" && ctx.Err() != nil {
		return sdk.ModelReply{}, ctx.Err()
	}
	return p.reply(req, res, c)
}

// completion is what both ways of asking come to.
type completion struct {
	answered bool // there was a choice
	text     string
	refusal  string
	calls    []sdk.ToolRequest
	finish   string
	usage    sdk.Usage
}

// read decodes a response that is not a stream.
func read(res *http.Response, into any) error {
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	return decode(data, into)
}

func complete(res *http.Response) (completion, error) {
	var answer chatAnswer
	if err := read(res, &answer); err != nil {
		return completion{}, err
	}
	c := completion{usage: usage(answer.Usage)}
	if len(answer.Choices) == 0 {
		return c, nil
	}
	choice := answer.Choices[0]
	c.answered, c.finish = true, choice.FinishReason
	c.text, c.refusal = string(choice.Message.Content), choice.Message.Refusal
	for _, call := range choice.Message.ToolCalls {
		c.calls = append(c.calls, sdk.ToolRequest{Name: call.Function.Name, Arguments: string(call.Function.Arguments)})
	}
	return c, nil
}

func stream(res *http.Response, onDelta func(sdk.Delta)) (completion, error) {
	var a assembly
	err := events(res.Body, a.whole, func(data []byte) (enough bool, err error) {
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			return true, nil
		}
		var chunk chatChunk
		if err := decode(data, &chunk); err != nil {
			return false, err
		}
		if chunk.Error != nil {
			return false, &streamError{data}
		}
		a.add(chunk, onDelta)
		return false, a.kept.err()
	})
	if err != nil {
		return completion{}, err
	}
	return a.completion(), nil
}

func usage(u chatUsage) sdk.Usage { return sdk.Usage{Prompt: u.Prompt, Completion: u.Completion} }

// reply decides what a completion means.
func (p *OpenAI) reply(req sdk.ModelRequest, res *http.Response, c completion) (sdk.ModelReply, error) {
	switch {
	case !c.answered && res != nil && !isModelContent(res.Header.Get("Content-Type")):
		return sdk.ModelReply{}, p.notAModel(res)
	case !c.answered:
		return sdk.ModelReply{}, p.unavailable("sent a reply without an answer", nil)
	case c.finish == "":
		// A connection that closes early looks like the end of a stream.
		return sdk.ModelReply{}, p.unavailable("broke off its reply", nil)
	case c.finish == "content_filter":
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the content filter of model provider %q stopped the reply",
			p.name)
	}
	text := c.text
	if text == "" {
		text = c.refusal
	}
	return sdk.ModelReply{
		Text: text, Calls: c.calls, Usage: c.usage, Model: req.Model, Truncated: c.finish == "length",
		Units: Price(sdk.ModelSpec{}, c.usage),
	}, nil
}

// body is the request in the vendor's form.
func (p *OpenAI) body(req sdk.ModelRequest) chatRequest {
	body := chatRequest{Model: req.Model, Messages: messages(req), Temperature: req.Temperature, TopP: req.TopP}
	if p.legacyLimit {
		body.MaxTokens = req.MaxTokens
	} else {
		body.MaxCompletionTokens = req.MaxTokens
	}
	for _, tool := range req.Tools {
		body.Tools = append(body.Tools, toolParam(tool))
	}
	if len(req.Output) > 0 {
		body.ResponseFormat = responseFormat(req.Output)
	}
	return body
}

// checkSchemas refuses a request that no server could read.
func checkSchemas(req sdk.ModelRequest) error {
	var faults []sdk.Fault
	for _, tool := range req.Tools {
		if len(tool.Parameters) > 0 && !json.Valid(tool.Parameters) {
			faults = append(faults, sdk.Fault{Path: "tools." + tool.Name + ".parameters", Expected: "a JSON Schema"})
		}
	}
	if len(req.Output) > 0 && !json.Valid(req.Output) {
		faults = append(faults, sdk.Fault{Path: "output", Expected: "a JSON Schema"})
	}
	if len(faults) > 0 {
		return &sdk.Error{Code: sdk.CodeConfig, Message: "the model cannot be asked", Faults: faults}
	}
	return nil
}
