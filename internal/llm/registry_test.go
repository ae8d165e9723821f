package llm_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentd/internal/llm"
	"agentd/sdk"
)

func TestRegistry_FallbackChain(t *testing.T) {
	t.Parallel()
	warm, clock := 0.7, &pauses{}
	down, spare := &scripted{steps: []step{{err: errUnavailable}}}, &scripted{steps: []step{{reply: "yes"}}}
	registry, err := llm.New(llm.Config{Custom: map[string]sdk.Provider{"a": down, "b": spare}, Retry: clock.options()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := registry.Provider(sdk.ModelSpec{
		Provider: "a", Name: "large", Temperature: &warm, MaxTokens: 5,
		Fallback: []sdk.ModelSpec{{
			Provider: "b", Name: "small", MaxTokens: 9, UnitsPerPromptToken: 3, UnitsPerCompletionToken: 100,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := p.Generate(t.Context(), hello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if reply.Model != "small" || reply.Units != 230 {
		t.Errorf("model %q, units %d", reply.Model, reply.Units)
	}
	if len(down.asked) != 6 || down.asked[0].Model != "large" || *down.asked[0].Temperature != warm ||
		down.asked[0].MaxTokens != 5 {
		t.Errorf("the first was asked %d times, first with %+v", len(down.asked), down.asked[0])
	}
	if got := spare.asked[0]; got.Model != "small" || got.Temperature != nil || got.MaxTokens != 9 {
		t.Errorf("the second was asked %+v", got)
	}
}

// A reply takes at most half of a model's window, however long the agent, or a hook in one step, lets it be: the prompt has the rest.
func TestRegistry_AsksForRepliesThatFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		window, spec, step, want int
	}{
		{8000, 4000, 0, 4000},
		{8000, 4001, 0, 4000},
		{8000, 0, 6000, 4000},
		{8000, 6000, 100, 100},
		{8000, 0, 0, 0},
		{0, 20_000, 0, 16_384}, // of a model that nobody knows
	} {
		asked := &scripted{steps: []step{{reply: "yes"}}}
		registry, err := llm.New(llm.Config{Custom: map[string]sdk.Provider{"a": asked}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := registry.Provider(sdk.ModelSpec{Provider: "a", Name: "m", ContextWindow: tc.window, MaxTokens: tc.spec})
		if err != nil {
			t.Fatal(err)
		}
		req := hello()
		req.MaxTokens = tc.step
		if _, err := p.Generate(t.Context(), req, nil); err != nil || asked.asked[0].MaxTokens != tc.want {
			t.Errorf("window %d, spec %d, step %d: asked for %d, want %d; %v", tc.window, tc.spec, tc.step, asked.asked[0].MaxTokens, tc.want, err)
		}
	}
}

func TestRegistry_SendsTheRunToOthersOnly(t *testing.T) {
	t.Parallel()
	var run string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run = r.Header.Get(llm.RunHeader)
		answering(200, "application/json", plainAnswer)(w, r)
	}))
	t.Cleanup(server.Close)
	no := false
	for _, tc := range []struct {
		send *bool
		want string
	}{{nil, "r"}, {&no, ""}} {
		registry, err := llm.New(llm.Config{HTTPClient: client(t), Providers: []llm.ProviderConfig{
			{Name: "local", BaseURL: server.URL, SendRun: tc.send},
		}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := registry.Provider(sdk.ModelSpec{Provider: "local", Name: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Generate(t.Context(), hello(), nil); err != nil || run != tc.want {
			t.Errorf("run %q, want %q: %v", run, tc.want, err)
		}
	}
}

func TestRegistry_ReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{
		{Name: "a", BaseURL: "nowhere"}, {Name: "b"}, {Name: "b"}, {},
	}})
	checkFaults(t, err, `"a": the base URL`, `"b" is configured twice`, "has no name")

	registry, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{{Name: "openai"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = registry.Provider(sdk.ModelSpec{Provider: "openai", Name: "m", Fallback: []sdk.ModelSpec{
		{Provider: "openai"}, {Provider: "acme", Name: "x"},
	}})
	checkFaults(t, err, `"openai" has no API key`, "has no name", `unknown provider "acme"; there is openai`)
}

func checkFaults(t *testing.T, err error, faults ...string) {
	t.Helper()
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Fatalf("got %v", err)
	}
	for _, fault := range faults {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("%q does not say %q", err, fault)
		}
	}
}

func TestPrice(t *testing.T) {
	t.Parallel()
	usage := sdk.Usage{Prompt: 100, Completion: 7}
	if got := llm.Price(sdk.ModelSpec{}, usage); got != 107_000_000 {
		t.Errorf("without prices: %d", got)
	}
	if got := llm.Price(sdk.ModelSpec{UnitsPerCompletionToken: 5}, usage); got != 35 {
		t.Errorf("with one price: %d", got)
	}
}
