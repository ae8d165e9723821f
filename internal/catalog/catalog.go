// Package catalog compiles agents for the runner and keeps them by the digest of their spec: the current one of each
// name, and those that waiting runs still keep.
package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"agentd/internal/approval"
	"agentd/internal/contracts"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// SpecStore finds the specs of runs that started with an agent as it no longer is, and keeps the embeddings of tools beside them. It is part of runner.Store.
type SpecStore interface {
	Spec(ctx context.Context, digest string) ([]byte, error)
	PutSpec(ctx context.Context, digest string, data []byte) error
}

// Models resolves the model of a spec.
type Models func(sdk.ModelSpec) (sdk.Provider, error)

// Catalog implements runner.Catalog. Safe for concurrent use.
type Catalog struct {
	store  SpecStore
	models Models
	// surroundings are what permission policies need.
	surroundings approval.Options

	indexes indexes

	mu      sync.RWMutex
	current map[string]*entry // by agent token
	// types maps the token of a contract's type to the token of the agent that serves it.
	types map[string]string
	// versions are compiled agents by digest; keptVersions bounds them.
	versions map[string]version
	// removed are the contract versions that the registry no longer has, withdrawn the agents as they are without them.
	removed   map[string]bool
	withdrawn map[*runner.Agent]*runner.Agent
	// toolsets are those of the current agents. unclosed is what went wrong with closing former ones.
	toolsets []sdk.Toolset
	unclosed error
	// listed are the tools of the toolsets that have answered, for when they do not.
	listed map[sdk.Toolset][]sdk.Tool
}

// keptVersions bounds the former versions in memory; one that is needed again is compiled again.
const keptVersions = 256

// entry is a current agent with the code to compile its former versions. An agent that waits for a toolset has neither: no
// run of it begins, and none goes on.
type entry struct {
	agent    gathered
	compiled version
}

func (e *entry) waits() bool { return slices.ContainsFunc(e.agent.away, isRequired) }

// following is the spec of a run with the models that follow those which the agent has now.
func (e *entry) following(spec sdk.AgentSpec) sdk.AgentSpec {
	now := e.agent.Spec
	if spec.Model.Follow == sdk.FollowCurrent {
		spec.Model = now.Model
	}
	if summarizerFollows(spec) && now.Memory != nil && now.Memory.Summarizer != nil {
		memory := *spec.Memory
		memory.Summarizer = now.Memory.Summarizer
		spec.Memory = &memory
	}
	return spec
}

func summarizerFollows(spec sdk.AgentSpec) bool {
	return spec.Memory != nil && spec.Memory.Summarizer != nil && spec.Memory.Summarizer.Follow == sdk.FollowCurrent
}

// New returns an empty catalog.
func New(store SpecStore, models Models, permissions approval.Options) *Catalog {
	return &Catalog{
		store: store, models: models, surroundings: permissions, versions: map[string]version{},
		withdrawn: map[*runner.Agent]*runner.Agent{},
	}
}

// Set replaces the current agents, all or none: an error lists what is wrong with each. Runs that started with a former
// version keep it. An agent with a toolset that does not answer is served without its tools. Where the toolset is required,
// the agent is not served here before Refresh has reached it (Waiting); other workers may have it meanwhile. An agent that names
// a tool which its toolset, as it answers, does not have is refused.
//
// The catalog takes the agents' toolsets over, also when it fails: it closes those that are not needed any more. A call that
// still runs in a closed toolset becomes an error for the model.
func (c *Catalog) Set(agents []sdk.Agent) error {
	current, types, listed, err := c.compileAll(agents)
	if err == nil {
		err = misnaming(current)
	}
	sets := toolsetsOf(agents)
	c.mu.Lock()
	former := c.toolsets
	if err == nil {
		c.current, c.types, c.toolsets, c.listed = current, types, sets, listed
		clear(c.versions) // they have the code of the agents that were
		clear(c.withdrawn)
	}
	c.mu.Unlock()
	if err != nil {
		return errors.Join(err, closeAll(sets, former))
	}
	if err := closeAll(former, sets); err != nil {
		c.mu.Lock()
		c.unclosed = errors.Join(c.unclosed, err)
		c.mu.Unlock()
	}
	return nil
}

