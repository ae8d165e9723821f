package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"agentd/internal/clip"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/selection"
	"agentd/internal/toolbox"
	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// maxFoundText is how much of a tool's description is shown of a tool that was found, in bytes.
const maxFoundText = 160

// indexes are those of lists of tools, by digest: agents that have the same tools share one. They hold no more than keptVersions.
type indexes struct {
	mu    sync.Mutex
	words map[string]*selection.Index
}

func (x *indexes) of(digest string, tools []sdk.ToolDefinition) *selection.Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	if found := x.words[digest]; found != nil {
		return found
	}
	if x.words == nil || len(x.words) >= keptVersions {
		x.words = map[string]*selection.Index{}
	}
	made := selection.NewIndex(tools)
	x.words[digest] = made
	return made
}

// selector chooses which tools of an agent its model is offered.
type selector struct {
	spec  *sdk.Selection
	tools []sdk.ToolDefinition
	index *selection.Index
	// fixed are always offered. grouped are in categories, and offered when the model opens one.
	fixed, grouped map[string]bool
	// embeddings is nil where words are compared.
	embeddings *embeddings
}

// selecting has the agent offer its model some of its tools, where it has so many.
func (c *Catalog) selecting(compiled *runner.Agent, spec sdk.AgentSpec, tools *toolbox.Toolbox) error {
	if err := checkSelection(spec.Selection); err != nil {
		return err
	}
	if _, selects := tools.ByName(sdk.ToolFindTools); !selects || spec.Selection == nil {
		return nil
	}
	s := &selector{spec: spec.Selection, tools: tools.Definitions(), fixed: map[string]bool{}, grouped: map[string]bool{}}
	data, err := json.Marshal(s.tools)
	if err != nil {
		return fmt.Errorf("encode the tools of %s: %w", spec.Name, err)
	}
	digest := core.Digest(data)
	s.index = c.indexes.of(digest, s.tools)
	if s.embeddings, err = c.embeddingsOf(spec.Selection.Embeddings); err != nil {
		return err
	}
	for _, t := range tools.All() {
		if t.Finds || slices.Contains(spec.Builtin, t.Name) || slices.Contains(spec.StopOn, t.Name) || toolpattern.Match(spec.Selection.Always, t.Name) {
			s.fixed[t.Name] = true
		}
		for i := range spec.Selection.Categories {
			s.grouped[t.Name] = s.grouped[t.Name] || toolpattern.Match(spec.Selection.Categories[i].Tools, t.Name)
		}
	}
	for _, t := range tools.All() {
		if t.Finds {
			compiled.Inline[t.Name] = sdk.Tool{Definition: t.Definition, Run: s.find(t.Category)}
		}
	}
	compiled.Core.Selects = true
	compiled.Selection = &runner.Selection{
		Tools: digest, Choose: s.choose, Fit: s.fit,
		Person: func(tool string) bool { return tool == toolbox.AskQuestion || tool == toolbox.Converse },
		Finds: func(tool string) bool {
			t, ok := tools.ByName(tool)
			return ok && t.Finds
		},
	}
	return nil
}

// choose implements runner.Selection.
func (s *selector) choose(ctx context.Context, wanted []string) core.Offered {
	scores, by, degraded := s.scores(ctx, wanted)
	if len(s.spec.Categories) > 0 {
		by = sdk.SelectedByCategories
	}
	for i := range s.tools {
		if name := s.tools[i].Name; s.fixed[name] || s.grouped[name] {
			scores[i] = 0
		}
	}
	return s.offer(scores, by, degraded)
}

// fit implements runner.Selection.
func (s *selector) fit(ctx context.Context, step string) core.Offered {
	return s.offer(s.scores(ctx, []string{step}))
}

// offer is the choice of the tools with the best scores, and of those that are always offered.
func (s *selector) offer(scores []float64, by sdk.SelectedBy, degraded string) core.Offered {
	offers := maps.Clone(s.fixed)
	for _, place := range selection.Best(scores, s.top()) {
		offers[s.tools[place].Name] = true
	}
	o := core.Offered{By: by, Degraded: degraded, Tools: []string{}}
	for i := range s.tools {
		if offers[s.tools[i].Name] && len(o.Tools) < core.MaxOffered {
			o.Tools = append(o.Tools, s.tools[i].Name)
		}
	}
	return o
}

func (s *selector) top() int { return cmp.Or(s.spec.Top, sdk.DefaultSelectionTop) }

// scores is how well each tool fits; degraded says why not by embeddings.
func (s *selector) scores(ctx context.Context, wanted []string) (scores []float64, by sdk.SelectedBy, degraded string) {
	text := strings.Join(wanted, "\n")
	if s.embeddings == nil {
		return s.index.Scores(text), sdk.SelectedByWords, ""
	}
	scores, err := s.embeddings.scores(ctx, s.tools, text)
	if err != nil {
		return s.index.Scores(text), sdk.SelectedByWords, sdk.AsError(err).Message
	}
	return scores, sdk.SelectedByEmbeddings, ""
}

// found is the result of a tool that finds others. core.FoundTools reads it.
type found struct {
	Tools []foundTool `json:"tools"`
	Note  string      `json:"note"`
}

type foundTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// find is the tool that opens a category, or that looks for tools where there is none.
func (s *selector) find(category *sdk.ToolCategory) func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
	return func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
		result := found{Tools: []foundTool{}, Note: "You can call these tools from now on."}
		for _, place := range s.places(ctx, category, call.Args) {
			d := &s.tools[place]
			if !s.fixed[d.Name] && len(result.Tools) < core.MaxOffered {
				result.Tools = append(result.Tools, foundTool{d.Name, clip.Text(d.Description, maxFoundText)})
			}
		}
		if len(result.Tools) == 0 {
			result.Note = "No tool was found. Say it in other words, or go on with the tools that you have."
		}
		data, err := core.EncodeJSON(result)
		if err != nil {
			return nil, fmt.Errorf("encode the tools that were found: %w", err)
		}
		return data, nil
	}
}

// places are those of the tools in a category, or of the ones that fit best.
func (s *selector) places(ctx context.Context, category *sdk.ToolCategory, args json.RawMessage) []int {
	if category == nil {
		var asked struct {
			Query string `json:"query"`
		}
		_ = json.Unmarshal(args, &asked) // validated: it is there
		scores, _, _ := s.scores(ctx, []string{asked.Query})
		return selection.Best(scores, s.top())
	}
	var places []int
	for i := range s.tools {
		if toolpattern.Match(category.Tools, s.tools[i].Name) {
			places = append(places, i)
		}
	}
	return places
}

// checkSelection refuses what cannot be chosen by.
func checkSelection(s *sdk.Selection) error {
	if s == nil {
		return nil
	}
	var faults []error
	if s.Above < 0 || s.Top < 0 || s.Top > sdk.MaxSelectionTop {
		faults = append(faults, sdk.Errorf(sdk.CodeConfig, "selection: want above from 1 and top from 1 to %d, got %d and %d", sdk.MaxSelectionTop, s.Above, s.Top))
	}
	patterns := slices.Clone(s.Always)
	for _, c := range s.Categories {
		patterns = append(patterns, c.Tools...)
	}
	for _, pattern := range patterns {
		if err := toolpattern.Check(pattern); err != nil {
			faults = append(faults, fmt.Errorf("selection: %w", err))
		}
	}
	return errors.Join(faults...)
}
