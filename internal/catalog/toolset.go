package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"agentd/internal/approval"
	"agentd/internal/contracts"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// listTimeout bounds how long a toolset may take to connect and to list its tools.
const listTimeout = 30 * time.Second

// What a spec's Code says of tools, before the name of the tool or the toolset.
const (
	codeTool    = "tool:"
	codeToolset = "toolset:"
)

// gathered is an agent with its toolsets' tools among its own.
type gathered struct {
	sdk.Agent
	// code is, for each of Tools, the name in the spec's Code that it comes with.
	code []string
	// away are the toolsets whose tools are not among them, because they did not answer.
	away []Away
}

// listings are what toolsets said in one pass over the agents: one that does not answer is waited for once, and has the
// tools that it had before, if it ever answered.
type listings struct {
	former map[sdk.Toolset][]sdk.Tool
	now    map[sdk.Toolset]listing
}

type listing struct {
	tools []sdk.Tool
	err   error
}

// Away is a toolset of an agent that did not list its tools.
type Away struct {
	Agent, Toolset string
	// Required says that the agent is not served without the toolset; else it is, with the tools of the others.
	Required bool
	Err      error
}

// required is a toolset that says whether its agents can be served without it.
type required interface{ Required() bool }

// changes reports whether a toolset's tools come and go.
func changes(set sdk.Toolset) bool {
	_, says := set.(sdk.ChangingToolset)
	return says
}

func awayOf(a sdk.Agent, set sdk.Toolset, err error) Away {
	r, says := set.(required)
	return Away{Agent: a.Spec.Name, Toolset: set.Name(), Required: says && r.Required(), Err: err}
}

func isRequired(a Away) bool { return a.Required }

// gather gives the agent the tools of its toolsets. A run may be resumed when a toolset is away, so they are asked once,
// before, and not when a run needs them. The error is of those that cannot be used at all.
func (l listings) gather(a sdk.Agent) (gathered, error) {
	g := gathered{Agent: a}
	g.Tools = slices.Clone(a.Tools)
	for _, t := range a.Tools {
		g.code = append(g.code, codeTool+t.Definition.Name)
	}
	var faults []error
	for _, set := range a.Toolsets {
		if !reflect.TypeOf(set).Comparable() {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "toolset %s: a toolset is a pointer, so that it can be told from others", set.Name()))
			continue
		}
		listed := l.now[set]
		switch {
		case errors.Is(listed.err, &sdk.Error{Code: sdk.CodeConfig}):
			faults = append(faults, listed.err)
		case listed.err != nil:
			g.away = append(g.away, awayOf(a, set, listed.err))
		}
		for _, t := range listed.tools {
			t.Definition.Name = toolbox.ToolsetPrefix(set.Name()) + t.Definition.Name
			t.Definition.Server = set.Name()
			g.Tools = append(g.Tools, t)
			g.code = append(g.code, codeToolset+set.Name())
		}
	}
	return g, errors.Join(faults...)
}

// list lists all toolsets at once, so that those that do not answer are waited for together.
func (l listings) list(ctx context.Context, sets []sdk.Toolset) {
	listed := make([]listing, len(sets))
	var all sync.WaitGroup
	for i, set := range sets {
		all.Go(func() { listed[i].tools, listed[i].err = list(ctx, set) })
	}
	all.Wait()
	for i, set := range sets {
		if tools, known := l.former[set]; known && listed[i].err != nil && !errors.Is(listed[i].err, &sdk.Error{Code: sdk.CodeConfig}) {
			listed[i] = listing{tools: tools} // its calls fail for as long as it is away
		}
		l.now[set] = listed[i]
	}
}

// answered are the tools of the toolsets that did not fail.
func (l listings) answered() map[sdk.Toolset][]sdk.Tool {
	tools := map[sdk.Toolset][]sdk.Tool{}
	for set, listed := range l.now {
		if listed.err == nil {
			tools[set] = listed.tools
		}
	}
	return tools
}