// Refresh is Set of the agents that are current, because a toolset of theirs has other tools, or may be back. The error says which agents
// cannot be used with what their toolsets list now: each stays as it is, with its toolsets, and the others have their tools. A toolset that
// has gone away has the tools that it had. An agent that names a tool which its toolset no longer has waits for it, as for a required one that
// is away: its policy may protect something else now.
func (c *Catalog) Refresh(agents []sdk.Agent) error {
	current, _, listed, err := c.compileAll(agents)
	c.mu.Lock()
	defer c.mu.Unlock()
	for token, former := range c.current {
		if current[token] == nil {
			current[token] = former
		}
	}
	c.current, c.listed = current, listed
	clear(c.versions)
	clear(c.withdrawn)
	return err
}

// Waiting lists the toolsets that have not answered yet, by agent.
func (c *Catalog) Waiting() []Away {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var away []Away
	for _, token := range slices.Sorted(maps.Keys(c.current)) {
		away = append(away, c.current[token].agent.away...)
	}
	return away
}

// Close closes the toolsets of the current agents, and reports what went wrong with closing any. The agents must not be
// used any more. It may be repeated.
func (c *Catalog) Close() error {
	c.mu.Lock()
	sets, unclosed := c.toolsets, c.unclosed
	c.toolsets, c.unclosed = nil, nil
	c.mu.Unlock()
	return errors.Join(unclosed, closeAll(sets, nil))
}

// Silence is how long an activation of any current agent may go without progress: longer than its longest step.
func (c *Catalog) Silence() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	longest := sdk.DefaultModelTimeout + leaseEnd
	for _, e := range c.current {
		if e.waits() {
			continue
		}
		longest = max(longest, longestStep(e.compiled.Agent)+leaseEnd)
	}
	return longest
}

// compileAll compiles the agents: by token, and the tokens of their contracts' types. listed are the tools of their toolsets.
func (c *Catalog) compileAll(agents []sdk.Agent) (
	current map[string]*entry, types map[string]string, listed map[sdk.Toolset][]sdk.Tool, err error,
) {
	current, types = map[string]*entry{}, map[string]string{}
	var faults []error
	c.mu.RLock()
	asked := listings{former: c.listed, now: map[sdk.Toolset]listing{}}
	c.mu.RUnlock()
	asked.list(context.Background(), toolsetsOf(agents))
	for _, a := range agents {
		token := wire.NameToken(a.Spec.Name)
		if other, taken := current[token]; taken {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "agents %q and %q have the same subject token %q",
				other.agent.Spec.Name, a.Spec.Name, token))
			continue
		}
		a.Spec.Code = codeOf(a)
		e := &entry{}
		var err error
		e.agent, err = asked.gather(a)
		if err == nil { // also of one that waits, so that what else is wrong is said now
			e.compiled, err = c.compile(e.agent.Agent, a.Spec, e.agent.away, a.Spec.Permissions)
		}
		if err == nil {
			err = errors.Join(checkWindow(a.Spec, e.compiled.Definitions), checkTemplates(a.Spec))
		}
		if err == nil {
			err = e.agent.checkTools(a.Spec)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("agent %s: %w", a.Spec.Name, err))
			continue
		}
		current[token] = e
		typeToken := wire.NameToken(a.Spec.Contract.Type)
		if other, taken := types[typeToken]; taken {
			faults = append(faults, sdk.Errorf(sdk.CodeConfig, "agents %q and %q serve the same contract type", other, a.Spec.Name))
		}
		types[typeToken] = token
	}
	return current, types, asked.answered(), errors.Join(faults...)
}

// codeOf names what of the agent is written in Go.
func codeOf(a sdk.Agent) []string {
	var code []string
	if a.Hooks.Context != nil {
		code = append(code, "context")
	}
	if a.Hooks.Planning != nil {
		code = append(code, "planning")
	}
	if a.Hooks.Retrieval != nil {
		code = append(code, "retrieval")
	}
	if a.Hooks.Output != nil {
		code = append(code, "output")
	}
	if a.Hooks.Permissions != nil {
		code = append(code, "permissions")
	}
	for name := range a.Hooks.Requirements {
		code = append(code, "requirement:"+name)
	}
	for _, h := range a.Hooks.Phases {
		code = append(code, "hook:"+h.Name)
	}
	for _, t := range a.Tools {
		code = append(code, codeTool+t.Definition.Name)
	}
	for _, set := range a.Toolsets {
		code = append(code, codeToolset+set.Name())
	}
	slices.Sort(code)
	return slices.Compact(code)
}

