package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentd/internal/contracts"
	"agentd/internal/expression"
	"agentd/internal/prompt"
	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// maxPrompt bounds a prompt in bytes: it is part of every model call.
	maxPrompt = 256 << 10
	// maxSpec bounds the canonical JSON of a spec in bytes: it is stored as one message, whose usual limit is 1 MiB.
	maxSpec = 768 << 10
	// inlineVersion is the version of contracts that are written in the agent's place.
	inlineVersion = "1.0.0"
)

// agentFile is what the file says of an agent. Most of it is in the words of the spec itself; the fields here take the place
// of those of the spec with the same name.
type agentFile struct {
	sdk.AgentSpec
	Contract     json.RawMessage `json:"contract"`
	Instructions struct {
		File     string   `json:"file"`
		Sections []string `json:"sections"`
	} `json:"instructions"`
	Guards      json.RawMessage `json:"guards"`
	Guidance    json.RawMessage `json:"guidance"`
	Permissions json.RawMessage `json:"permissions"`
	Hooks       []sdk.HookRule  `json:"hooks"`
	Tools       struct {
		Builtin   []string                              `json:"builtin"`
		Selection *sdk.Selection                        `json:"selection"`
		Aliases   map[string]string                     `json:"aliases"`
		Args      map[string]map[string]json.RawMessage `json:"args"`
		Undo      map[string]sdk.Undo                   `json:"undo"`
	} `json:"tools"`
	Limits struct {
		sdk.Limits
		Deadline        time.Duration `json:"deadline"`
		ModelTimeout    time.Duration `json:"model_timeout"`
		QuestionTimeout time.Duration `json:"question_timeout"`
	} `json:"limits"`
	Stop struct {
		sdk.StopConditions
		Interactions int           `json:"interactions"`
		Tokens       int64         `json:"tokens"`
		Deadline     time.Duration `json:"deadline"`
		Tools        []string      `json:"tools"`
		Loop         struct {
			Repeats int `json:"repeats"`
			Window  int `json:"window"`
		} `json:"loop"`
	} `json:"stop"`
}

// agents resolves them in two passes, so that any may use any other as a service.
func (l *loader) agents(list *strict.Node) {
	own := make([]*known, len(list.Items()))
	first := map[string]*strict.Node{}
	for i, n := range list.Items() {
		name := n.Get("name")
		token := wire.NameToken(name.Text())
		switch other, taken := first[token]; {
		case !taken || token == "":
			first[token] = name
		case other.Text() == name.Text():
			l.Faultf(name.Position, "two agents are named %q; the other is in line %d", name.Text(), other.Line)
		default:
			l.Faultf(name.Position, "agents %q (line %d) and %q have the same name in subjects: %s", other.Text(), other.Line, name.Text(), token)
		}
		k := l.ownContract(n)
		if own[i] = k; k == nil || token == "" {
			continue
		}
		if k.agent != "" {
			l.Faultf(n.Get("contract").Position, "agents %q and %q cannot both answer calls of type %s", k.agent, name.Text(), k.Type)
		} else {
			k.agent = name.Text()
		}
	}
	for i, n := range list.Items() {
		before := l.Count()
		spec := l.spec(n, own[i])
		if l.Count() == before {
			l.checkSize(n, spec)
		}
		l.cfg.Agents, l.cfg.stands[spec.Name] = append(l.cfg.Agents, spec), n.Position
	}
}

// ownContract finds or makes the contract that the agent itself serves.
func (l *loader) ownContract(n *strict.Node) *known {
	contract, name := n.Get("contract"), n.Get("name").Text()
	if contract.Present() && !contract.Mapping() {
		return l.reference(contract)
	}
	before := l.Count()
	schemas := []json.RawMessage{json.RawMessage(contracts.DefaultAccepts), json.RawMessage(contracts.DefaultEmits)}
	for i, key := range []string{"accepts", "emits"} {
		if s := contract.Get(key); s.Present() {
			l.Note(s, contracts.CheckSchema(s.JSON()))
			schemas[i] = s.JSON()
		}
	}
	if l.Count() > before || name == "" {
		l.broken = true
		return nil
	}
	k := &known{node: n, Contract: sdk.Contract{
		URI: wire.AgentURI(name), Type: name, Description: n.Get("description").Text(),
		Versions: map[string]sdk.ContractVersion{inlineVersion: {
			Accepts: schemas[0], Emits: map[string]json.RawMessage{name + ".done": schemas[1]},
		}},
	}}
	l.known = append(l.known, k)
	return k
}

