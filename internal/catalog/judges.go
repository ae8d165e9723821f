package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/expression"
	"agentd/internal/judge"
	"agentd/internal/runner"
	"agentd/internal/schema"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// mostRefusals bounds how often a judge or a gate may send a text back.
const mostRefusals = 100

// nudges are what the model is told of a text that a judge objects to; %q is what that is. Only what Unverified asks for can be done without
// tools.
var nudges = map[judge.Name]string{
	judge.Incomplete: "Your reply is not an answer yet, because it says that work is left: %q. You stopped before you were done. Go on now with what " +
		"is left: call the next tool. Answer when all of it is done, or say what cannot be done and why.",
	judge.Deflecting: "Your reply is not an answer: %q. Nobody can reply to you. Do not ask and do not offer. Go on with the task, with the tools " +
		"that you have and the most sensible assumption, and name the assumption in your answer.",
	judge.Unverified: "Your reply claims what no call has done: %q. Make the call that does it, or answer without the claim.",
}

// judgesOf puts into a compiled agent what its texts and outputs are judged by.
func judgesOf(into *runner.Agent, a sdk.Agent, tools *toolbox.Toolbox) error {
	spec := a.Spec.Answers
	if spec == nil {
		return nil
	}
	into.Core.Summary, into.Degraded = spec.Summary, spec.Degraded
	if spec.Degraded != "" && a.Spec.Text == sdk.TextConverse {
		return sdk.Errorf(sdk.CodeConfig, "answers: degraded is the output of an agent that does not converse")
	}
	most := map[judge.Name]int{judge.Incomplete: spec.Incomplete, judge.Deflecting: spec.Deflecting, judge.Unverified: spec.Unverified}
	for name, n := range most {
		if n < 0 || n > mostRefusals {
			return sdk.Errorf(sdk.CodeConfig, "answers: %s: want 0 to %d, got %d", name, mostRefusals, n)
		}
		into.Core.Judged = into.Core.Judged || n > 0
	}
	gate, err := gatesOf(a)
	if err != nil {
		return err
	}
	into.CheckOutput = gate
	if !into.Core.Judged {
		return nil
	}
	packs, err := judge.Builtin()
	if len(spec.Phrases) > 0 {
		packs, err = judge.NewPacks(spec.Phrases)
	}
	if err != nil {
		return sdk.Errorf(sdk.CodeConfig, "answers: %s", err)
	}
	asks := a.Spec.Text == sdk.TextConverse || slices.Contains(a.Spec.Builtin, toolbox.AskQuestion)
	described := describe(tools, a.Tools)
	into.Judge = func(r judge.Reply) []core.Objection {
		r.MayAsk = asks
		for i := range r.Calls {
			c := &r.Calls[i]
			c.Reads = described(c.Tool).Labels.ReadOnly || packs.Reads(c.Tool)
		}
		return objections(packs, r, most)
	}
	return nil
}

func objections(packs judge.Packs, r judge.Reply, most map[judge.Name]int) []core.Objection {
	var all []core.Objection
	look := packs.Look(r)
	for _, name := range judge.Names {
		if most[name] == 0 {
			continue
		}
		if found := look.Find(name); found != "" {
			all = append(all, core.Objection{
				Judge: string(name), Found: found, Nudge: fmt.Sprintf(nudges[name], found), Most: most[name], WantsCalls: name != judge.Unverified,
			})
		}
	}
	return all
}

// check says what is wrong with an output; empty is nothing.
type check func(ctx context.Context, in sdk.RequirementInput) (wrong string, err error)

