package llm

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"agentd/internal/prompt"
	"agentd/sdk"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// DefaultAnthropicURL is where Anthropic itself answers.
const DefaultAnthropicURL = "https://api.anthropic.com"

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
	service anthropic.MessageService
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
	opts := []option.RequestOption{option.WithBaseURL(base), option.WithMaxRetries(0), option.WithHTTPClient(limited(o.HTTPClient))}
	if o.APIKey != "" {
		opts = append(opts, option.WithAPIKey(o.APIKey))
	}
	// The service alone, because anthropic.NewClient reads the environment.
	return &Anthropic{vendor: v, service: anthropic.NewMessageService(opts...)}, nil
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
	// The vendor's error type is lost when an error body is not of its form; the response still has the status.
	var res *http.Response
	opts := []option.RequestOption{option.WithResponseInto(&res)}
	if p.sendRun {
		opts = append(opts, option.WithHeader(RunHeader, url.PathEscape(req.Run)))
	}
	if thinking := thinkingParam(req.Thinking); thinking != nil {
		// Set here because the vendor's client warns on stderr of one form for some models.
		opts = append(opts, option.WithJSONSet("thinking", thinking))
	}
	blocks := blocks{model: p.modelName(req.Model)}
	stream := p.service.NewStreaming(ctx, p.params(req), opts...)
	defer func() { _ = stream.Close() }() // the reply is whole or lost by now
	for stream.Next() {
		blocks.add(stream.Current(), onDelta)
		if err := blocks.kept.err(); err != nil {
			return sdk.ModelReply{}, p.failure(ctx, req.Model, res, err)
		}
	}
	if err := stream.Err(); err != nil {
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
	case b.stop == anthropic.StopReasonRefusal && b.text.Len() == 0:
		return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "model provider %q refused to answer", p.name)
	}
	reply := sdk.ModelReply{
		Text: b.text.String(), Usage: b.usage, Model: req.Model, Units: Price(sdk.ModelSpec{}, b.usage),
		Truncated: b.stop == anthropic.StopReasonMaxTokens || b.stop == anthropic.StopReasonModelContextWindowExceeded,
	}
	for _, block := range b.all {
		switch block.kind {
		case blockOther:
		case blockTool:
			reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: block.name, Arguments: cmp.Or(block.content.String(), "{}")})
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

// params is the request in the vendor's form.
func (p *Anthropic) params(req sdk.ModelRequest) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{
		Model: req.Model, MaxTokens: anthropicMaxTokens, Messages: p.messages(req),
	}
	if req.MaxTokens > 0 {
		params.MaxTokens = int64(req.MaxTokens)
	}
	if budget, err := strconv.ParseInt(req.Thinking, 10, 64); err == nil && req.MaxTokens == 0 {
		params.MaxTokens += budget // what is thought counts as well
	}
	if req.Temperature != nil && req.Thinking == "" {
		params.Temperature = param.NewOpt(*req.Temperature)
	}
	if req.TopP != nil && req.Thinking == "" {
		params.TopP = param.NewOpt(*req.TopP)
	}
	system := req.System
	if len(req.Output) > 0 {
		system = strings.TrimSpace(system + "\n\nWhen you need no more tools, reply with nothing but JSON that fits this schema: " +
			string(req.Output))
	}
	if system != "" {
		params.System = []anthropic.TextBlockParam{{Text: system, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	for _, tool := range req.Tools {
		params.Tools = append(params.Tools, anthropicTool(tool))
	}
	return params
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
