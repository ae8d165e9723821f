package sdk

import (
	"cmp"
	"context"
)

// What is chosen where nothing else is said.
const (
	// DefaultSelectionAbove is how many tools a model is offered without a choice.
	DefaultSelectionAbove = 30
	// DefaultSelectionTop is how many of the others are offered that fit best.
	DefaultSelectionTop = 15
	// MaxSelectionTop bounds Selection.Top.
	MaxSelectionTop = 128
)

// ToolFindTools is the tool that looks for tools which a model is not offered: an agent has it where it offers some of its tools.
const ToolFindTools = "find_tools"

// Selection offers a model some of the tools of an agent: those that fit best what people have said, those that the run has called or
// found, those that end or keep the run, and ToolFindTools. A call of another one is made all the same, under the same permissions.
type Selection struct {
	// Above is how many tools are offered without a choice; 0 is DefaultSelectionAbove.
	Above int `json:"above,omitempty"`
	// Top is how many are offered that fit best; 0 is DefaultSelectionTop.
	Top int `json:"top,omitempty"`
	// Always are patterns of tools that are always offered.
	Always []string `json:"always,omitempty"`
	// Embeddings is the model that says what fits; nil goes by words, and so does a choice when that model does not answer.
	Embeddings *EmbeddingModel `json:"embeddings,omitempty"`
	// Categories are offered in place of the tools in them, until the model opens them; none offers what fits.
	Categories []ToolCategory `json:"categories,omitempty"`
}

// Selects reports whether there are so many tools that some are chosen.
func (s *Selection) Selects(tools int) bool {
	return s != nil && tools > cmp.Or(s.Above, DefaultSelectionAbove)
}

// EmbeddingModel makes vectors of texts.
type EmbeddingModel struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
}

// ToolCategory is a group of tools that a model opens as a whole, with the tool "category_" + Name.
type ToolCategory struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Tools are patterns.
	Tools []string `json:"tools"`
}

// SelectedBy says how tools were chosen.
type SelectedBy string

// How tools are chosen.
const (
	SelectedByWords      SelectedBy = "words"
	SelectedByEmbeddings SelectedBy = "embeddings"
	SelectedByCategories SelectedBy = "categories"
)

// Embedder is a Provider that makes vectors of texts too: one for each, in their order, all of the same length.
type Embedder interface {
	Embed(ctx context.Context, model string, texts []string) ([][]float64, error)
}