// gatesOf are the gates of an agent as one; nil is that it has none.
func gatesOf(a sdk.Agent) (func(context.Context, sdk.RequirementInput) ([]core.Objection, error), error) {
	gates := a.Spec.Answers.Require
	if len(gates) == 0 {
		return nil, nil
	}
	if len(gates) > sdk.MaxRequirements || a.Spec.Text == sdk.TextConverse {
		return nil, sdk.Errorf(sdk.CodeConfig, "answers: require: want at most %d gates, of an agent that does not converse", sdk.MaxRequirements)
	}
	checks := make([]check, len(gates))
	for i := range gates {
		g := &gates[i]
		unique := !slices.ContainsFunc(gates[:i], func(o sdk.Requirement) bool { return o.Name == g.Name })
		if g.Name == "" || !unique || g.Retries < 0 || g.Retries > mostRefusals {
			return nil, sdk.Errorf(sdk.CodeConfig, "answers: require[%d]: want a name of its own, and 0 to %d retries", i, mostRefusals)
		}
		var err error
		if checks[i], err = checkOf(a, g); err != nil {
			return nil, sdk.Errorf(sdk.CodeConfig, "answers: require: %s: %s", g.Name, sdk.AsError(err).Message)
		}
	}
	return func(ctx context.Context, in sdk.RequirementInput) ([]core.Objection, error) {
		var all []core.Objection
		for i := range gates {
			wrong, err := checks[i](ctx, in)
			if err != nil {
				return nil, fmt.Errorf("gate %s: %w", gates[i].Name, err)
			}
			if wrong != "" {
				all = append(all, gateOf(&gates[i]).Objection(wrong))
			}
		}
		return all, nil
	}, nil
}

// gateOf is a requirement as the core knows it.
func gateOf(r *sdk.Requirement) *core.AnswerGate {
	return &core.AnswerGate{Name: r.Name, Most: cmp.Or(r.Retries, sdk.DefaultRequirementRetries), Optional: r.Optional, Feedback: r.Feedback}
}

func checkOf(a sdk.Agent, g *sdk.Requirement) (check, error) {
	kinds := 0
	for _, is := range []bool{g.Schema != nil, g.When != "", g.Hook != ""} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds == 0 && asksService(a.Spec, g.Name):
		return func(context.Context, sdk.RequirementInput) (string, error) { return "", nil }, nil
	case kinds != 1 || asksService(a.Spec, g.Name):
		return nil, sdk.Errorf(sdk.CodeConfig, "want one of schema, when, hook and a service that is asked")
	case g.Schema != nil:
		return schemaGate(g.Schema)
	case g.When != "":
		return conditionGate(a.Spec.Name, g.When)
	}
	hook := a.Hooks.Requirements[g.Hook]
	if hook == nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "the gates of the agent's hooks have no function %q", g.Hook)
	}
	return func(ctx context.Context, in sdk.RequirementInput) (string, error) {
		err := hook(ctx, in)
		if err != nil && ctx.Err() == nil {
			return cmp.Or(err.Error(), "it is refused"), nil
		}
		return "", err
	}, nil
}

// asksService reports whether a service is asked about outputs for the requirement of that name.
func asksService(spec sdk.AgentSpec, requirement string) bool {
	return slices.ContainsFunc(spec.Services, func(s sdk.ServiceTool) bool {
		return s.Context != nil && s.Context.Section == sdk.AnswerSection(requirement)
	})
}

func schemaGate(raw json.RawMessage) (check, error) {
	s, err := schema.Compile(raw)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, in sdk.RequirementInput) (string, error) {
		var wrong []string
		for _, f := range s.Validate(in.Output) {
			wrong = append(wrong, f.String())
		}
		return strings.Join(wrong, "; "), nil
	}, nil
}

// conditionGate lets pass what a condition holds for. An output for which it cannot be evaluated does not pass.
func conditionGate(agent, when string) (check, error) {
	holds, err := expression.CompileGate(when)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, in sdk.RequirementInput) (string, error) {
		var output, input any
		if err := json.Unmarshal(in.Output, &output); err != nil {
			return "", fmt.Errorf("read output: %w", err)
		}
		if err := json.Unmarshal(in.Input, &input); err != nil {
			return "", fmt.Errorf("read input: %w", err)
		}
		if yes, ok := holds(map[string]any{"output": output, variableInput: input, variableRun: in.Run, variableAgent: agent}); !yes || !ok {
			return "it must satisfy " + when, nil
		}
		return "", nil
	}, nil
}