// spec resolves one agent. It is not to be used when faults were noted.
func (l *loader) spec(n *strict.Node, own *known) sdk.AgentSpec {
	f := agentFile{}
	f.Text = sdk.TextOutput
	l.Decode(n, &f)
	s := f.AgentSpec
	if own != nil {
		l.ownVersion(n, own, &s)
	}
	l.model(n.Get("model"), &s.Model)
	if m := s.Memory; m != nil && m.Summarizer != nil {
		l.model(n.Get("memory").Get("summarizer"), m.Summarizer)
	}
	for role, m := range s.Plan.Models() {
		l.model(n.Get("plan").Get(role), m)
	}
	if review := n.Get("plan", "review"); review.Present() && s.Plan != nil {
		s.Plan.Review = l.review(review)
	}
	accepts := s.Contract.Versions[s.Version].Accepts // nil, as that of anything, where the contract has faults
	s.System = l.prompt(n.Get("system"), accepts)
	s.Prompt = l.prompt(n.Get("prompt"), accepts)
	s.Guidance = l.guidance(n.Get("guidance"), accepts)
	s.Instructions = l.instructions(n.Get("instructions"))
	l.overlays(n.Get("overlays"), s.Overlays, accepts)
	s.Guards = l.guards(n.Get("guards"))
	if s.OnStateLoss == sdk.StateLossFail {
		s.OnStateLoss = "" // as if it were left out: it is the same agent
	}
	if s.Model.Follow == sdk.FollowStart {
		s.Model.Follow = "" // likewise
	}
	templates[prompt.Data](l, n.Get("tools", "args"), accepts)
	templates[prompt.UndoData](l, n.Get("tools", "undo"), accepts)
	s.Aliases, s.Arguments, s.Undo = f.Tools.Aliases, f.Tools.Args, f.Tools.Undo
	s.Selection = f.Tools.Selection
	if s.Selection != nil && s.Selection.Embeddings != nil {
		l.provider(n.Get("tools", "selection", "embeddings"), &s.Selection.Embeddings.Provider)
	}
	s.Builtin, s.Rules, s.StopOn = f.Tools.Builtin, f.Hooks, append(s.StopOn, f.Stop.Tools...)
	s.Permissions = l.permissions(n.Get("permissions"))
	s.Limits, s.Stop = l.ends(n, &f)
	l.rules(n.Get("hooks"), s.Rules)
	l.tags(n.Get("tags"), s.Tags)
	l.agentServers(s.Name, n.Get("tools", "mcp"))
	l.tools(n, &s)
	return s
}

// ends are the limits and what else ends runs. What both can say must not be said twice.
func (l *loader) ends(n *strict.Node, f *agentFile) (sdk.Limits, sdk.StopConditions) {
	for _, name := range []string{"interactions", "tokens", "deadline"} {
		if n.Get("stop", name).Present() && n.Get("limits", name).Present() {
			l.Faultf(n.Get("stop", name).Position, "%s: stands in stop and in limits; say it once", name)
		}
	}
	limits := f.Limits.Limits
	limits.Interactions = cmp.Or(f.Stop.Interactions, limits.Interactions)
	limits.Tokens = cmp.Or(f.Stop.Tokens, limits.Tokens)
	limits.DeadlineMillis = cmp.Or(f.Stop.Deadline, f.Limits.Deadline).Milliseconds()
	limits.ModelTimeoutMillis = f.Limits.ModelTimeout.Milliseconds()
	limits.QuestionTimeoutMillis = f.Limits.QuestionTimeout.Milliseconds()
	stop := f.Stop.StopConditions
	stop.Repeats, stop.Window = f.Stop.Loop.Repeats, f.Stop.Loop.Window
	return limits, stop
}

func (l *loader) ownVersion(n *strict.Node, own *known, s *sdk.AgentSpec) {
	version, ok := l.resolve(own.Contract, n)
	if !ok {
		return
	}
	s.Contract, s.Version = contracts.Pin(own.Contract, version), version
	if emits := len(own.Versions[version].Emits); emits != 1 {
		l.Faultf(n.Get("contract").Position, "an agent answers with one type; version %s of contract %s emits %d", version, own.URI, emits)
	}
}

// model completes a model and those that stand in for it.
func (l *loader) model(n *strict.Node, m *sdk.ModelSpec) {
	l.provider(n, &m.Provider)
	if most := prompt.Reply(*m, m.MaxTokens); most < m.MaxTokens {
		l.cfg.unwise = append(l.cfg.unwise, strict.Fault{Position: n.Get("max_tokens").Position, Message: fmt.Sprintf(
			"replies of %s have at most %d tokens, half of its window; want a smaller max_tokens, or the context_window that it has", m.Name, most)})
	}
	for i := range m.Fallback {
		l.model(n.Get("fallback").Items()[i], &m.Fallback[i])
	}
}

