package toolbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/sdk"
)

// Kind says how a tool is run.
type Kind string

// The kinds of tools.
const (
	Service Kind = "service" // over the broker, by contract; ask_question is one
	Inline  Kind = "inline"  // inside the worker
	Builtin Kind = "builtin" // by agentd itself: task_completion, update_plan, read_more, and those that find tools
)

// Tool is a tool of an agent. It must not be modified.
type Tool struct {
	// Name is what the model knows the tool by.
	Name       string
	Kind       Kind
	Definition sdk.ToolDefinition
	Priority   int
	// Timeout bounds one call.
	Timeout time.Duration

	// Contract, with Version alone, and Domains are of service tools. Domains has at least one; "" is the local lane.
	Contract sdk.Contract
	Version  string
	Domains  []string
	// Retry is nil for one attempt.
	Retry *sdk.Retry
	// Agent says that an agent answers; Tokens bounds what a call may use, unless 0.
	Agent  bool
	Tokens int64
	// NeedsParentSubject says that the contract wants the caller's subject as sdk.ParentSubjectField, which the model is
	// not shown.
	NeedsParentSubject bool

	// Index is the place of an inline tool in the list that New was given; -1 for others.
	Index int
	// Context is set of a service that is asked for a section of the prompt. Its Name is the section.
	Context *sdk.ContextUse

	// Finds says that it shows the model other tools, which it is offered from then on: those of Category, or those that it asks for.
	Finds    bool
	Category *sdk.ToolCategory

	// Set are the arguments that the agent sets, in order: the model is not shown them.
	Set []string

	// arguments is what calls are held to: the contract's accepts without sdk.ParentSubjectField. description is the definition's without
	// what arguments adds to it.
	arguments   *schema.Schema
	description string
	emits       map[string]*schema.Schema
}

// Toolbox holds the tools of one agent, in the order in which models are shown them: services, built-in, inline.
type Toolbox struct {
	tools  []*Tool
	byName map[string]*Tool
	byType map[string]*Tool
	// context are the services that are asked for sections of the prompt, which are not tools.
	context []*Tool
	// readMore is what ReadMore returns.
	readMore *Tool
}

// New compiles the tools of an agent. inline are the tools that run in the worker. The error is CodeConfig and lists
// everything that is wrong, among it names that two tools would share.
func New(spec sdk.AgentSpec, inline []sdk.Tool) (*Toolbox, error) {
	b := &Toolbox{byName: map[string]*Tool{}, byType: map[string]*Tool{}}
	owners := map[string]string{sdk.ToolReadMore: "the built-in tool that every agent has for its results"}
	var faults []sdk.Fault
	add := func(path, owner string, t *Tool, err error) {
		if err != nil {
			faults = append(faults, faultsOf(path, err)...)
			return
		}
		if other, taken := owners[t.Name]; taken {
			faults = append(faults, sdk.Fault{
				Path: path, Expected: "a tool name of its own", Got: fmt.Sprintf("%q for %s and %s", t.Name, other, owner),
			})
			return
		}
		owners[t.Name] = owner
		faults = append(faults, t.hide("$.arguments."+t.Name, spec.Arguments[t.Name])...)
		b.tools, b.byName[t.Name] = append(b.tools, t), t
		if t.Kind == Service && b.byType[t.Contract.Type] == nil {
			b.byType[t.Contract.Type] = t
		}
	}
	for i, s := range spec.Services {
		if s.Context != nil {
			faults = append(faults, b.addContext(fmt.Sprintf("$.services[%d]", i), s, answerSections(spec))...)
			continue
		}
		t, err := serviceTool(s)
		add(fmt.Sprintf("$.services[%d]", i), "contract "+s.Contract.Type, t, err)
	}
	for i, name := range spec.Builtin {
		t, err := builtinTool(name, spec.Limits)
		add(fmt.Sprintf("$.builtin[%d]", i), "built-in tool "+name, t, err)
	}
	for i := range inline {
		t, err := inlineTool(inline[i], i)
		owner := "inline tool " + inline[i].Definition.Name
		if set := inline[i].Definition.Server; set != "" {
			owner = "toolset " + set
		}
		add(fmt.Sprintf("$.inline[%d]", i), owner, t, err)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Undo)) {
		if t, ok := b.byName[spec.Undo[name].Tool]; ok {
			faults = append(faults, t.undeclared("$.undo."+name+".args", spec.Undo[name].Args)...)
		}
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "the tools of agent " + spec.Name + " cannot be used", Faults: faults}
	}
	if len(b.tools) == 0 {
		return b, nil
	}
	if err := b.addFinders(spec, owners); err != nil {
		return nil, err
	}
	var err error
	b.readMore, err = builtinTool(sdk.ToolReadMore, spec.Limits)
	return b, err
}

