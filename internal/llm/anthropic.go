package llm

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// DefaultAnthropicURL is where Anthropic itself answers.
const DefaultAnthropicURL = "https://api.anthropic.com"

// anthropicVersion is the version of the protocol.
const anthropicVersion = "2023-06-01"

// Why a reply ended, as the protocol says it.
const (
	stopRefusal   = "refusal"
	stopMaxTokens = "max_tokens"
	stopWindow    = "model_context_window_exceeded"
)

// anthropicMaxTokens bounds a reply that has no limit of its own: the protocol wants one.
const anthropicMaxTokens = 8192

// ThinkingAdaptive leaves it to the model how much it thinks.
const ThinkingAdaptive = "adaptive"

// minThinking is the fewest tokens that the protocol takes for thinking.
const minThinking = 1024

// AnthropicOptions say where a server of the Messages protocol is and how to be let in.
type AnthropicOptions struct {
	// Name is what errors call the provider; empty is "anthropic".
	Name string
	// BaseURL ends before "/v1/messages"; empty is DefaultAnthropicURL.
	BaseURL string
	// APIKey may be empty for servers that ask for none. It never appears in errors.
	APIKey string
	// SendRun adds RunHeader to every request.
	SendRun bool
	// HTTPClient is http.DefaultClient when nil.
	HTTPClient *http.Client
}

// Anthropic is a sdk.Provider for the Messages protocol. Its Units are tokens; a Registry prices them.
type Anthropic struct {
	vendor
	endpoint endpoint
}

// NewAnthropic returns a provider, or CodeConfig when the address is not a URL. It reads nothing from the environment and
// connects to nothing yet.
func NewAnthropic(o AnthropicOptions) (*Anthropic, error) {
	name, base := cmp.Or(o.Name, "anthropic"), cmp.Or(o.BaseURL, DefaultAnthropicURL)
	v, err := newVendor(name, o.APIKey, base, o.SendRun)
	if err != nil {
		return nil, err
	}
	// Compatible servers are often given with the version that is part of the path here.
	base = strings.TrimSuffix(strings.TrimRight(base, "/"), "/v1")
	header := http.Header{"Anthropic-Version": {anthropicVersion}}
	if o.APIKey != "" {
		header.Set("X-Api-Key", o.APIKey)
	}
	e, err := newEndpoint(o.HTTPClient, base, header)
	return &Anthropic{vendor: v, endpoint: e}, err
}

// Generate implements sdk.Provider. It always streams: the protocol refuses long replies otherwise.
func (p *Anthropic) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	if err := checkSchemas(req); err != nil {
		return sdk.ModelReply{}, err
	}
	if onDelta == nil {
		onDelta = func(sdk.Delta) {}
	}
	res, err := p.endpoint.post(ctx, "v1/messages", p.runHeader(req), p.body(req))
	if err != nil {
		return sdk.ModelReply{}, p.failure(ctx, req.Model, res, err)
	}
	defer func() { _ = res.Body.Close() }() // the reply is whole or lost by now
	blocks := blocks{model: p.modelName(req.Model)}
	err = events(res.Body, blocks.whole, func(data []byte) (enough bool, err error) {
		var event messageEvent
		if err := event.read(data); err != nil {
			return false, err
		}
		if event.Type == "error" {
			return false, &streamError{data}
		}
		blocks.add(event, onDelta)
		return event.Type == eventMessageStop, blocks.kept.err()
	})
	if err != nil {
		return sdk.ModelReply{}, p.failure(ctx, req.Model, res, err)
	}
	return p.reply(ctx, req, res, &blocks)
}

// modelName is what thinking is kept for.
func (p *Anthropic) modelName(model string) string { return p.name + "/" + model }

