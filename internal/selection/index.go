// Package selection chooses which of many tools a model is offered. The choice is pure: the same tools, texts and vectors give the same
// tools.
package selection

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"agentd/sdk"
)

// How much a word counts by where it stands in a definition, and one that is only similar to a word of the query.
const (
	inName       = 2.0
	inServer     = 4.0
	inText       = 1.0
	inParameters = 0.5
	similarWord  = 0.4
)

// The constants of BM25: how soon repeating a word stops counting, and how much longer definitions are held back.
const (
	saturation = 8.0
	lengthPart = 0.5
)

// Index finds tools by the words of their definitions (BM25). It must not be modified; safe for concurrent use.
type Index struct {
	tools []sdk.ToolDefinition
	// postings are the weights of a stem in the tools that have it.
	postings map[string][]posting
}

type posting struct {
	tool   int
	weight float64
}

// NewIndex indexes definitions, in their order.
func NewIndex(tools []sdk.ToolDefinition) *Index {
	x := &Index{tools: tools, postings: map[string][]posting{}}
	counts := make([]map[string]float64, len(tools))
	lengths := make([]float64, len(tools))
	total := 0.0
	for i := range tools {
		counts[i] = counted(&tools[i])
		for _, stem := range slices.Sorted(maps.Keys(counts[i])) { // sums of floats depend on their order
			lengths[i] += counts[i][stem]
		}
		total += lengths[i]
	}
	mean := total / float64(max(len(tools), 1))
	for i := range tools {
		for _, stem := range slices.Sorted(maps.Keys(counts[i])) {
			n := counts[i][stem]
			held := saturation * (1 - lengthPart + lengthPart*lengths[i]/mean)
			x.postings[stem] = append(x.postings[stem], posting{i, n * (saturation + 1) / (n + held)})
		}
	}
	for stem, all := range x.postings {
		n, has := float64(len(tools)), float64(len(all))
		rarity := math.Log(1 + (n-has+0.5)/(has+0.5))
		for i := range all {
			all[i].weight *= rarity
		}
		x.postings[stem] = all
	}
	return x
}

// counted is how often a definition has each stem, by what that counts.
func counted(d *sdk.ToolDefinition) map[string]float64 {
	counts := map[string]float64{}
	add := func(text string, weight float64) {
		for _, stem := range words(text) {
			counts[stem] += weight
		}
	}
	add(d.Name, inName)
	add(d.Server, inServer)
	add(d.Description, inText)
	for _, text := range parameterTexts(d.Parameters) {
		add(text, inParameters)
	}
	return counts
}

// parameterTexts are the names and descriptions of a tool's arguments.
func parameterTexts(schema json.RawMessage) []string {
	var root struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &root) // a schema in another form has no texts
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		texts = append(texts, name, root.Properties[name].Description)
	}
	return texts
}

// Scores is how well each tool fits a query by its words; 0 is not at all.
func (x *Index) Scores(query string) []float64 {
	scores := make([]float64, len(x.tools))
	add := func(stem string, weight float64) {
		for _, p := range x.postings[stem] {
			scores[p.tool] += weight * p.weight
		}
	}
	wanted := map[string]float64{}
	stems := append(words(query), shown(query)...)
	for _, stem := range stems {
		wanted[stem] = 1
	}
	for _, stem := range stems {
		for _, other := range similar()[stem] {
			wanted[other] = max(wanted[other], similarWord)
		}
	}
	for _, stem := range slices.Sorted(maps.Keys(wanted)) {
		add(stem, wanted[stem])
	}
	return scores
}

// Best are the places of the k tools with the highest scores, the best first; of equal ones those that come first. A tool that does not
// fit at all is none of them.
func Best(scores []float64, k int) []int {
	var places []int
	for i, score := range scores {
		if score > 0 {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return places[:min(k, len(places))]
}