func faultsOf(path string, err error) []sdk.Fault {
	e := sdk.AsError(err)
	if len(e.Faults) == 0 {
		return []sdk.Fault{{Path: path, Expected: "a tool that can be used", Got: e.Message}}
	}
	faults := slices.Clone(e.Faults)
	for i := range faults {
		faults[i].Path = path + strings.TrimPrefix(faults[i].Path, "$")
	}
	return faults
}

func serviceTool(s sdk.ServiceTool) (*Tool, error) {
	if err := checkRetry(s.Retry); err != nil {
		return nil, err
	}
	if s.Tokens < 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
			Path: "$.tokens", Expected: "at least 0 tokens", Got: fmt.Sprint(s.Tokens),
		}}}
	}
	version, err := contracts.CompileVersion(s.Contract, s.Version)
	if err != nil {
		return nil, err
	}
	t := &Tool{
		Name: Name(s.Contract.Type), Kind: Service, Priority: s.Priority,
		Definition: sdk.ToolDefinition{Description: s.Contract.Description},
		Timeout:    sdk.DefaultCallTimeout,
		Contract:   contracts.Pin(s.Contract, s.Version), Version: s.Version, Domains: slices.Clone(s.Domains),
		emits: version.Emits, Retry: s.Retry, Agent: s.Agent || s.Tokens > 0, Tokens: s.Tokens,
	}
	if s.As != "" {
		t.Name = Name(s.As)
	}
	if s.Description != "" {
		t.Definition.Description = s.Description
	}
	if s.TimeoutMillis > 0 {
		t.Timeout = time.Duration(s.TimeoutMillis) * time.Millisecond
	}
	if len(t.Domains) == 0 {
		t.Domains = []string{s.Contract.Domain}
	}
	accepts, err := version.Accepts.InlineRoot()
	if err != nil {
		return nil, err
	}
	var arguments json.RawMessage
	arguments, t.NeedsParentSubject = accepts.WithoutProperty(sdk.ParentSubjectField)
	return newTool(t, arguments)
}

func checkRetry(r *sdk.Retry) error {
	if r == nil {
		return nil
	}
	var faults []sdk.Fault
	if r.Attempts < 1 || r.Attempts > sdk.MaxAttempts {
		faults = append(faults, sdk.Fault{
			Path: "$.retry.attempts", Expected: fmt.Sprintf("1 to %d attempts in all", sdk.MaxAttempts), Got: fmt.Sprint(r.Attempts),
		})
	}
	if r.BackoffMillis < 0 || r.MaxBackoffMillis != 0 && r.MaxBackoffMillis < r.BackoffMillis {
		faults = append(faults, sdk.Fault{
			Path: "$.retry.max_backoff", Expected: "no less than the backoff",
			Got: fmt.Sprintf("%d ms after %d ms", r.MaxBackoffMillis, r.BackoffMillis),
		})
	}
	if len(faults) > 0 {
		return &sdk.Error{Code: sdk.CodeConfig, Faults: faults}
	}
	return nil
}

func inlineTool(tool sdk.Tool, index int) (*Tool, error) {
	t := &Tool{
		Name: Name(tool.Definition.Name), Kind: Inline, Priority: tool.Priority, Index: index,
		Definition: sdk.ToolDefinition{Description: tool.Definition.Description, Server: tool.Definition.Server},
		Timeout:    tool.Timeout,
	}
	if t.Timeout == 0 {
		t.Timeout = sdk.DefaultToolTimeout
	}
	parameters := tool.Definition.Parameters
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type": "object"}`)
	}
	return newTool(t, parameters)
}

