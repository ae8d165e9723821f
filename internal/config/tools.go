package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// tools resolves the services of an agent and checks the names of all its tools.
func (l *loader) tools(f *agentFile, s *sdk.AgentSpec) {
	before := l.Count()
	var services, builtin []strict.Position
	for i := range f.Tools.Services {
		if tool, ok := l.service(&f.Tools.Services[i]); ok {
			s.Services = append(s.Services, tool)
			services = append(services, f.Tools.Services[i].At)
		}
	}
	for _, name := range f.Tools.Builtin {
		s.Builtin = append(s.Builtin, name.V)
		builtin = append(builtin, name.Position)
	}
	for _, name := range f.StopOn {
		s.StopOn = append(s.StopOn, name.V)
	}
	toolbox, err := contracts.Tools(*s, nil)
	if err != nil {
		l.toolFaults(sdk.AsError(err), services, builtin)
	}
	if l.Count() > before || len(s.Services) < len(f.Tools.Services) {
		return // the tools are not all known, so stop_on cannot be judged
	}
	for _, name := range f.StopOn {
		if _, ok := toolbox.ByName(name.V); !ok {
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

// service resolves one service; it is not ok when there is no contract to go on with.
func (l *loader) service(f *serviceFile) (sdk.ServiceTool, bool) {
	tool := sdk.ServiceTool{
		As: f.As.V, Description: f.Description.V, Priority: f.Priority.V, TimeoutMillis: l.millis(f.Timeout),
	}
	tool.Retry = l.retry(f)
	domains := f.Domains
	if f.Domain.Present() {
		if len(domains) > 0 {
			l.Faultf(f.Domain.Position, "domain and domains exclude each other")
		}
		domains = []words{f.Domain}
	}
	for _, d := range domains {
		l.Note(d.Position, sdk.CheckDomain(d.V))
		if slices.Contains(tool.Domains, d.V) {
			l.Faultf(d.Position, "domain %q is listed twice", d.V)
		}
		tool.Domains = append(tool.Domains, d.V)
		l.domains = append(l.domains, d)
	}
	if f.Contract.V == "" {
		l.Faultf(f.At, "a service needs a contract")
		return tool, false
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
	return tool, true
}

// checkCollisions refuses contracts that would share a URI, a type or a subject token, and domains that would share one.
func (l *loader) checkCollisions() {
	uris, types, domains := map[string]*known{}, map[string]*known{}, map[string]string{}
	domain := func(at strict.Position, name string) {
		token := sdk.DomainToken(name)
		other, taken := domains[token]
		switch {
		case name == sdk.LocalDomain:
			l.Faultf(at, "domain %q is the lane of calls without a domain: leave the domain out", name)
		case !taken:
			domains[token] = name
		case other != name:
			l.Faultf(at, "domains %q and %q have the same name in subjects: %s", other, name, token)
		}
	}
	for _, k := range l.known {
		if other, taken := uris[k.URI]; taken {
			l.Faultf(k.at, "contract %s is already defined in %s", k.URI, other.at)
		} else {
			uris[k.URI] = k
			l.checkType(k, types)
		}
		domain(k.at, k.Domain)
	}
	for _, d := range l.domains {
		domain(d.Position, d.V)
	}
}

func (l *loader) checkType(k *known, types map[string]*known) {
	token := sdk.NameToken(k.Type)
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
