package llm_test

import (
	"net/http/httptest"
	"testing"

	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

// A provider of the protocol openai makes embeddings: one for each text, in their order, and texts with the same words are alike.
func TestOpenAI_Embeds(t *testing.T) {
	t.Parallel()
	script, err := mockllm.ParseScript("script.yaml", []byte("conversations: [{name: any, replies: [{text: hello}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mockllm.New(script))
	defer server.Close()
	registry, err := llm.New(llm.Config{Providers: []llm.ProviderConfig{{Name: "local", BaseURL: server.URL + "/v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	provider, err := registry.Provider(sdk.ModelSpec{Provider: "local", Name: "vectors"})
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := provider.(sdk.Embedder).Embed(t.Context(), "vectors", []string{"Paint a wall.", "feed the cat", "a wall, paint!"})
	if err != nil || len(vectors) != 3 {
		t.Fatalf("%d vectors: %v", len(vectors), err)
	}
	product := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	if same, other := product(vectors[0], vectors[2]), product(vectors[0], vectors[1]); len(vectors[0]) != 256 || same < 2.9 || other > 1 {
		t.Errorf("%d numbers; the same words %v, others %v", len(vectors[0]), same, other)
	}
}
