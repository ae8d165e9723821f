package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/contracts"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// serviceFile is what the file says of a service, which is a tool or is asked for context; as agentFile.
type serviceFile struct {
	sdk.ServiceTool
	sdk.ContextUse
	Contract string        `json:"contract"`
	Timeout  time.Duration `json:"timeout"`
	Retry    *struct {
		sdk.Retry
		Backoff    time.Duration `json:"backoff"`
		MaxBackoff time.Duration `json:"max_backoff"`
	} `json:"retry"`
}

// tools resolves the services of an agent and checks the names of all its tools.
func (l *loader) tools(n *strict.Node, s *sdk.AgentSpec) {
	before := l.Count()
	// known are the nodes of the services whose contracts are in files, in the order of their tools.
	var known []*strict.Node
	missing := false
	add := func(n *strict.Node, section string) {
		tool, ok := l.service(n, s.Name, section)
		if !ok {
			missing = true
			return
		}
		s.Services = append(s.Services, tool)
		if !contracts.IsReference(tool) {
			known = append(known, n)
		}
	}
	for _, service := range n.Get("tools", "services").Items() {
		add(service, "")
	}
	for _, section := range []string{sdk.SectionPlanning, sdk.SectionRetrieval} {
		if c := n.Get("context", section); c.Present() {
			add(c, section)
		}
	}
	resolved, complete := contracts.Resolved(*s)
	toolbox, err := contracts.Tools(resolved, nil)
	if err != nil {
		l.toolFaults(sdk.AsError(err), known, n.Get("tools", "builtin").Items())
	}
	if !complete || l.Count() > before || missing {
		return // the tools are not all known, so stop_on cannot be judged
	}
	l.checkStops(n, toolbox)
}

// checkStops looks for the tools that runs stop on. Those of an MCP server are known only when it is connected.
func (l *loader) checkStops(n *strict.Node, toolbox *contracts.Toolbox) {
	var names []string
	for _, t := range toolbox.All() {
		names = append(names, t.Name)
	}
	for _, stop := range slices.Concat(n.Get("stop_on").Items(), n.Get("stop", "tools").Items()) {
		ofServer := slices.ContainsFunc(n.Get("tools", "mcp").Texts(), func(s string) bool { return strings.HasPrefix(stop.Text(), s+"_") })
		if !ofServer && !slices.Contains(names, stop.Text()) {
			l.Faultf(stop.Position, "the agent has no tool %q%s", stop.Text(), strict.Suggest(stop.Text(), names))
		}
	}
}

var toolPath = regexp.MustCompile(`^\$\.(services|builtin)\[(\d+)\]`)

// toolFaults puts the faults of contracts.Tools where the tools stand in the file.
func (l *loader) toolFaults(err *sdk.Error, services, builtin []*strict.Node) {
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
		l.Faultf(at[i].Position, "expected %s, got %s", fault.Expected, fault.Got)
	}
}

// service resolves one service, for a section of the prompt or as a tool; it is not ok when there is no contract to go on with. One that is in no file is left as a
// reference to the registry.
func (l *loader) service(n *strict.Node, agent, section string) (sdk.ServiceTool, bool) {
	var f serviceFile
	l.Decode(n, &f)
	tool := f.ServiceTool
	if section != "" {
		f.Section, tool.Context = section, &f.ContextUse
	}
	tool.TimeoutMillis, tool.Domains = f.Timeout.Milliseconds(), l.serviceDomains(n)
	if f.Retry != nil {
		tool.Retry = &f.Retry.Retry
		tool.Retry.BackoffMillis, tool.Retry.MaxBackoffMillis = f.Retry.Backoff.Milliseconds(), f.Retry.MaxBackoff.Milliseconds()
	}
	contract := n.Get("contract")
	if !contract.Present() {
		return tool, false
	}
	if !isContractPath(f.Contract) && l.find(f.Contract) == nil {
		return l.registered(n, agent, tool)
	}
	k := l.reference(contract)
	if k == nil {
		return tool, false
	}
	version, ok := l.resolve(k.Contract, n)
	if !ok {
		return tool, false
	}
	tool.Contract, tool.Version = contracts.Pin(k.Contract, version), version
	tool.Agent = tool.Agent || k.agent != ""
	return tool, true
}

// serviceDomains reads the lanes of a service's calls; "local" is the one of calls without a domain.
func (l *loader) serviceDomains(n *strict.Node) []string {
	lanes := n.Get("domains").Items()
	if domain := n.Get("domain"); domain.Present() {
		if len(lanes) > 0 {
			l.Faultf(domain.Key, "domain and domains exclude each other")
		}
		lanes = []*strict.Node{domain}
	}
	var names []string
	for _, d := range lanes {
		l.domain(d)
		name := d.Text()
		if name == wire.LocalDomain {
			name = ""
		}
		if slices.Contains(names, name) {
			l.Faultf(d.Position, "domain %q is listed twice", cmp.Or(name, wire.LocalDomain))
		}
		names = append(names, name)
	}
	return names
}

// registered makes a tool a reference to the registry.
func (l *loader) registered(n *strict.Node, agent string, tool sdk.ServiceTool) (sdk.ServiceTool, bool) {
	if l.broken {
		return tool, false // the contract may be in the file that has faults
	}
	contract := n.Get("contract")
	if isURI(contract.Text()) {
		tool.Contract.URI = contract.Text()
	} else {
		tool.Contract.Type = contract.Text()
	}
	unversioned := tool
	unversioned.Version = ""
	at, err := contract, contracts.CheckReference(unversioned)
	if err == nil {
		at, err = n.Get("version"), contracts.CheckReference(tool)
	}
	if err != nil {
		l.Note(at, err)
		return tool, false
	}
	l.cfg.References = append(l.cfg.References, Reference{
		Position: contract.Position, Agent: agent, Contract: contract.Text(), Range: cmp.Or(tool.Version, contracts.Latest),
		Similar: strict.Closest(contract.Text(), l.types()),
	})
	return tool, true
}

// checkCollisions refuses contracts that would share a URI, a type or a subject token.
func (l *loader) checkCollisions() {
	uris, types := map[string]*known{}, map[string]*known{}
	for _, k := range l.known {
		if other, taken := uris[k.URI]; taken {
			l.Faultf(k.node.Get("uri").Position, "contract %s is already defined in %s", k.URI, other.node.Position)
		} else {
			uris[k.URI] = k
			l.checkType(k, types)
		}
	}
}

func (l *loader) checkType(k *known, types map[string]*known) {
	at := k.node.Get("type").Position
	token := wire.NameToken(k.Type)
	other, taken := types[token]
	switch {
	case !taken:
		types[token] = k
	case k.Type == k.agent && other.Type == other.agent: // so have the agents, which is noted
	case other.Type == k.Type:
		l.Faultf(at, "type %s is already the one of contract %s in %s", k.Type, other.URI, other.node.Position)
	default:
		l.Faultf(at, "types %s and %s (%s) have the same name in subjects: %s", k.Type, other.Type, other.node.Position, token)
	}
}
