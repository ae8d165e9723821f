package setup

import (
	"testing"

	"agentd/internal/config"
	"agentd/internal/llm"
	"agentd/sdk"
)

// What is wrong with a model that many agents have is said once, with the agents.
func TestCheckModels_SaysEachFaultOnce(t *testing.T) {
	t.Parallel()
	small, other := sdk.ModelSpec{Provider: "openai", Name: "gpt-4o-mini"}, sdk.ModelSpec{Provider: "nobody", Name: "x"}
	cfg := &config.Config{Agents: []sdk.AgentSpec{
		{Name: "desk", Model: small, Memory: &sdk.Memory{Summarizer: &small}}, {Name: "odd", Model: other}, {Name: "helper", Model: small},
	}}
	registry, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{{Name: "openai", Protocol: llm.ProtocolOpenAI}}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `config: model "gpt-4o-mini": provider "openai" has no API key (of desk, helper)
config: model "x": unknown provider "nobody"; there is openai (of odd)`
	if got := sdk.AsError(CheckModels(cfg, registry)).Cause.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