func list(ctx context.Context, set sdk.Toolset) ([]sdk.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tools, err := set.Tools(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the tools of toolset %s: %w", set.Name(), err)
	}
	return tools, nil
}

// checkTools refuses a spec that is about tools, or arguments, that the agent does not have. What may be about the tools of a
// toolset that has listed others is the toolset's fault: it counts as away, and the agent is not served before it has them.
func (g *gathered) checkTools(spec sdk.AgentSpec) error {
	resolved, _ := contracts.Resolved(g.Spec)
	box, err := toolbox.New(resolved, g.Tools)
	if err != nil {
		return err
	}
	var unknown []string
	for _, w := range g.away {
		unknown = append(unknown, toolbox.ToolsetPrefix(w.Toolset))
	}
	faults := approval.ToolsOf(&spec, box, unknown).Faults(&spec)
	for _, set := range g.Toolsets {
		if prefix := toolbox.ToolsetPrefix(set.Name()); len(faults) > 0 && !slices.Contains(unknown, prefix) {
			unknown = append(unknown, prefix)
			left := approval.ToolsOf(&spec, box, unknown).Faults(&spec)
			if len(left) < len(faults) {
				g.away = append(g.away, Away{
					Agent: spec.Name, Toolset: set.Name(), Required: true,
					Err: misnamed(slices.DeleteFunc(faults, func(f sdk.Fault) bool { return slices.Contains(left, f) })),
				})
			}
			faults = left
		}
	}
	if len(faults) > 0 {
		return misnamed(faults)
	}
	return nil
}

// misnaming says which agents name a tool that their toolset, although it answers, does not have.
func misnaming(agents map[string]*entry) error {
	var faults []error
	for _, token := range slices.Sorted(maps.Keys(agents)) {
		for _, w := range agents[token].agent.away {
			if errors.Is(w.Err, &sdk.Error{Code: sdk.CodeConfig}) {
				faults = append(faults, fmt.Errorf("agent %s: toolset %s: %w", w.Agent, w.Toolset, w.Err))
			}
		}
	}
	return errors.Join(faults...)
}

func misnamed(faults []sdk.Fault) error {
	return &sdk.Error{Code: sdk.CodeConfig, Message: "the agent names tools or arguments that do not exist", Faults: faults}
}

// missing says of a tool which of the toolsets that are away it belongs to.
func missing(away []Away, tool string) *sdk.Error {
	for _, w := range away {
		inText := w.Toolset + "." // as models that call tools in text name one that they were not shown
		if strings.HasPrefix(tool, toolbox.ToolsetPrefix(w.Toolset)) || strings.HasPrefix(tool, inText) {
			return &sdk.Error{
				Code: sdk.CodeUnavailable, Retryable: true,
				Message: fmt.Sprintf("%s cannot be called now: its toolset %s is away; there may be another way", tool, w.Toolset),
			}
		}
	}
	return nil
}

// as returns the agent as it was with spec: with those of its tools that the spec names as code.
func (g *gathered) as(spec sdk.AgentSpec) sdk.Agent {
	was := g.Agent
	was.Spec, was.Tools = spec, nil
	for i, t := range g.Tools {
		if slices.Contains(spec.Code, g.code[i]) {
			was.Tools = append(was.Tools, t)
		}
	}
	return was
}

func toolsetsOf(agents []sdk.Agent) []sdk.Toolset {
	var sets []sdk.Toolset
	for _, a := range agents {
		for _, set := range a.Toolsets {
			if reflect.TypeOf(set).Comparable() && !slices.Contains(sets, set) {
				sets = append(sets, set)
			}
		}
	}
	return sets
}

// closeAll closes the toolsets that keep does not hold.
func closeAll(sets, keep []sdk.Toolset) error {
	var faults []error
	for _, set := range sets {
		if slices.Contains(keep, set) {
			continue
		}
		if err := set.Close(); err != nil {
			faults = append(faults, fmt.Errorf("close toolset %s: %w", set.Name(), err))
		}
	}
	return errors.Join(faults...)
}