// Current implements runner.Catalog.
func (c *Catalog) Current(agent string) (*runner.Agent, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.current[agent]
	if !ok || e.waits() {
		return nil, false
	}
	return c.inForce(e.compiled), true
}

// Serving is the agent, by token, that answers calls of a contract type, by token.
func (c *Catalog) Serving(typeToken string) (agent string, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	agent, ok = c.types[typeToken]
	return agent, ok
}

// Version implements runner.Catalog.
func (c *Catalog) Version(ctx context.Context, agent, digest string) (*runner.Agent, error) {
	e, known := c.known(agent, digest)
	switch {
	case e == nil:
		return nil, sdk.Errorf(sdk.CodeUnknownAgent, "agent %q is not served here", agent)
	case e.waits():
		i := slices.IndexFunc(e.agent.away, isRequired)
		return nil, sdk.Errorf(sdk.CodeUnavailable, "agent %q is not served here before its toolset %s is put right", agent, e.agent.away[i].Toolset)
	case known != nil:
		return known, nil
	}
	data, err := c.store.Spec(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("read spec %s: %w", digest, err)
	}
	var spec sdk.AgentSpec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("decode spec %s: %w", digest, err)
	}
	for _, code := range spec.Code {
		if !slices.Contains(e.agent.Spec.Code, code) {
			return nil, sdk.Errorf(sdk.CodeConfig, "agent %q has no %q in Go here, which the run needs", agent, code)
		}
	}
	agentThen, err := c.compile(e.agent.as(e.following(spec)), spec, e.agent.away, e.agent.Spec.Permissions)
	if err != nil {
		return nil, fmt.Errorf("compile spec %s: %w", digest, err)
	}
	return c.keep(agent, e, digest, agentThen), nil
}

// known is the current agent of that name, nil when there is none, and the agent with that digest if it is compiled.
func (c *Catalog) known(agent, digest string) (*entry, *runner.Agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.current[agent]
	former, compiled := c.versions[digest]
	switch {
	case !ok:
		return nil, nil
	case e.waits():
		return e, nil
	case e.compiled.Core.Digest == digest:
		return e, c.inForce(e.compiled)
	case compiled:
		return e, c.inForce(former)
	}
	return e, nil
}

// keep remembers a former version that was compiled with e's code, unless another is current by now.
func (c *Catalog) keep(agent string, e *entry, digest string, v version) *runner.Agent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current[agent] == e {
		if len(c.versions) >= keptVersions {
			clear(c.versions)
			clear(c.withdrawn)
		}
		c.versions[digest] = v
	}
	return c.inForce(v)
}

// Check reports what is wrong with an agent without a model, its toolsets and what it has from the registry: for agentd
// check.
func Check(a sdk.Agent, permissions approval.Options) error {
	written := a.Spec
	a.Spec, _ = contracts.Resolved(a.Spec)
	noModel := func(sdk.ModelSpec) (sdk.Provider, error) { return nil, nil }
	var away []Away
	for _, set := range a.Toolsets {
		away = append(away, awayOf(a, set, nil))
	}
	compiled, err := New(nil, noModel, permissions).compile(a, a.Spec, away, a.Spec.Permissions)
	if err != nil {
		return err
	}
	if err := errors.Join(checkWindow(a.Spec, compiled.Definitions), checkTemplates(a.Spec)); err != nil {
		return err
	}
	g := gathered{Agent: a, away: away}
	return g.checkTools(written)
}

var _ runner.Catalog = (*Catalog)(nil)

// turnSchema is the dataschema of conversation turns, questionSchema that of tools' questions.
var (
	turnSchema     = sdk.SchemaRef(contracts.Conversation().URI, contracts.BuiltinVersion)
	questionSchema = sdk.SchemaRef(contracts.Question().URI, contracts.BuiltinVersion)
)