// reply decides what a whole stream means.
func (p *Anthropic) reply(
	ctx context.Context, req sdk.ModelRequest, res *http.Response, b *blocks,
) (sdk.ModelReply, error) {
	switch {
	case b.stop == "" && ctx.Err() != nil:
		return sdk.ModelReply{}, ctx.Err()
	case !b.started && res != nil && !isModelContent(res.Header.Get("Content-Type")):
		return sdk.ModelReply{}, p.notAModel(res)
	case b.stop == "":
		// A connection that closes early looks like the end of a stream.
		return sdk.ModelReply{}, p.unavailable("broke off its reply", nil)
	case b.stop == stopRefusal && b.text.Len() == 0:
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "model provider %q refused to answer", p.name)
	}
	reply := sdk.ModelReply{
		Text: b.text.String(), Usage: b.usage, Model: req.Model, Units: Price(sdk.ModelSpec{}, b.usage),
		Truncated: b.stop == stopMaxTokens || b.stop == stopWindow,
	}
	for _, block := range b.all {
		switch block.kind {
		case blockOther:
		case blockTool:
			reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: block.name, Arguments: cmp.Or(block.content.String(), block.input, "{}")})
		case blockThinking:
			reply.Thinking = append(reply.Thinking, sdk.Content{
				Kind: sdk.ContentThinking, Text: block.content.String(), Signature: block.signature, Model: b.model,
			})
		case blockRedacted:
			reply.Thinking = append(reply.Thinking, sdk.Content{
				Kind: sdk.ContentRedacted, Signature: block.signature, Model: b.model,
			})
		}
	}
	return reply, nil
}

// body is the request in the vendor's form.
func (p *Anthropic) body(req sdk.ModelRequest) messagesRequest {
	body := messagesRequest{
		Model: req.Model, MaxTokens: anthropicMaxTokens, Messages: p.messages(req), Thinking: thinkingParam(req.Thinking), Stream: true,
	}
	if req.MaxTokens > 0 {
		body.MaxTokens = int64(req.MaxTokens)
	}
	if budget, err := strconv.ParseInt(req.Thinking, 10, 64); err == nil && req.MaxTokens == 0 {
		body.MaxTokens += budget // what is thought counts as well
	}
	if req.Thinking == "" {
		body.Temperature, body.TopP = req.Temperature, req.TopP
	}
	system := req.System
	if len(req.Output) > 0 {
		system = strings.TrimSpace(system + "\n\nWhen you need no more tools, reply with nothing but JSON that fits this schema: " +
			string(req.Output))
	}
	if system != "" {
		text := textBlock(system)
		text.CacheControl = &cacheControl{"ephemeral"}
		body.System = []textParam{text}
	}
	for _, tool := range req.Tools {
		body.Tools = append(body.Tools, toolDeclared{parametersOf(tool), tool.Name, tool.Description})
	}
	return body
}

// thinkingParam is nil for a model that does not think.
func thinkingParam(thinking string) map[string]any {
	if thinking == "" {
		return nil
	}
	if budget, err := strconv.ParseInt(thinking, 10, 64); err == nil {
		return map[string]any{"type": "enabled", "budget_tokens": budget}
	}
	return map[string]any{"type": thinking}
}

// checkThinking says what is wrong with ModelSpec.Thinking.
func checkThinking(spec sdk.ModelSpec) error {
	if spec.Thinking == "" {
		return nil
	}
	budget, err := strconv.Atoi(spec.Thinking)
	switch {
	case spec.Thinking != ThinkingAdaptive && (err != nil || budget < minThinking):
		return sdk.Errorf(sdk.CodeConfig, "model %q: thinking: want %s or a number of tokens from %d, got %q",
			spec.Name, ThinkingAdaptive, minThinking, spec.Thinking)
	case spec.MaxTokens > 0 && budget >= prompt.Reply(spec, spec.MaxTokens):
		return sdk.Errorf(sdk.CodeConfig, "model %q: thinking must have fewer tokens than max_tokens and half of the window", spec.Name)
	}
	return nil
}
