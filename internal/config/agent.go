package config

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

const (
	// maxPrompt bounds a prompt in bytes: it is part of every model call.
	maxPrompt = 256 << 10
	// maxSpec bounds the canonical JSON of a spec in bytes: it is stored as one message, whose usual limit is 1 MiB.
	maxSpec = 768 << 10
	// inlineVersion is the version of contracts that are written in the agent's place.
	inlineVersion = "1.0.0"
)

// What an agent accepts and emits that does not say so.
const (
	defaultAccepts = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`
	defaultEmits   = `{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`
)

// agents resolves them in two passes, so that any may use any other as a service.
func (l *loader) agents(files []agentFile) {
	own := make([]*known, len(files))
	for i := range files {
		f := &files[i]
		if !f.Name.Present() {
			l.Faultf(f.At, "an agent needs a name")
		} else {
			l.Note(f.Name.Position, wire.CheckName(f.Name.V))
		}
		if own[i] = l.ownContract(f); own[i] != nil && f.Name.Present() {
			l.serve(f, own[i])
		}
	}
	l.checkAgentNames(files)
	for i := range files {
		before := l.Count()
		spec := l.spec(&files[i], own[i])
		if l.Count() == before {
			l.checkSize(&files[i], spec)
		}
		l.cfg.Agents = append(l.cfg.Agents, spec)
	}
}

func (l *loader) serve(f *agentFile, k *known) {
	if k.agent != "" {
		l.Faultf(f.Contract.Position, "agents %q and %q cannot both answer calls of type %s", k.agent, f.Name.V, k.Type)
		return
	}
	k.agent = f.Name.V
}

func (l *loader) checkAgentNames(files []agentFile) {
	first := map[string]words{}
	for _, f := range files {
		token := wire.NameToken(f.Name.V)
		if other, taken := first[token]; taken && token != "" {
			l.Faultf(f.Name.Position, "agents %q (line %d) and %q have the same name in subjects: %s",
				other.V, other.Line, f.Name.V, token)
			continue
		}
		first[token] = f.Name
	}
}

// ownContract finds or makes the contract that the agent itself serves.
func (l *loader) ownContract(f *agentFile) *known {
	if f.Contract.Scalar() {
		var name words
		l.Decode(f.Contract, &name)
		return l.reference(name)
	}
	inline := contractFile{}
	l.Decode(f.Contract, &inline)
	before := l.Count()
	contracts.CheckSchema(&l.Reader, "accepts", inline.Accepts)
	contracts.CheckSchema(&l.Reader, "emits", inline.Emits)
	if l.Count() > before || wire.CheckName(f.Name.V) != nil {
		l.broken = true
		return nil
	}
	accepts, emits := inline.Accepts.Raw, inline.Emits.Raw
	if accepts == nil {
		accepts = json.RawMessage(defaultAccepts)
	}
	if emits == nil {
		emits = json.RawMessage(defaultEmits)
	}
	k := &known{at: f.At, Contract: sdk.Contract{
		URI: "#/agent/" + f.Name.V, Type: f.Name.V, Description: f.Description.V,
		Versions: map[string]sdk.ContractVersion{inlineVersion: {
			Accepts: accepts, Emits: map[string]json.RawMessage{f.Name.V + ".done": emits},
		}},
	}}
	l.known = append(l.known, k)
	return k
}

// spec resolves one agent. It is not to be used when faults were noted.
func (l *loader) spec(f *agentFile, own *known) sdk.AgentSpec {
	s := sdk.AgentSpec{Name: f.Name.V, Description: f.Description.V, History: f.History.V, Text: sdk.TextOutput}
	if own != nil {
		l.ownVersion(f, own, &s)
	}
	if f.Model == nil {
		l.Faultf(f.At, "an agent needs a model")
	} else {
		s.Model = l.model(f.Model)
	}
	s.System = l.prompt("system", f.System)
	s.Prompt = l.prompt("prompt", f.Prompt)
	l.memory(f, &s)
	if f.Text.Present() {
		s.Text = sdk.TextMode(f.Text.V)
		l.Note(f.Text.Position, checkOneOf("text", f.Text.V, string(sdk.TextOutput), string(sdk.TextConverse)))
	}
	s.Permissions = l.permissions(f.Permissions)
	l.agentServers(f)
	if f.OnStateLoss.Present() {
		l.Note(f.OnStateLoss.Position, checkOneOf("on_state_loss", f.OnStateLoss.V, string(sdk.StateLossFail), string(sdk.StateLossRestart)))
		if s.OnStateLoss = sdk.StateLoss(f.OnStateLoss.V); s.OnStateLoss == sdk.StateLossFail {
			s.OnStateLoss = "" // as if it were left out: it is the same agent
		}
	}
	l.limits(f, &s.Limits)
	l.loop(f, &s)
	l.tools(f, &s)
	return s
}

// memory reads what is said to the model of itself, and how much of the conversation.
func (l *loader) memory(f *agentFile, s *sdk.AgentSpec) {
	guidance := sdk.Guidance{
		Loop:         l.prompt("loop", f.Guidance.Loop),
		Capabilities: l.prompt("capabilities", f.Guidance.Capabilities),
		Thinking:     l.prompt("thinking", f.Guidance.Thinking),
	}
	if guidance != (sdk.Guidance{}) {
		s.Guidance = &guidance
	}
	window, compact := f.Memory.Window, f.Memory.Compact
	switch {
	case window.Present() && window.V < 1:
		l.Faultf(window.Position, "memory.window: want at least 1 token, got %d", window.V)
	case window.Present():
		s.Memory = &sdk.Memory{Window: window.V, Compact: compact.V}
	case compact.V:
		l.Faultf(compact.Position, "memory.compact needs a memory.window")
	}
}

func (l *loader) ownVersion(f *agentFile, own *known, s *sdk.AgentSpec) {
	at := f.At
	if f.Contract.Line > 0 {
		at = f.Contract.Position
	}
	version, ok := l.resolve(own.Contract, f.Version, at)
	if !ok {
		return
	}
	s.Contract, s.Version = contracts.Pin(own.Contract, version), version
	if n := len(own.Versions[version].Emits); n != 1 {
		l.Faultf(at, "an agent answers with one type; version %s of contract %s emits %d", version, own.URI, n)
	}
}

func (l *loader) limits(f *agentFile, limits *sdk.Limits) {
	if n := f.Limits.Interactions; n.Present() && n.V < 1 {
		l.Faultf(n.Position, "interactions: want at least 1, got %d", n.V)
	}
	limits.Interactions, limits.Tokens = f.Limits.Interactions.V, int64(f.Limits.Tokens.V)
	for _, d := range []struct {
		from duration
		to   *int64
	}{
		{f.Limits.Deadline, &limits.DeadlineMillis},
		{f.Limits.ModelTimeout, &limits.ModelTimeoutMillis},
		{f.Limits.QuestionTimeout, &limits.QuestionTimeoutMillis},
	} {
		*d.to = l.millis(d.from)
	}
}

// millis refuses what would round to zero, which means the default.
func (l *loader) millis(d duration) int64 {
	if d.Present() && d.V < time.Millisecond {
		l.Faultf(d.Position, "want at least 1ms, got %s", d.V)
	}
	return d.V.Milliseconds()
}

func (l *loader) model(f *modelFile) sdk.ModelSpec {
	m := sdk.ModelSpec{
		Provider: f.Provider.Or(defaultProvider), Name: f.Name.V, MaxTokens: f.MaxTokens.V, MaxBytes: int64(f.MaxBytes.V),
		UnitsPerPromptToken:     l.units(f.UnitsPerPromptToken),
		UnitsPerCompletionToken: l.units(f.UnitsPerCompletionToken),
	}
	if m.Name == "" {
		l.Faultf(f.At, "a model needs a name")
	}
	if l.cfg.provider(m.Provider) == nil {
		names := make([]string, len(l.cfg.Models))
		for i, p := range l.cfg.Models {
			names[i] = p.Name
		}
		l.Faultf(f.Provider.Position, "unknown model provider %q; models: has %s", m.Provider, strings.Join(names, ", "))
	}
	if f.Temperature.Present() {
		m.Temperature = &f.Temperature.V
		if t := f.Temperature.V; !(t >= 0 && t <= 2) {
			l.Faultf(f.Temperature.Position, "temperature: want 0 to 2, got %v", t)
		}
	}
	if f.MaxTokens.V < 0 {
		l.Faultf(f.MaxTokens.Position, "max_tokens: want at least 0, got %d", f.MaxTokens.V)
	}
	if f.MaxBytes.V < 0 {
		l.Faultf(f.MaxBytes.Position, "max_bytes: want at least 0, got %d", f.MaxBytes.V)
	}
	if f.ToolCalls.Present() {
		m.ToolCalls = sdk.ToolCallMode(f.ToolCalls.V)
		l.Note(f.ToolCalls.Position, checkOneOf("tool_calls", f.ToolCalls.V, string(sdk.ToolCallsNative), string(sdk.ToolCallsText)))
	}
	m.Thinking = f.Thinking.V
	for _, code := range f.On {
		m.On = append(m.On, sdk.Code(code.V))
		l.Note(code.Position, checkOneOf("on", code.V, string(sdk.CodeRateLimited), string(sdk.CodeUnavailable),
			string(sdk.CodeModel), string(sdk.CodeConfig)))
	}
	for i := range f.Fallback {
		m.Fallback = append(m.Fallback, l.model(&f.Fallback[i]))
	}
	return m
}

func (l *loader) units(text words) sdk.Units {
	if !text.Present() {
		return 0
	}
	u, err := wire.ParseUnits(text.V)
	if err == nil && u < 0 {
		err = sdk.Errorf(sdk.CodeConfig, "execution units %s: want at least 0", text.V)
	}
	l.Note(text.Position, err)
	return u
}

// prompt returns the text of a template, from its file where the value is a path.
func (l *loader) prompt(name string, value words) string {
	body, at, inFile := value.V, value.Position, isPromptPath(value.V)
	if inFile {
		path := l.path(value.V)
		data, ok := l.readFile(at, path)
		if !ok {
			return ""
		}
		body, at = string(data), strict.Position{File: path}
	}
	if len(body) > maxPrompt {
		l.Faultf(at, "the %s prompt has %d bytes; at most %d are allowed", name, len(body), maxPrompt)
		return body
	}
	if _, err := template.New(name).Parse(body); err != nil {
		line, message := templateFault(err)
		if inFile {
			at.Line = line
		} else {
			message = "line " + strconv.Itoa(line) + " of the text: " + message
		}
		l.Faultf(at, "%s template: %s", name, message)
	}
	return body
}

func isPromptPath(value string) bool {
	if strings.Contains(value, "\n") {
		return false
	}
	return strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../") ||
		strings.HasSuffix(value, ".md") || strings.HasSuffix(value, ".txt")
}

var templateError = regexp.MustCompile(`^template: [^:]*:(\d+)(?::\d+)?: (.*)$`)

func templateFault(err error) (line int, message string) {
	m := templateError.FindStringSubmatch(err.Error())
	if m == nil {
		return 1, err.Error()
	}
	line, _ = strconv.Atoi(m[1]) // digits by the pattern
	return cmp.Or(line, 1), m[2]
}

func (l *loader) checkSize(f *agentFile, s sdk.AgentSpec) {
	_, data, err := contracts.SpecDigest(s)
	l.Note(f.At, err)
	if len(data) > maxSpec {
		l.Faultf(f.At, "the agent with its contracts and prompts has %d bytes; at most %d are allowed", len(data), maxSpec)
	}
}
