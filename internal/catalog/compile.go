package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentd/internal/contracts"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/schema"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// compile makes a runner.Agent of an agent, for runs that started with the spec ran. Everything that can be checked is checked here, not when a run needs it. away are
// the toolsets whose tools are not known. policy is the permission policy in force today, which counts beside that of the
// spec: the stricter ruling holds.
func (c *Catalog) compile(a sdk.Agent, ran sdk.AgentSpec, away []Away, policy *sdk.PermissionPolicy) (version, error) {
	m := making{catalog: c, declared: a, spec: a.Spec, ran: ran, policy: policy, into: &runner.Agent{}}
	compiled, err := m.agent()
	if err != nil {
		return version{}, err
	}
	if len(away) > 0 {
		compiled.Core.Missing = func(tool string) *sdk.Error { return missing(away, tool) }
	}
	return version{compiled, registered(a.Spec, compiled)}, nil
}

// summarizer is the model that writes summaries of an agent, and its name; nil where none does.
func summarizer(spec sdk.AgentSpec, own sdk.Provider, models Models) (sdk.Provider, string, error) {
	switch m := spec.Memory; {
	case m == nil || !m.Compact && m.Summarizer == nil:
		return nil, "", nil
	case m.Summarizer == nil:
		return own, spec.Model.Name, nil
	default:
		p, err := models(*m.Summarizer)
		return p, m.Summarizer.Name, err
	}
}

// outputOf is the one event type that an agent answers with.
func outputOf(own *contracts.Version) (string, *schema.Schema, error) {
	if len(own.Emits) != 1 {
		return "", nil, sdk.Errorf(sdk.CodeConfig, "an agent's contract emits exactly one type, this one %d", len(own.Emits))
	}
	for name, schema := range own.Emits {
		return name, schema, nil
	}
	return "", nil, nil
}

// modelKey names what is missing when neither a model nor its fallbacks can be asked: their providers, each of which is an account, and
// names. It is the token of a subject, and one that people can read.
func modelKey(spec sdk.ModelSpec) string {
	key := untokened.ReplaceAllString(spec.Provider+"_"+spec.Name, "_")
	plain := spec.Provider + "_" + spec.Name
	if key == plain && len(key) <= longestKey && len(spec.Fallback) == 0 {
		return key
	}
	hash := sha256.New()
	var add func(sdk.ModelSpec)
	add = func(s sdk.ModelSpec) {
		fmt.Fprintf(hash, "%s\x00%s\x00", s.Provider, s.Name)
		for _, f := range s.Fallback {
			add(f)
		}
	}
	add(spec)
	return fmt.Sprintf("%s-%x", key[:min(len(key), longestKey)], hash.Sum(nil)[:6])
}

// longestKey leaves room for a hash in a token.
const longestKey = 64

var untokened = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// parks are the codes of failures after which a run waits for its model.
func parks(spec sdk.ModelSpec) []sdk.Code {
	if spec.Park == nil {
		return sdk.ParkCodes
	}
	return spec.Park
}

func millis(value int64, fallback time.Duration) time.Duration {
	if value > 0 {
		return time.Duration(value) * time.Millisecond
	}
	return fallback
}

// leaseEnd is how much longer than its longest step a driver may be silent: more than two lapsed leases.
const leaseEnd = 30 * time.Second

func coreSpec(
	spec sdk.AgentSpec, digest, outputType string, tools *toolbox.Toolbox, inline []sdk.Tool,
) *core.Spec {
	s := &core.Spec{
		Name: spec.Name, Digest: digest, Type: spec.Contract.Type, OutputType: outputType,
		Schema:      sdk.SchemaRef(spec.Contract.URI, spec.Version),
		ErrorSchema: sdk.SchemaRef(spec.Contract.URI, "0.0.0"),
		Converse:    spec.Text == sdk.TextConverse,
		StopOn:      slices.Clone(spec.StopOn),
		MaxTurns:    cmp.Or(spec.Limits.Interactions, sdk.DefaultInteractions),
		RunDeadline: millis(spec.Limits.DeadlineMillis, sdk.DefaultRunDeadline).Milliseconds(),
		TurnTimeout: millis(spec.Limits.QuestionTimeoutMillis, sdk.DefaultQuestionTimeout).Milliseconds(),
		TurnSchema:  turnSchema, QuestionSchema: questionSchema,
	}
	for _, t := range tools.Callable() {
		tool := coreTool(t)
		switch t.Kind {
		case toolbox.Builtin:
			tool.Recalls = t == tools.ReadMore() || t.Finds
			s.Answers = s.Answers || t.Name == sdk.ToolAnswerChild
			if t.Name == toolbox.TaskCompletion {
				s.StopOn = append(s.StopOn, t.Name)
			}
		case toolbox.Inline:
			tool.AtMostOnce = inline[t.Index].AtMostOnce
		case toolbox.Service:
		}
		s.Tools = append(s.Tools, tool)
	}
	s.Contexts = append(contexts(tools), answerGates(spec, tools)...)
	return s
}

