package llm

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"agentd/internal/llm/texttools"
	"agentd/internal/prompt"
	"agentd/sdk"
)

// Config names the providers that agents may use.
type Config struct {
	Providers []ProviderConfig
	// Custom adds providers of other kinds by name, such as a scripted one. They must be safe for concurrent use.
	Custom map[string]sdk.Provider
	Retry  RetryOptions
	// HTTPClient is http.DefaultClient when nil.
	HTTPClient *http.Client
}

// Protocol is how a server is spoken to.
type Protocol string

// The protocols.
const (
	ProtocolOpenAI    Protocol = "openai"    // chat completions
	ProtocolAnthropic Protocol = "anthropic" // messages
)

// ProviderConfig is one server.
type ProviderConfig struct {
	// Name is what specs call it.
	Name string
	// Protocol is ProtocolOpenAI when empty.
	Protocol     Protocol
	BaseURL      string
	APIKey       string
	Organization string
	// SendRun sends RunHeader; nil does so to every server except the vendors' own, which have no use for it.
	SendRun *bool
}

// Registry resolves the models of agent specs. Safe for concurrent use.
type Registry struct {
	providers map[string]sdk.Provider
	keyless   map[string]bool
	// thinks are the providers whose models can be told to think.
	thinks map[string]bool
	retry  RetryOptions
}

// New returns the registry of cfg, or an error that lists every fault. Nothing is connected to.
func New(cfg Config) (*Registry, error) {
	r := &Registry{providers: maps.Clone(cfg.Custom), keyless: map[string]bool{}, thinks: map[string]bool{}, retry: cfg.Retry}
	if r.providers == nil {
		r.providers = map[string]sdk.Provider{}
	}
	var faults []error
	for _, c := range cfg.Providers {
		if c.Name == "" {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "a model provider has no name"))
			continue
		}
		if r.providers[c.Name] != nil {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "model provider %q is configured twice", c.Name))
			continue
		}
		p, err := c.provider(cfg.HTTPClient)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		r.providers[c.Name] = p
		r.thinks[c.Name] = c.Protocol == ProtocolAnthropic
		// The vendors themselves never answer without a key; say so before a run starts. Other servers may.
		r.keyless[c.Name] = c.APIKey == "" && c.isVendors()
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}

// isVendors reports whether the server is the one of the protocol's inventor.
func (c ProviderConfig) isVendors() bool {
	if c.Protocol == ProtocolAnthropic {
		return c.BaseURL == "" || strings.TrimRight(c.BaseURL, "/") == DefaultAnthropicURL
	}
	return isDefaultURL(c.BaseURL)
}

func (c ProviderConfig) provider(client *http.Client) (sdk.Provider, error) {
	sendRun := !c.isVendors()
	if c.SendRun != nil {
		sendRun = *c.SendRun
	}
	switch c.Protocol {
	case "", ProtocolOpenAI:
		return NewOpenAI(OpenAIOptions{
			Name: c.Name, BaseURL: c.BaseURL, APIKey: c.APIKey, Organization: c.Organization, SendRun: sendRun, HTTPClient: client,
		})
	case ProtocolAnthropic:
		return NewAnthropic(AnthropicOptions{
			Name: c.Name, BaseURL: c.BaseURL, APIKey: c.APIKey, SendRun: sendRun, HTTPClient: client,
		})
	}
	return nil, sdk.Errorf(sdk.CodeConfig, "model provider %q: unknown protocol %q; there is %s, %s", c.Name, c.Protocol,
		ProtocolOpenAI, ProtocolAnthropic)
}