// provider completes the provider of a model.
func (l *loader) provider(n *strict.Node, name *string) {
	*name = cmp.Or(*name, defaultProvider)
	if l.cfg.provider(*name) == nil {
		var names []string
		for _, p := range l.cfg.Models {
			names = append(names, p.Name)
		}
		l.Faultf(n.Get("provider").Position, "models: has no provider %q%s", *name, spelling.Suggest(*name, names))
	}
}

// standard is the value of guidance, or of a section of it, that comes with agentd.
const standard = "standard"

func (l *loader) guidance(n *strict.Node, accepts json.RawMessage) *sdk.Guidance {
	shipped := sdk.StandardGuidance()
	if !n.Present() {
		return nil
	}
	if !n.Mapping() {
		return &shipped
	}
	section := func(name, shipped string) string {
		if n.Get(name).Text() == standard {
			return shipped
		}
		return l.prompt(n.Get(name), accepts)
	}
	g := sdk.Guidance{
		Loop: section("loop", shipped.Loop), Capabilities: section("capabilities", shipped.Capabilities),
		Thinking: section("thinking", shipped.Thinking),
	}
	if g == (sdk.Guidance{}) {
		return nil
	}
	return &g
}

// guards reads them, or those of the set that is named.
func (l *loader) guards(n *strict.Node) *sdk.Guards {
	switch {
	case !n.Present():
		return nil
	case !n.Mapping():
		guards := sdk.SmallModelGuards
		return &guards
	}
	var guards sdk.Guards
	l.Decode(n, &guards)
	return &guards
}

// tags checks by what people find runs.
func (l *loader) tags(n *strict.Node, tags map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		_, err := expression.CompileTag(tags[key])
		l.Note(n.Get(key), err)
		l.Note(n.Get(key), wire.CheckTagKey(key))
	}
}

// rules checks hooks without code.
func (l *loader) rules(list *strict.Node, rules []sdk.HookRule) {
	for i, n := range list.Items() {
		r := rules[i]
		if r.When != "" {
			_, err := expression.CompileRule(r.When)
			l.Note(n.Get("when"), err)
		}
		if r.Message == "" && r.Only == nil && r.Hide == nil && r.Terminate == "" {
			l.Faultf(n.Position, "the hook does nothing: want message, only, hide or terminate")
		}
		if (r.Once || r.Cooldown != 0) && r.Message == "" {
			l.Faultf(n.Position, "cooldown and once: no message to remind of")
		}
		if r.Keep && r.Message == "" {
			l.Faultf(n.Get("keep").Position, "keep: no message to keep")
		}
	}
}

// prompt returns the text of a template over what the schema accepts, from its file where the value is a path.
func (l *loader) prompt(n *strict.Node, accepts json.RawMessage) string {
	body, at := n.Text(), n.TextAt
	if isPromptPath(body) {
		path := l.path(body)
		data, ok := l.readFile(n.Position, path)
		if !ok {
			return ""
		}
		body = string(data)
		at = func(line, column int) strict.Position { return strict.Position{File: path, Line: line, Column: column} }
	}
	if len(body) > maxPrompt {
		l.Faultf(at(1, 1), "the prompt has %d bytes; at most %d are allowed", len(body), maxPrompt)
		return body
	}
	for _, f := range prompt.Check[prompt.Data](body, accepts) {
		l.Faultf(at(f.Line, f.Column), "template: %s", f.Message)
	}
	return body
}

// templates checks the texts of a value, which are templates over D.
func templates[D any](l *loader, n *strict.Node, accepts json.RawMessage) {
	for _, item := range n.Items() {
		templates[D](l, item, accepts)
	}
	for _, f := range prompt.Check[D](n.Text(), accepts) {
		l.Faultf(n.TextAt(f.Line, f.Column), "template: %s", f.Message)
	}
}

func isPromptPath(value string) bool {
	if strings.Contains(value, "\n") {
		return false
	}
	return strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../") ||
		strings.HasSuffix(value, ".md") || strings.HasSuffix(value, ".txt")
}

func (l *loader) checkSize(n *strict.Node, s sdk.AgentSpec) {
	_, data, err := contracts.SpecDigest(s)
	l.Note(n, err)
	if len(data) > maxSpec {
		l.Faultf(n.Position, "the agent with its contracts and prompts has %d bytes; at most %d are allowed", len(data), maxSpec)
	}
}
