package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentd/internal/core"
	"agentd/internal/selection"
	"agentd/sdk"
)

// embeddedAtOnce is how many texts a model is asked for at once, and how many vectors are stored together: 4096 numbers each fit in a
// message of the broker.
const embeddedAtOnce = 48

// embeddings say how well tools fit by the vectors of a model. Those of tools are kept in the store, by digest, so that a model is asked
// once for them, whatever worker needs them. Safe for concurrent use.
type embeddings struct {
	model    sdk.EmbeddingModel
	embedder sdk.Embedder
	store    SpecStore

	mu sync.Mutex
	// known are the vectors of lists of texts, by digest.
	known map[string][]selection.Vector
}

// embeddingsOf resolves a model; nil is none.
func (c *Catalog) embeddingsOf(m *sdk.EmbeddingModel) (*embeddings, error) {
	if m == nil {
		return nil, nil
	}
	provider, err := c.models(sdk.ModelSpec{Provider: m.Provider, Name: m.Name})
	if err != nil {
		return nil, err
	}
	embedder, ok := provider.(sdk.Embedder)
	if !ok && provider != nil { // no provider is known to who only checks agents
		return nil, sdk.Errorf(sdk.CodeConfig, "selection: embeddings: provider %q makes none; want one of the protocol openai", m.Provider)
	}
	return &embeddings{model: *m, embedder: embedder, store: c.store, known: map[string][]selection.Vector{}}, nil
}

// scores is how similar each tool is to a text.
func (e *embeddings) scores(ctx context.Context, tools []sdk.ToolDefinition, text string) ([]float64, error) {
	asked, err := e.embed(ctx, []string{text})
	if err != nil {
		return nil, err
	}
	var scores []float64
	for some := range slices.Chunk(tools, embeddedAtOnce) {
		vectors, err := e.ofTools(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, v := range vectors {
			scores = append(scores, selection.Similarity(asked[0], v))
		}
	}
	return scores, nil
}

// ofTools are the vectors of tools: those that are known here, else those of the store, else what the model answers.
func (e *embeddings) ofTools(ctx context.Context, tools []sdk.ToolDefinition) ([]selection.Vector, error) {
	texts := make([]string, len(tools))
	for i := range tools {
		texts[i] = selection.Text(&tools[i])
	}
	digest := core.Digest([]byte("embeddings\x00" + e.model.Provider + "\x00" + e.model.Name + "\x00" + strings.Join(texts, "\x00")))
	e.mu.Lock()
	vectors := e.known[digest]
	e.mu.Unlock()
	if vectors != nil {
		return vectors, nil
	}
	if data, err := e.store.Spec(ctx, digest); err == nil {
		vectors = selection.Decode(data, len(texts))
	}
	if vectors == nil { // none, or a store that cannot be read now
		var err error
		if vectors, err = e.embed(ctx, texts); err != nil {
			return nil, err
		}
		_ = e.store.PutSpec(ctx, digest, selection.Encode(vectors)) // who cannot keep them asks again
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.known) >= keptVersions {
		clear(e.known)
	}
	e.known[digest] = vectors
	return vectors, nil
}

// embed asks the model for the vectors of texts, all of the same length.
func (e *embeddings) embed(ctx context.Context, texts []string) ([]selection.Vector, error) {
	answered, err := e.embedder.Embed(ctx, e.model.Name, texts)
	if err != nil {
		return nil, fmt.Errorf("ask %s for embeddings: %w", e.model.Name, err)
	}
	if len(answered) != len(texts) {
		return nil, sdk.Errorf(sdk.CodeModel, "%s answered %d embeddings for %d texts", e.model.Name, len(answered), len(texts))
	}
	vectors := make([]selection.Vector, len(texts))
	for i, values := range answered {
		vectors[i] = selection.Normalise(values)
		if vectors[i] == nil || len(vectors[i]) != len(vectors[0]) {
			return nil, sdk.Errorf(sdk.CodeModel, "%s answered embeddings that cannot be compared", e.model.Name)
		}
	}
	return vectors, nil
}
