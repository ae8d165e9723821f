package catalog

import (
	"slices"

	"agentd/internal/contracts"
	"agentd/internal/expression"
	"agentd/internal/prompt"
	"agentd/internal/runner"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// making is the making of one runner.Agent. Each step makes what it is about of the spec, from what steps before it have made.
type making struct {
	catalog  *Catalog
	declared sdk.Agent
	// spec is the agent's; ran is the one with which its runs have started.
	spec, ran sdk.AgentSpec
	policy    *sdk.PermissionPolicy
	into      *runner.Agent

	digest     string
	tools      *toolbox.Toolbox
	outputType string
	hooks      []sdk.Hook
}

// agent takes all steps. The first error ends it.
func (m *making) agent() (*runner.Agent, error) {
	for _, step := range []func() error{
		m.withSpec, m.withTools, m.withContract, m.withPrompts, m.withModels, m.withAnswers, m.withPermissions, m.withHooks, m.withTurns, m.withTags,
		m.withCore, m.withJudges, m.withSelection, m.withPlanning, m.withRulings,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return m.into, nil
}

func (m *making) withSpec() (err error) {
	m.into.History, m.into.Live = m.spec.History, m.spec.Live == sdk.LiveAlways
	m.digest, m.into.SpecJSON, err = contracts.SpecDigest(m.ran)
	return err
}

func (m *making) withTools() (err error) {
	if m.tools, err = toolbox.New(m.spec, m.declared.Tools); err != nil {
		return err
	}
	m.into.Definitions, m.into.Inline = m.tools.Definitions(), inline(m.tools, m.declared.Tools)
	m.into.Describe = describe(m.tools, m.declared.Tools)
	m.into.Changing = slices.ContainsFunc(m.declared.Toolsets, changes)
	return nil
}

// withContract has the agent check its inputs, and build outputs that its contract has.
func (m *making) withContract() error {
	own, err := contracts.CompileVersion(m.spec.Contract, m.spec.Version)
	if err != nil {
		return err
	}
	outputType, emitted, err := outputOf(own)
	if err != nil {
		return err
	}
	m.outputType = outputType
	hook := m.declared.Hooks.Output
	out := newOutput(emitted, hook)
	m.into.CheckInput, m.into.BuildOutput = checkInput(m.spec, own.Accepts), out.build
	if !out.free && hook == nil {
		m.into.OutputSchema = emitted.Raw()
	}
	return nil
}

func (m *making) withPrompts() error {
	prompts, err := parsePrompts(m.spec)
	if err != nil {
		return err
	}
	if m.into.BuildContext = m.declared.Hooks.Context; m.into.BuildContext == nil {
		m.into.BuildContext = prompts.build
	}
	return nil
}

func (m *making) withModels() (err error) {
	if err := checkFollow(m.spec); err != nil {
		return err
	}
	of, own := timedModels(m.catalog.models, m.spec), m.spec.Model
	if m.into.Model, err = of(own); err != nil {
		return err
	}
	m.into.ModelName, m.into.ModelKey, m.into.Parks = own.Name, modelKey(own), parks(own)
	m.into.ModelTimeout, m.into.MaxTokens = modelTimeout(m.spec)+beyondModels, prompt.Reply(own, own.MaxTokens)
	m.into.Summarizer, m.into.SummarizerName, err = summarizer(m.spec, m.into.Model, of)
	return err
}

func (m *making) withAnswers() error {
	answers, err := newAnswers(m.tools, m.catalog.surroundings.Keys)
	if err != nil {
		return err
	}
	m.into.CheckAnswer = answers.check
	return nil
}

func (m *making) withPermissions() (err error) {
	if m.spec.Constraints != nil {
		m.into.CheckConstraints = runConstraintFaults(m.spec.Constraints)
	}
	m.into.Identity = m.catalog.surroundings.Identity
	m.into.Permissions, err = permissionsOf(m.declared, m.policy, m.catalog.surroundings)
	return err
}

func (m *making) withHooks() (err error) {
	m.hooks, err = hooksOf(m.declared, m.into.Describe)
	m.into.Phases = m.hooks
	return err
}

func (m *making) withTurns() error {
	turns, err := newTurns(m.spec, m.declared.Hooks, m.tools)
	if err != nil {
		return err
	}
	m.into.Shown, m.into.Remember, m.into.Estimate, m.into.BuildPrompt = turns.shown, turns.remember, turns.estimate, turns.build
	return nil
}

func (m *making) withTags() (err error) {
	m.into.Tags, err = tagsOf(m.spec)
	return err
}

func (m *making) withCore() error {
	m.into.Core = coreSpec(m.spec, m.digest, m.outputType, m.tools, m.declared.Tools)
	m.into.Core.StaleAfter = (longestTurn(m.into, m.spec) + leaseEnd).Milliseconds()
	if err := readCalls(m.into.Core, m.spec, m.tools, m.into.Describe); err != nil {
		return err
	}
	if err := loopControl(m.into.Core, m.spec, m.hooks); err != nil {
		return err
	}
	readOnly(m.into.Core, m.into.Describe)
	return nil
}

func (m *making) withJudges() error { return judgesOf(m.into, m.declared, m.tools) }

func (m *making) withSelection() error { return m.catalog.selecting(m.into, m.spec, m.tools) }

func (m *making) withPlanning() error { return m.catalog.planning(m.into, m.spec, m.tools) }

// withRulings says whether calls are ruled on before they are made.
func (m *making) withRulings() error {
	s := m.into.Core
	s.NeedsRulings = m.spec.Permissions != nil || m.policy != nil || m.declared.Hooks.Permissions != nil || slices.ContainsFunc(m.hooks, gates)
	s.PermissionSchema, s.PermissionResultSchema = permissionSchema, permissionResultSchema
	s.Matches = expression.Matches
	return nil
}
