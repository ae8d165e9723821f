package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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
}

// listings are what toolsets said in one pass over the agents: one that does not answer is waited for once.
type listings map[sdk.Toolset]listing

type listing struct {
	tools []sdk.Tool
	err   error
}

// Away is an agent that is not served, because a toolset of it did not list its tools.
type Away struct {
	Agent, Toolset string
	Err            error
}

// gather lists the agent's toolsets. A run may be resumed when a toolset is away, so they are asked once, here, and not
// when a run needs them. away are those that did not answer; the error is of those that cannot be used at all.
func (l listings) gather(ctx context.Context, a sdk.Agent) (g gathered, away []Away, err error) {
	g = gathered{Agent: a}
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
		listed, ok := l[set]
		if !ok {
			listed.tools, listed.err = list(ctx, set)
			l[set] = listed
		}
		switch {
		case errors.Is(listed.err, &sdk.Error{Code: sdk.CodeConfig}):
			faults = append(faults, listed.err)
		case listed.err != nil:
			away = append(away, Away{Agent: a.Spec.Name, Toolset: set.Name(), Err: listed.err})
		}
		for _, t := range listed.tools {
			t.Definition.Name = toolsetPrefix(set) + t.Definition.Name
			t.Definition.Server = set.Name()
			g.Tools = append(g.Tools, t)
			g.code = append(g.code, codeToolset+set.Name())
		}
	}
	return g, away, errors.Join(faults...)
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

// toolsetPrefix keeps tools of different toolsets apart.
func toolsetPrefix(set sdk.Toolset) string { return set.Name() + "_" }

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

// unlisted returns the agent without what only its toolsets can tell, for checks that connect to nothing.
func unlisted(a sdk.Agent) sdk.Agent {
	a.Spec.StopOn = slices.DeleteFunc(slices.Clone(a.Spec.StopOn), func(name string) bool {
		return slices.ContainsFunc(a.Toolsets, func(set sdk.Toolset) bool { return strings.HasPrefix(name, toolsetPrefix(set)) })
	})
	return a
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
