package config

import (
	"cmp"
	_ "embed"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

//go:embed agentd.schema.json
var schemaFile []byte

// Schema is the JSON Schema of agentd.yaml.
func Schema() []byte { return slices.Clone(schemaFile) }

//go:embed mcp.schema.json
var mcpSchemaFile []byte

var (
	fileForm = sync.OnceValue(func() *strict.Form { return compile(schemaFile) })
	mcpForm  = sync.OnceValue(func() *strict.Form { return compile(mcpSchemaFile) })
)

func compile(file []byte) *strict.Form {
	s, err := schema.Compile(file)
	if err != nil {
		panic("config: a schema of the program: " + err.Error())
	}
	return strict.NewForm(s)
}

// Load reads a configuration file and everything it names. The error is Faults with all that is wrong in any file. Whoever serves
// the agents as they are there also calls CheckTools.
func Load(path string) (*Config, error) {
	l := loader{cfg: defaults(path), dir: filepath.Dir(path), byPath: map[string]*known{}}
	data, ok := l.readFile(strict.Position{File: path}, path)
	if !ok {
		return nil, l.Err()
	}
	root := l.Parse(path, data)
	l.Check(root, fileForm())
	l.settings(root)
	for _, c := range contracts.Builtin() {
		l.known = append(l.known, &known{Contract: c, node: builtin})
	}
	for _, entry := range root.Get("contracts").Items() {
		l.contractPath(entry)
	}
	l.agents(root.Get("agents"))
	l.checkServers(root.Get("mcp"))
	l.checkAnswersAge(root.Get("nats", "answers_age"))
	l.checkCallsKept(root.Get("retention", "calls"))
	l.checkHot(root.Get("retention", "hot"))
	l.checkCollisions()
	l.checkDomains(root.Get("domains"))
	if l.Count() > 0 {
		l.cfg.checkTools(&l.Reader)
		return nil, l.Err()
	}
	l.cfg.known, l.cfg.sources = l.known, map[string]strict.Position{}
	for _, k := range l.known {
		l.cfg.Contracts = append(l.cfg.Contracts, k.Contract)
		l.cfg.sources[k.Type] = k.node.Position
		if versions := k.node.Get("versions"); versions.Line > 0 {
			l.cfg.sources[k.Type] = versions.Position
		}
	}
	slices.SortFunc(l.cfg.Contracts, func(a, b sdk.Contract) int { return cmp.Compare(a.Type, b.Type) })
	return l.cfg, nil
}

type loader struct {
	strict.Reader
	cfg *Config
	// dir is what paths in the file are relative to.
	dir    string
	byPath map[string]*known
	known  []*known
	// domains and servers are where routing lanes and MCP servers are named.
	domains, servers []*strict.Node
	// broken says that a contract could not be read, so that a missing one is not the fault of who refers to it.
	broken bool
}

// known is a contract that agents may refer to.
type known struct {
	sdk.Contract
	// node is its file, or the agent that has it.
	node *strict.Node
	// agent serves it; empty is a service.
	agent string
}

// builtin is where agentd itself names contracts and domains.
var builtin = &strict.Node{Position: strict.Position{File: "agentd"}}

// path resolves a path in the file.
func (l *loader) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(l.dir, p)
}

// readFile notes at whoever named the file that it cannot be read.
func (l *loader) readFile(at strict.Position, path string) ([]byte, bool) {
	l.watch(path)
	data, err := os.ReadFile(path)
	if err != nil {
		l.Faultf(at, "%s", reading(path, err))
		return nil, false
	}
	return data, true
}

func reading(path string, err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return path + " cannot be read: " + err.Error()
}

func (l *loader) watch(path string) {
	if !slices.Contains(l.cfg.Files, path) {
		l.cfg.Files = append(l.cfg.Files, path)
		l.cfg.stamp += Stamp([]string{path})
	}
}

// contractPath reads a contract file, or all of a folder and its folders.
func (l *loader) contractPath(entry *strict.Node) {
	path := l.path(entry.Text())
	info, err := os.Stat(path)
	switch {
	case err != nil:
		l.broken = true
		l.Faultf(entry.Position, "%s", reading(path, err))
		return
	case !info.IsDir():
		l.contract(entry.Position, path)
		return
	}
	found := 0
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			l.watch(p)
		case isContractFile(p):
			found++
			l.contract(entry.Position, p)
		}
		return nil
	})
	if err != nil {
		l.broken = true
		l.Faultf(entry.Position, "%s", reading(path, err))
	} else if found == 0 {
		l.Faultf(entry.Position, "%s has no contracts: no file ends in .yaml, .yml or .json", path)
	}
}

func isContractFile(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

// contract reads a contract file once. It is nil when the file has faults, which are noted.
func (l *loader) contract(at strict.Position, path string) *known {
	if k, ok := l.byPath[path]; ok {
		return k
	}
	l.byPath[path] = nil
	data, ok := l.readFile(at, path)
	if !ok {
		l.broken = true
		return nil
	}
	before := l.Count()
	c, node := contracts.Read(&l.Reader, path, data)
	if l.Count() > before {
		l.broken = true
		return nil
	}
	k := &known{Contract: c, node: node}
	l.byPath[path] = k
	l.known = append(l.known, k)
	return k
}

// isContractPath tells the path of a contract file from a type and a URI.
func isContractPath(name string) bool {
	return !isURI(name) && (strings.Contains(name, "/") || isContractFile(name))
}

func isURI(name string) bool {
	u, err := url.Parse(name)
	return strings.HasPrefix(name, "#") || err == nil && u.IsAbs()
}

// find returns the contract with that type or URI among those that were read, or nil.
func (l *loader) find(name string) *known {
	i := slices.IndexFunc(l.known, func(k *known) bool { return k.Type == name || wire.SameURI(k.URI, name) })
	if i < 0 {
		return nil
	}
	return l.known[i]
}

// reference finds the contract that a path, a type or a URI names. It is nil when there is none, or it has faults.
func (l *loader) reference(name *strict.Node) *known {
	if isContractPath(name.Text()) {
		path := l.path(name.Text())
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			l.watch(path)
			l.broken = true
			l.Faultf(name.Position, "%s (a name that has a slash or ends in .yaml, .yml or .json is a file; the registry is asked for "+
				"types such as a.b and URIs such as #/a/b)", reading(path, err))
			return nil
		}
		return l.contract(name.Position, path)
	}
	if k := l.find(name.Text()); k != nil {
		return k
	}
	if l.broken {
		return nil // it may be the one with faults
	}
	l.Faultf(name.Position, "no contract %q in contracts: or agents:%s "+
		"(Only services are looked up in the registry, not the contract that an agent itself has.)",
		name.Text(), spelling.Suggest(name.Text(), l.types()))
	return nil
}

// types are those of the contracts that were read, sorted.
func (l *loader) types() []string {
	var types []string
	for _, k := range l.known {
		types = append(types, k.Type)
	}
	slices.Sort(types)
	return types
}

// resolve is contracts.Resolve for n, which has a contract and perhaps the range of its version, where the faults are.
func (l *loader) resolve(c sdk.Contract, n *strict.Node) (string, bool) {
	at := n.Get("contract")
	if n.Get("version").Present() {
		at = n.Get("version")
	}
	version, err := contracts.Resolve(c, n.Get("version").Text())
	l.Note(at, err)
	return version, err == nil
}
