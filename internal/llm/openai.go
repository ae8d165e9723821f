package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"agentd/sdk"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
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
	chat       openai.ChatCompletionService
	embeddings openai.EmbeddingService
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
	opts := []option.RequestOption{option.WithBaseURL(base), option.WithMaxRetries(0), option.WithHTTPClient(limited(o.HTTPClient))}
	if o.APIKey != "" {
		opts = append(opts, option.WithAPIKey(o.APIKey))
	}
	if o.Organization != "" {
		opts = append(opts, option.WithOrganization(o.Organization))
	}
	return &OpenAI{
		// The service alone, because openai.NewClient reads the environment.
		vendor: v, chat: openai.NewChatCompletionService(opts...), embeddings: openai.NewEmbeddingService(opts...), legacyLimit: !isDefaultURL(base),
	}, nil
}

func isDefaultURL(base string) bool {
	return base == "" || strings.TrimRight(base, "/") == DefaultOpenAIURL
}

// Embed implements sdk.Embedder.
func (p *OpenAI) Embed(ctx context.Context, model string, texts []string) ([][]float64, error) {
	var res *http.Response
	answer, err := p.embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts},
		EncodingFormat: openai.EmbeddingNewParamsEncodingFormatFloat,
	}, option.WithResponseInto(&res))
	if err != nil {
		return nil, p.failure(ctx, model, res, err)
	}
	vectors := make([][]float64, len(texts))
	for _, e := range answer.Data {
		if e.Index < 0 || e.Index >= int64(len(texts)) {
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
	params := p.params(req)
	// The vendor's error type is lost when an error body is not of its form; the response still has the status.
	var res *http.Response
	opts := []option.RequestOption{option.WithResponseInto(&res)}
	if p.sendRun {
		opts = append(opts, option.WithHeader(RunHeader, url.PathEscape(req.Run)))
	}
	var c completion
	var err error
	if onDelta == nil {
		c, err = p.complete(ctx, params, opts)
	} else {
		params.StreamOptions.IncludeUsage = param.NewOpt(true)
		c, err = p.stream(ctx, params, opts, onDelta)
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

func (p *OpenAI) complete(
	ctx context.Context, params openai.ChatCompletionNewParams, opts []option.RequestOption,
) (completion, error) {
	answer, err := p.chat.New(ctx, params, opts...)
	if err != nil {
		return completion{}, err
	}
	c := completion{usage: usage(answer.Usage)}
	if len(answer.Choices) == 0 {
		return c, nil
	}
	choice := answer.Choices[0]
	c.answered, c.finish = true, choice.FinishReason
	c.text, c.refusal = choice.Message.Content, choice.Message.Refusal
	for _, call := range choice.Message.ToolCalls {
		c.calls = append(c.calls, sdk.ToolRequest{Name: call.Function.Name, Arguments: call.Function.Arguments})
	}
	return c, nil
}

func (p *OpenAI) stream(
	ctx context.Context, params openai.ChatCompletionNewParams, opts []option.RequestOption, onDelta func(sdk.Delta),
) (completion, error) {
	stream := p.chat.NewStreaming(ctx, params, opts...)
	defer func() { _ = stream.Close() }() // the reply is whole or lost by now
	var a assembly
	for stream.Next() {
		a.add(stream.Current(), onDelta)
		if err := a.kept.err(); err != nil {
			return completion{}, err
		}
	}
	if err := stream.Err(); err != nil {
		return completion{}, err
	}
	return a.completion(), nil
}

func usage(u openai.CompletionUsage) sdk.Usage {
	return sdk.Usage{Prompt: u.PromptTokens, Completion: u.CompletionTokens}
}

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

// params is the request in the vendor's form.
func (p *OpenAI) params(req sdk.ModelRequest) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{Model: req.Model, Messages: messages(req)}
	if req.Temperature != nil {
		params.Temperature = param.NewOpt(*req.Temperature)
	}
	if req.TopP != nil {
		params.TopP = param.NewOpt(*req.TopP)
	}
	if req.MaxTokens > 0 && p.legacyLimit {
		params.MaxTokens = param.NewOpt(int64(req.MaxTokens))
	} else if req.MaxTokens > 0 {
		params.MaxCompletionTokens = param.NewOpt(int64(req.MaxTokens))
	}
	for _, tool := range req.Tools {
		params.Tools = append(params.Tools, toolParam(tool))
	}
	if len(req.Output) > 0 {
		params.ResponseFormat = responseFormat(req.Output)
	}
	return params
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
