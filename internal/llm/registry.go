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
	// Providers speak OpenAI's protocol.
	Providers []ProviderConfig
	// Custom adds providers of other kinds by name, such as a scripted one. They must be safe for concurrent use.
	Custom map[string]sdk.Provider
	Retry  RetryOptions
	// HTTPClient is http.DefaultClient when nil.
	HTTPClient *http.Client
}

// ProviderConfig is one OpenAI-compatible server.
type ProviderConfig struct {
	// Name is what specs call it.
	Name         string
	BaseURL      string
	APIKey       string
	Organization string
	// SendRun sends RunHeader; nil does so to every server except OpenAI's own, which has no use for it.
	SendRun *bool
}

// Registry resolves the models of agent specs. Safe for concurrent use.
type Registry struct {
	providers map[string]sdk.Provider
	keyless   map[string]bool
	retry     RetryOptions
}

// New returns the registry of cfg, or an error that lists every fault. Nothing is connected to.
func New(cfg Config) (*Registry, error) {
	r := &Registry{providers: maps.Clone(cfg.Custom), keyless: map[string]bool{}, retry: cfg.Retry}
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
		sendRun := !isDefaultURL(c.BaseURL)
		if c.SendRun != nil {
			sendRun = *c.SendRun
		}
		p, err := NewOpenAI(OpenAIOptions{
			Name: c.Name, BaseURL: c.BaseURL, APIKey: c.APIKey, Organization: c.Organization,
			SendRun: sendRun, HTTPClient: cfg.HTTPClient,
		})
		if err != nil {
			faults = append(faults, err)
			continue
		}
		r.providers[c.Name] = p
		// OpenAI itself never answers without a key; say so before a run starts. Other servers may.
		r.keyless[c.Name] = c.APIKey == "" && isDefaultURL(c.BaseURL)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return r, nil
}

// Provider returns what answers for spec: its model with retries and then its fallbacks in order, each with its own
// name, temperature, limit and price, in place of the request's. The reply names the model that answered. A spec that
// cannot work is CodeConfig, with every fault.
func (r *Registry) Provider(spec sdk.ModelSpec) (sdk.Provider, error) {
	var chain []sdk.Provider
	var faults []error
	for _, s := range flatten(spec) {
		if err := r.check(s); err != nil {
			faults = append(faults, err)
			continue
		}
		provider := sdk.Provider(assembled{Retrying(r.providers[s.Provider], r.retry)})
		if s.ToolCalls == sdk.ToolCallsText {
			provider = texttools.Wrap(provider)
		}
		chain = append(chain, priced{spec: s, provider: provider})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return Fallback(chain...), nil
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
	case spec.ToolCalls != "" && spec.ToolCalls != sdk.ToolCallsNative && spec.ToolCalls != sdk.ToolCallsText:
		return sdk.Errorf(sdk.CodeConfig, "model %q: tool_calls: want native or text, got %q", spec.Name, spec.ToolCalls)
	case r.keyless[spec.Provider]:
		return sdk.Errorf(sdk.CodeConfig, "model %q: provider %q has no API key", spec.Name, spec.Provider)
	default:
		return nil
	}
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
	req.Model, req.Temperature, req.MaxTokens = p.spec.Name, p.spec.Temperature, p.spec.MaxTokens
	reply, err := p.provider.Generate(ctx, req, onDelta)
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