// newTool completes t with what follows from the schema of its arguments.
func newTool(t *Tool, arguments json.RawMessage) (*Tool, error) {
	if t.Kind != Inline {
		t.Index = -1
	}
	var faults []sdk.Fault
	if t.arguments, faults = schema.CompileObject(arguments, "$"); len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Faults: faults}
	}
	var err error
	if t.arguments, err = t.arguments.InlineRoot(); err != nil {
		return nil, err
	}
	t.description = t.Definition.Description
	return t, t.define()
}

// define makes the definition that models are shown.
func (t *Tool) define() error {
	shown, err := t.arguments.ForModels(t.Set...)
	if err != nil {
		return err
	}
	t.Definition.Name, t.Definition.Parameters = t.Name, shown.Parameters
	t.Definition.Description = strings.TrimSpace(t.description + "\n\n" + shown.Conditions)
	return nil
}

// hide keeps the arguments that the agent sets from models, and returns those that the tool does not take.
func (t *Tool) hide(path string, set map[string]json.RawMessage) []sdk.Fault {
	if len(set) == 0 {
		return nil
	}
	faults := t.undeclared(path, set)
	t.Set = slices.Sorted(maps.Keys(set))
	if err := t.define(); err != nil {
		faults = append(faults, faultsOf(path, err)...)
	}
	return faults
}

// undeclared are the arguments that the tool does not take.
func (t *Tool) undeclared(path string, args map[string]json.RawMessage) []sdk.Fault {
	var root struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional *bool                      `json:"additionalProperties"`
	}
	_ = json.Unmarshal(t.arguments.Raw(), &root) // additionalProperties may be a schema, which is open
	var faults []sdk.Fault
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if _, declared := root.Properties[name]; !declared && root.Additional != nil && !*root.Additional {
			faults = append(faults, sdk.Fault{Path: path + "." + name, Expected: "an argument that " + t.Name + " takes", Got: fmt.Sprintf("%q", name)})
		}
	}
	return faults
}

// All returns the tools in the order in which models are shown them.
func (b *Toolbox) All() []*Tool { return slices.Clone(b.tools) }

// Callable returns All and ReadMore.
func (b *Toolbox) Callable() []*Tool {
	if b.readMore == nil {
		return b.All()
	}
	return append(b.All(), b.readMore)
}

// ReadMore is the built-in tool that shows more of a result, which every agent with tools has beside its own: models are shown it
// once a result was cut. Nil for an agent without tools.
func (b *Toolbox) ReadMore() *Tool { return b.readMore }

// Definitions returns what a model is shown, in a stable order.
func (b *Toolbox) Definitions() []sdk.ToolDefinition {
	definitions := make([]sdk.ToolDefinition, 0, len(b.tools))
	for _, t := range b.tools {
		definitions = append(definitions, t.Definition)
	}
	return definitions
}

// ByName finds a tool by the name that the model uses.
func (b *Toolbox) ByName(name string) (*Tool, bool) {
	t, ok := b.byName[name]
	return t, ok
}

// Name is the name that the model uses for a contract's type; the first in order where several tools are of that type.
func (b *Toolbox) Name(contractType string) (string, bool) {
	t, ok := b.byType[contractType]
	if !ok {
		return "", false
	}
	return t.Name, true
}

// Validate returns the canonical form of the arguments of a call, with defaults filled in, or every fault. No arguments
// at all are an empty object.
func (t *Tool) Validate(args json.RawMessage) (json.RawMessage, []sdk.Fault) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage(`{}`)
	}
	return t.arguments.Admit(args)
}

// Arguments is the JSON Schema that the model's arguments are held to. It must not be modified.
func (t *Tool) Arguments() json.RawMessage { return t.arguments.Raw() }

// Answer validates the data of an answer of that event type. Unknown says that the contract does not emit the type; the
// system error of the contract is unknown too.
func (t *Tool) Answer(eventType string, data json.RawMessage) (faults []sdk.Fault, unknown bool) {
	schema, ok := t.emits[eventType]
	if !ok {
		return nil, true
	}
	return schema.Validate(data), false
}

// SchemaRef is the dataschema of a call.
func (t *Tool) SchemaRef() string { return sdk.SchemaRef(t.Contract.URI, t.Version) }
