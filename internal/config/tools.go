package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentd/internal/approval"
	"agentd/internal/contracts"
	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/internal/toolbox"
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
	for _, r := range n.Get("answers", "require").Items() {
		if service := r.Get("service"); service.Present() {
			add(service, sdk.AnswerSection(r.Get("name").Text()))
		}
	}
	resolved, _ := contracts.Resolved(*s)
	if _, err := toolbox.New(resolved, nil); err != nil {
		l.toolFaults(sdk.AsError(err), n.Get("tools"), known)
	}
	if l.Count() == before && !missing {
		l.cfg.places[s.Name] = n
	}
}

// CheckTools reports, as Faults, the tools and arguments that an agent's permissions, hooks and stops name, and that nothing in the
// file gives it: only code in Go still may (worker.Options.Extend). The tools of an MCP server are known when it is connected.
func (c *Config) CheckTools() error {
	var r strict.Reader
	c.checkTools(&r)
	return r.Err()
}

func (c *Config) checkTools(r *strict.Reader) {
	for i := range c.Agents {
		spec := &c.Agents[i]
		n, known := c.places[spec.Name]
		if !known {
			continue
		}
		var unknown []string
		for _, server := range n.Get("tools", "mcp").Texts() {
			unknown = append(unknown, toolbox.ToolsetPrefix(server))
		}
		resolved, _ := contracts.Resolved(*spec)
		if tools, err := toolbox.New(resolved, nil); err == nil {
			noteTools(r, n, approval.ToolsOf(spec, tools, unknown).Faults(spec))
		}
	}
}

// specPath is the path of a fault in a spec that is not about permissions.
var specPath = regexp.MustCompile(`^\$\.(rules|stop_on)\[(\d+)\](.*)$`)

// namedPath is that of a fault in what the spec says of a tool by its name, of a name, or of which tools are offered.
var namedPath = regexp.MustCompile(`^\$\.(arguments|aliases|undo|selection)\.`)

// agentPath is that of a fault in what has the same path in the file's agent.
var agentPath = regexp.MustCompile(`^\$\.(constraints|guards)\.`)

// noteTools puts what is wrong with a spec where it stands in the file, of which n is the agent.
func noteTools(r *strict.Reader, n *strict.Node, faults []sdk.Fault) {
	stops := slices.Concat(n.Get("stop_on").Items(), n.Get("stop", "tools").Items())
	for _, f := range faults {
		at := n
		switch m := specPath.FindStringSubmatch(f.Path); {
		case agentPath.MatchString(f.Path):
		case namedPath.MatchString(f.Path):
			at, f.Path = n.Get("tools"), argsPath(f.Path)
		case m == nil:
			at, f.Path = n.Get("permissions"), permissionPath(n.Get("permissions"), f.Path)
		case m[1] == "stop_on":
			i, _ := strconv.Atoi(m[2]) // digits by the pattern, and an index of what was given
			at, f.Path = stops[i], "$"
		default:
			f.Path = "$.hooks[" + m[2] + "]" + m[3]
		}
		r.Note(at, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{f}})
	}
}

// argsPath is where in the file's tools stands what has that path in the spec.
func argsPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "$.arguments."); ok {
		return "$.args." + rest
	}
	return path
}

var toolPath = regexp.MustCompile(`^\$\.(services|builtin)\[(\d+)\]`)

// toolFaults puts the faults of toolbox.New where the tools stand in the file.
func (l *loader) toolFaults(err *sdk.Error, tools *strict.Node, services []*strict.Node) {
	for _, fault := range err.Faults {
		m := toolPath.FindStringSubmatch(fault.Path)
		if namedPath.MatchString(fault.Path) {
			fault.Path = argsPath(fault.Path)
			l.Note(tools, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{fault}})
			continue
		}
		if m == nil {
			l.Faultf(strict.Position{File: l.cfg.File}, "%s", fault)
			continue
		}
		i, _ := strconv.Atoi(m[2]) // digits by the pattern, and an index of what was given
		at := services
		if m[1] == "builtin" {
			at = tools.Get("builtin").Items()
		}
		l.Faultf(at[i].Position, "expected %s, got %s", fault.Expected, fault.Got)
	}
}

// service resolves one service, for a section of the prompt or as a tool; it is not ok without a contract to go on with. One that is in no file is left as a
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
		Similar: spelling.Closest(contract.Text(), l.types()),
	})
	return tool, true
}

// checkCollisions refuses contracts that would share a URI, a type or a subject token.
func (l *loader) checkCollisions() {
	uris, types := map[string]*known{}, map[string]*known{}
	for _, k := range l.known {
		switch other, taken := uris[wire.AbsoluteURI(k.URI)]; {
		case !taken:
			uris[wire.AbsoluteURI(k.URI)] = k
			l.checkType(k, types)
		case k.agent == "" || k.agent != other.agent: // else two agents have one name, which is said of them
			l.Faultf(k.node.Get("uri").Position, "contract %s is already defined in %s", k.URI, other.node.Position)
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