func coreTool(t *toolbox.Tool) core.Tool {
	tool := core.Tool{
		Name: t.Name, Kind: core.CallInline, Priority: t.Priority,
		Validate: func(arguments string) (json.RawMessage, []sdk.Fault) { return t.Validate(json.RawMessage(arguments)) },
	}
	if t.Kind == toolbox.Service {
		tool.Kind, tool.Type, tool.Schema = core.CallService, t.Contract.Type, t.SchemaRef()
		tool.Timeout, tool.ParentSubject = t.Timeout.Milliseconds(), t.NeedsParentSubject
		tool.Retry, tool.Agent, tool.Tokens = retry(t.Retry), t.Agent, t.Tokens
		tool.AsksCaller = t.Contract.Type == sdk.TypeParentQuestion
		if !slices.Equal(t.Domains, []string{""}) {
			tool.Domains = t.Domains
		}
	}
	return tool
}

func retry(r *sdk.Retry) core.Retry {
	if r == nil {
		return core.Retry{}
	}
	return core.Retry{
		Attempts: r.Attempts, Pause: millis(r.BackoffMillis, sdk.DefaultBackoff).Milliseconds(),
		Longest: millis(r.MaxBackoffMillis, sdk.DefaultMaxBackoff).Milliseconds(),
	}
}

// inline are the tools that run in the worker: the agent's own and the built-in ones.
func inline(tools *toolbox.Toolbox, own []sdk.Tool) map[string]sdk.Tool {
	runs := map[string]sdk.Tool{}
	for _, t := range tools.Callable() {
		switch t.Kind {
		case toolbox.Inline:
			runs[t.Name] = own[t.Index]
		case toolbox.Builtin:
			run := completeTask
			switch {
			case t.Name == sdk.ToolUpdatePlan:
				run = keepPlan
			case t.Name == sdk.ToolAnswerChild:
				run = keepAnswer
			case t.Name == sdk.ToolReadMore, t.Finds:
				run = nil // the runner has the results, and who chooses the tools
			}
			runs[t.Name] = sdk.Tool{Definition: t.Definition, Run: run}
		case toolbox.Service:
		}
	}
	return runs
}

// keepAnswer keeps the answer to an agent that was called: the core has it published.
func keepAnswer(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) { return call.Args, nil }

// completeTask hands the model's result on as the tool's own: the run stops on it and builds its output from it.
func completeTask(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
	var args struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the result cannot be read")
	}
	return args.Result, nil
}

// checkInput validates init events against the agent's contract. A dataschema, where there is one, must name it.
func checkInput(spec sdk.AgentSpec, accepts *schema.Schema) func(wire.Event) (json.RawMessage, *sdk.Error) {
	refuse := func(faults ...sdk.Fault) *sdk.Error {
		return &sdk.Error{
			Code: sdk.CodeContractViolation, Message: "the event does not fit the contract of agent " + spec.Name, Faults: faults,
		}
	}
	return func(ev wire.Event) (json.RawMessage, *sdk.Error) {
		if fault := checkSchemaRef(ev.DataSchema, spec.Contract.URI, spec.Version); fault != nil {
			problem := refuse(*fault)
			if uri, version, ok := contracts.ParseSchemaRef(ev.DataSchema); ok && wire.SameURI(uri, spec.Contract.URI) {
				problem.Code = sdk.CodeContractMissing
				problem.Message = fmt.Sprintf("agent %s does not serve version %s of its contract", spec.Name, version)
			}
			return nil, problem
		}
		data, faults := accepts.Admit(ev.Data)
		if len(faults) > 0 {
			return nil, refuse(faults...)
		}
		return data, nil
	}
}

// checkSchemaRef compares an event's dataschema with what it should name. An absent one is taken as right.
func checkSchemaRef(dataschema, uri, version string) *sdk.Fault {
	want := sdk.SchemaRef(uri, version)
	if dataschema == "" || wire.SameURI(dataschema, want) {
		return nil
	}
	return &sdk.Fault{Path: "$.dataschema", Expected: want, Got: strings.TrimSpace(dataschema)}
}