// Provider returns what answers for spec: its model with retries and then its fallbacks in order, each with its own
// name and price, and with its own sampling and limit unless the request has some. The reply names the model that answered. A spec that
// cannot work is CodeConfig, with every fault.
func (r *Registry) Provider(spec sdk.ModelSpec) (sdk.Provider, error) {
	var chain []Alternative
	var faults []error
	for _, s := range flatten(spec) {
		if err := r.check(s); err != nil {
			faults = append(faults, err)
			continue
		}
		asked := counting{r.providers[s.Provider], prompt.CounterOf(sdk.ModelSpec{Name: s.Name})}
		provider := sdk.Provider(assembled{Continuing(Retrying(recovering{asked}, r.retry))})
		if s.ToolCalls != "" && s.ToolCalls != sdk.ToolCallsNative {
			provider = texttools.Wrap(provider, s.ToolCalls)
		}
		chain = append(chain, Alternative{Provider: priced{spec: s, provider: provider}, On: s.On})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if embedder, ok := r.providers[spec.Provider].(sdk.Embedder); ok {
		return withEmbeddings{Fallback(chain...), embedder}, nil
	}
	return Fallback(chain...), nil
}

// withEmbeddings is a provider whose server makes embeddings too. They are not asked for again: who cannot have them does without.
type withEmbeddings struct {
	sdk.Provider
	sdk.Embedder
}

// flatten lists a model and its fallbacks, depth first.
func flatten(spec sdk.ModelSpec) []sdk.ModelSpec {
	all := []sdk.ModelSpec{spec}
	for _, f := range spec.Fallback {
		all = append(all, flatten(f)...)
	}
	return all
}

func (r *Registry) check(spec sdk.ModelSpec) error {
	switch {
	case spec.Name == "":
		return sdk.Errorf(sdk.CodeConfig, "a model of provider %q has no name", spec.Provider)
	case r.providers[spec.Provider] == nil:
		known := slices.Sorted(maps.Keys(r.providers))
		return sdk.Errorf(sdk.CodeConfig, "model %q: unknown provider %q; there is %s", spec.Name, spec.Provider,
			cmp.Or(strings.Join(known, ", "), "none"))
	case spec.ToolCalls != "" && !slices.Contains(sdk.ToolCallModes, spec.ToolCalls):
		return sdk.Errorf(sdk.CodeConfig, "model %q: tool_calls: want one of %q, got %q", spec.Name, sdk.ToolCallModes, spec.ToolCalls)
	case spec.Thinking != "" && r.unthinking(spec.Provider):
		return sdk.Errorf(sdk.CodeConfig, "model %q: thinking is not known to provider %q", spec.Name, spec.Provider)
	case spec.MaxBytes < 0:
		return sdk.Errorf(sdk.CodeConfig, "model %q: max_bytes: want at least 0, got %d", spec.Name, spec.MaxBytes)
	case checkSampling(spec) != nil:
		return checkSampling(spec)
	case checkThinking(spec) != nil:
		return checkThinking(spec)
	case checkOn(spec) != nil:
		return checkOn(spec)
	case checkPark(spec) != nil:
		return checkPark(spec)
	case r.keyless[spec.Provider]:
		return sdk.Errorf(sdk.CodeConfig, "model %q: provider %q has no API key", spec.Name, spec.Provider)
	default:
		return nil
	}
}

// unthinking reports whether a provider is known to have no thinking. Custom ones may have it.
func (r *Registry) unthinking(provider string) bool {
	thinks, known := r.thinks[provider]
	return known && !thinks
}

// fallbackCodes are the kinds of failure that a fallback may be bound to.
var fallbackCodes = []sdk.Code{sdk.CodeRateLimited, sdk.CodeUnavailable, sdk.CodeModel, sdk.CodeConfig}

func checkOn(spec sdk.ModelSpec) error {
	for _, code := range spec.On {
		if !slices.Contains(fallbackCodes, code) {
			return sdk.Errorf(sdk.CodeConfig, "model %q: on: want some of %q, got %q", spec.Name, fallbackCodes, code)
		}
	}
	return nil
}

// checkSampling says what is wrong with the sampling of a model.
func checkSampling(spec sdk.ModelSpec) error {
	for _, kind := range []sdk.TurnKind{"", sdk.TurnTools, sdk.TurnConversation, sdk.TurnSummary} {
		s := spec.Sampled(kind)
		if t := s.Temperature; t != nil && (*t < 0 || *t > 2) {
			return sdk.Errorf(sdk.CodeConfig, "model %q: temperature: want 0 to 2, got %v", spec.Name, *t)
		}
		if p := s.TopP; p != nil && (*p <= 0 || *p > 1) {
			return sdk.Errorf(sdk.CodeConfig, "model %q: top_p: want more than 0, and 1 at most, got %v", spec.Name, *p)
		}
		if spec.Thinking != "" && (s.Temperature != nil || s.TopP != nil) {
			return sdk.Errorf(sdk.CodeConfig, "model %q: a model that thinks takes no temperature and no top_p", spec.Name)
		}
	}
	return nil
}

func checkPark(spec sdk.ModelSpec) error {
	for _, code := range spec.Park {
		if !slices.Contains(sdk.ParkCodes, code) {
			return sdk.Errorf(sdk.CodeConfig, "model %q: park: want some of %q, got %q", spec.Name, sdk.ParkCodes, code)
		}
	}
	return nil
}

// assembled puts the sections of the turn where they belong in the conversation.
type assembled struct{ provider sdk.Provider }

func (a assembled) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	req.Messages, req.Turn = prompt.Turn(req.Messages, req.Turn), nil
	return a.provider.Generate(ctx, req, onDelta)
}

// priced asks provider for the model of spec.
type priced struct {
	spec     sdk.ModelSpec
	provider sdk.Provider
}

func (p priced) Generate(
	ctx context.Context, req sdk.ModelRequest, onDelta func(sdk.Delta),
) (sdk.ModelReply, error) {
	sample := p.spec.Sampled(req.Kind)
	req.Model, req.Thinking = p.spec.Name, p.spec.Thinking
	req.Temperature, req.TopP = cmp.Or(req.Temperature, sample.Temperature), cmp.Or(req.TopP, sample.TopP)
	req.MaxTokens = prompt.Reply(p.spec, cmp.Or(req.MaxTokens, p.spec.MaxTokens))
	reply, err := p.provider.Generate(withMaxBytes(ctx, p.spec.MaxBytes), req, onDelta)
	if err != nil {
		return sdk.ModelReply{}, err
	}
	if p.spec.UnitsPerPromptToken != 0 || p.spec.UnitsPerCompletionToken != 0 {
		reply.Units = Price(p.spec, reply.Usage)
	}
	reply.Model = p.spec.Name
	return reply, nil
}

// unitsPerToken is one whole execution unit, in millionths.
const unitsPerToken sdk.Units = 1_000_000

// Price is what a call with usage costs by spec: one unit a token when spec has no prices.
func Price(spec sdk.ModelSpec, usage sdk.Usage) sdk.Units {
	prompt, completion := spec.UnitsPerPromptToken, spec.UnitsPerCompletionToken
	if prompt == 0 && completion == 0 {
		prompt, completion = unitsPerToken, unitsPerToken
	}
	return prompt*sdk.Units(usage.Prompt) + completion*sdk.Units(usage.Completion)
}
