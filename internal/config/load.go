package config

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// Load reads a configuration file and everything it names. The error is Faults with all that is wrong in any file.
func Load(path string) (*Config, error) {
	l := loader{cfg: defaults(path), dir: filepath.Dir(path), byPath: map[string]*known{}}
	data, ok := l.readFile(strict.Position{File: path}, path)
	if !ok {
		return nil, l.Err()
	}
	node := l.Parse(path, data)
	var f file
	l.Decode(node, &f)
	l.settings(&f)
	l.encryption(f.Encryption)
	l.approvals(f.Approvals)
	l.mcp(&f.MCP)
	l.providers(f.Models)
	for _, c := range contracts.Builtin() {
		l.known = append(l.known, &known{Contract: c, at: builtin})
	}
	for _, entry := range f.Contracts {
		l.contractPath(entry)
	}
	l.agents(f.Agents)
	l.checkServers()
	l.checkCollisions()
	l.checkDomains(f.Domains)
	if err := l.Err(); err != nil {
		return nil, err
	}
	for _, k := range l.known {
		l.cfg.Contracts = append(l.cfg.Contracts, k.Contract)
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
	// domains are all that are named, with where.
	domains []words
	// mcpFile, mcpUses and mcpPolicies are where the mcp.json and its servers are named.
	mcpFile              words
	mcpUses, mcpPolicies []words
	// broken says that a contract could not be read, so that a missing one is no fault of who refers to it.
	broken bool
}

// known is a contract that agents may refer to.
type known struct {
	sdk.Contract
	at strict.Position
	// agent serves it; empty is a service.
	agent string
}

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
	}
}

// settings puts the file over the defaults.
func (l *loader) settings(f *file) {
	c := l.cfg
	c.NATS.URL, c.Redis.URL = URL(f.NATS.URL.V), URL(f.Redis.URL.V)
	for _, p := range []struct {
		said words
		path *string
	}{
		{f.NATS.Creds, &c.NATS.Creds},
		{f.NATS.NKey, &c.NATS.NKey},
		{f.NATS.CA, &c.NATS.CA},
		{f.NATS.Cert, &c.NATS.Cert},
		{f.NATS.Key, &c.NATS.Key},
		{f.Redis.CA, &c.Redis.CA},
		{f.Redis.Cert, &c.Redis.Cert},
		{f.Redis.Key, &c.Redis.Key},
	} {
		if p.said.V != "" {
			*p.path = l.path(p.said.V)
		}
	}
	for _, pair := range [][2]words{{f.NATS.Cert, f.NATS.Key}, {f.Redis.Cert, f.Redis.Key}} {
		if cert, key := pair[0], pair[1]; (cert.V == "") != (key.V == "") {
			l.Faultf(cmp.Or(cert.Position, key.Position), "a certificate needs both cert and key")
		}
	}
	if f.Data.V != "" {
		c.Data = l.path(f.Data.V)
	}
	setting(l, f.NATS.Root, &c.NATS.Root, checkRoot)
	setting(l, f.NATS.Replicas, &c.NATS.Replicas, checkReplicas)
	setting(l, f.Slots, &c.Slots, checkSlots)
	setting(l, f.Log.Level, &c.Log.Level, checkLevel)
	setting(l, f.Log.Format, &c.Log.Format, checkFormat)
	l.identity(f)
	l.reconcile(f)
	c.Store = StoreKind(f.Store.V)
	if f.Store.Present() {
		l.Note(f.Store.Position, checkStore(c.Store))
	}
}

func setting[T any](l *loader, value strict.Value[T], target *T, check func(T) error) {
	if value.Present() {
		*target = value.V
		l.Note(value.Position, check(value.V))
	}
}

func (l *loader) providers(models strict.Entries[providerFile]) {
	for _, m := range models {
		p := l.cfg.provider(m.Key.V)
		if p == nil {
			l.cfg.Models = append(l.cfg.Models, Provider{Name: m.Key.V})
			p = &l.cfg.Models[len(l.cfg.Models)-1]
		}
		p.BaseURL, p.Organization = m.Value.BaseURL.V, m.Value.Organization.V
		p.APIKeyEnv = m.Value.APIKeyEnv.Or(p.APIKeyEnv)
		if protocol := m.Value.Protocol; protocol.Present() {
			p.Protocol = protocol.V
			l.Note(protocol.Position, checkOneOf("protocol", protocol.V, defaultProvider, anthropicProvider))
		}
		if u := p.BaseURL; u != "" && !strings.HasPrefix(u, "http://") && !strings.HasPrefix(u, "https://") {
			l.Faultf(m.Value.BaseURL.Position, "base_url %q: want http:// or https://", u)
		}
	}
	slices.SortFunc(l.cfg.Models, func(a, b Provider) int { return cmp.Compare(a.Name, b.Name) })
}

// contractPath reads a contract file, or all of a folder and its folders.
func (l *loader) contractPath(entry words) {
	path := l.path(entry.V)
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
	c := contracts.Read(&l.Reader, path, data)
	if l.Count() > before {
		l.broken = true
		return nil
	}
	k := &known{Contract: c, at: strict.Position{File: path}}
	l.byPath[path] = k
	l.known = append(l.known, k)
	return k
}

// isContractPath tells the path of a contract file from a type and a URI.
func isContractPath(name string) bool {
	return !isURI(name) && (strings.Contains(name, "/") || isContractFile(name))
}

func isURI(name string) bool {
	return strings.HasPrefix(name, "#") || strings.HasPrefix(name, "urn:") || strings.Contains(name, "://")
}

// find returns the contract with that type or URI among those that were read, or nil.
func (l *loader) find(name string) *known {
	i := slices.IndexFunc(l.known, func(k *known) bool { return k.Type == name || k.URI == name })
	if i < 0 {
		return nil
	}
	return l.known[i]
}

// reference finds the contract that a path, a type or a URI names. It is nil when there is none, or it has faults.
func (l *loader) reference(name words) *known {
	if isContractPath(name.V) {
		path := l.path(name.V)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			l.watch(path)
			l.broken = true
			l.Faultf(name.Position, "%s (a name that has a slash or ends in .yaml, .yml or .json is a file; the registry is asked for "+
				"types such as a.b and URIs such as #/a/b)", reading(path, err))
			return nil
		}
		return l.contract(name.Position, path)
	}
	if k := l.find(name.V); k != nil {
		return k
	}
	if l.broken {
		return nil // it may be the one with faults
	}
	types := make([]string, len(l.known))
	for i, k := range l.known {
		types[i] = k.Type
	}
	slices.Sort(types)
	l.Faultf(name.Position, "no contract of type %q in contracts: or agents:; there is %s. "+
		"(Only services are looked up in the registry, not the contract that an agent itself has.)", name.V, strings.Join(types, ", "))
	return nil
}

// resolve is contracts.Resolve with faults at the range, else at the reference.
func (l *loader) resolve(c sdk.Contract, rangeExpr words, at strict.Position) (string, bool) {
	if rangeExpr.Present() {
		at = rangeExpr.Position
	}
	version, err := contracts.Resolve(c, rangeExpr.V)
	l.Note(at, err)
	return version, err == nil
}
