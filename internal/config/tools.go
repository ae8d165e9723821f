package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk/wire"

	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// tools resolves the services of an agent and checks the names of all its tools.
func (l *loader) tools(f *agentFile, s *sdk.AgentSpec) {
	before := l.Count()
	var services, builtin []strict.Position
	for i := range f.Tools.Services {
		tool, ok := l.service(&f.Tools.Services[i], f.Name.V)
		if !ok {
			continue
		}
		s.Services = append(s.Services, tool)
		if !contracts.IsReference(tool) {
			services = append(services, f.Tools.Services[i].At)
		}
	}
	missing := len(s.Services) < len(f.Tools.Services)
	services = append(services, l.context(f, s)...)
	for _, name := range f.Tools.Builtin {
		s.Builtin = append(s.Builtin, name.V)
		builtin = append(builtin, name.Position)
	}
	for _, name := range f.stopOn() {
		s.StopOn = append(s.StopOn, name.V)
	}
	known, complete := contracts.Resolved(*s)
	toolbox, err := contracts.Tools(known, nil)
	if err != nil {
		l.toolFaults(sdk.AsError(err), services, builtin)
	}
	if !complete || l.Count() > before || missing {
		return // the tools are not all known, so stop_on cannot be judged
	}
	for _, name := range f.stopOn() {
		if _, ok := toolbox.ByName(name.V); !ok && !f.usesServerOf(name.V) {
			l.Faultf(name.Position, "stop_on: %q is no tool of the agent; there is %s", name.V, toolNames(toolbox))
		}
	}
}

func toolNames(b *contracts.Toolbox) string {
	var names []string
	for _, t := range b.All() {
		names = append(names, t.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

var toolPath = regexp.MustCompile(`^\$\.(services|builtin)\[(\d+)\]`)

// toolFaults puts the faults of contracts.Tools where the tools stand in the file.
func (l *loader) toolFaults(err *sdk.Error, services, builtin []strict.Position) {
	for _, fault := range err.Faults {
		m := toolPath.FindStringSubmatch(fault.Path)
		if m == nil {
			l.Faultf(strict.Position{File: l.cfg.File}, "%s", fault)
			continue
		}
		i, _ := strconv.Atoi(m[2]) // digits by the pattern, and an index of what was given
		at := services
		if m[1] == "builtin" {
			at = builtin
		}
		l.Faultf(at[i], "expected %s, got %s", fault.Expected, fault.Got)
	}
}

// retry is nil where the file has none.
func (l *loader) retry(f *serviceFile) *sdk.Retry {
	r := &f.Retry
	if !r.Attempts.Present() && !r.Backoff.Present() && !r.MaxBackoff.Present() {
		return nil
	}
	return &sdk.Retry{
		Attempts: r.Attempts.V, BackoffMillis: l.millis(r.Backoff), MaxBackoffMillis: l.millis(r.MaxBackoff),
	}
}

// service resolves one service; it is not ok when there is no contract to go on with. One that is in no file is left as a
// reference to the registry.
func (l *loader) service(f *serviceFile, agent string) (sdk.ServiceTool, bool) {
	tool := sdk.ServiceTool{
		As: f.As.V, Description: f.Description.V, Priority: f.Priority.V, TimeoutMillis: l.millis(f.Timeout),
		Agent: f.Agent.V, Tokens: int64(f.Tokens.V),
	}
	tool.Retry = l.retry(f)
	tool.Domains = l.serviceDomains(f)
	if f.Contract.V == "" {
		l.Faultf(f.At, "a service needs a contract")
		return tool, false
	}
	if !isContractPath(f.Contract.V) && l.find(f.Contract.V) == nil {
		return l.registered(f, agent, tool)
	}
	k := l.reference(f.Contract)
	if k == nil {
		return tool, false
	}
	version, ok := l.resolve(k.Contract, f.Version, f.Contract.Position)
	if !ok {
		return tool, false
	}
	tool.Contract, tool.Version = contracts.Pin(k.Contract, version), version
	tool.Agent = tool.Agent || k.agent != ""
	return tool, true
}

// serviceDomains reads the lanes of a service's calls; "local" is the one of calls without a domain.
func (l *loader) serviceDomains(f *serviceFile) []string {
	domains := f.Domains
	if f.Domain.Present() {
		if len(domains) > 0 {
			l.Faultf(f.Domain.Position, "domain and domains exclude each other")
		}
		domains = []words{f.Domain}
	}
	var names []string
	for _, d := range domains {
		l.domain(d)
		if d.V == wire.LocalDomain {
			d.V = ""
		}
		if slices.Contains(names, d.V) {
			l.Faultf(d.Position, "domain %q is listed twice", cmp.Or(d.V, wire.LocalDomain))
		}
		names = append(names, d.V)
	}
	return names
}

// registered makes a tool a reference to the registry.
func (l *loader) registered(f *serviceFile, agent string, tool sdk.ServiceTool) (sdk.ServiceTool, bool) {
	if l.broken {
		return tool, false // the contract may be in the file that has faults
	}
	tool.Version = f.Version.V
	if isURI(f.Contract.V) {
		tool.Contract.URI = f.Contract.V
	} else {
		tool.Contract.Type = f.Contract.V
	}
	if err := contracts.CheckReference(tool); err != nil {
		l.Note(f.Contract.Position, err)
		return tool, false
	}
	l.cfg.References = append(l.cfg.References, Reference{
		Position: f.Contract.Position, Agent: agent, Contract: f.Contract.V, Range: f.Version.Or(contracts.Latest),
	})
	return tool, true
}

// checkCollisions refuses contracts that would share a URI, a type or a subject token.
func (l *loader) checkCollisions() {
	uris, types := map[string]*known{}, map[string]*known{}
	for _, k := range l.known {
		if other, taken := uris[k.URI]; taken {
			l.Faultf(k.at, "contract %s is already defined in %s", k.URI, other.at)
		} else {
			uris[k.URI] = k
			l.checkType(k, types)
		}
	}
}

func (l *loader) checkType(k *known, types map[string]*known) {
	token := wire.NameToken(k.Type)
	other, taken := types[token]
	switch {
	case !taken:
		types[token] = k
	case other.Type == k.Type:
		l.Faultf(k.at, "type %s is already the one of contract %s in %s", k.Type, other.URI, other.at)
	default:
		l.Faultf(k.at, "types %s and %s (%s) have the same name in subjects: %s", k.Type, other.Type, other.at, token)
	}
}
