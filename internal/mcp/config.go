package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// ServerConfig says how a server is reached, and what of it is used. It has a command or a URL.
type ServerConfig struct {
	Name string
	// Command is started with Args and Env, and talked to over its stdin and stdout. Dir is its folder; empty is the worker's.
	Command string
	Args    []string
	Env     map[string]string
	Dir     string
	// URL is that of a server on streamable HTTP, Headers go with every request.
	URL     string
	Headers map[string]string

	Policy
}

// Policy is what the operator allows of a server, beside how it is reached.
type Policy struct {
	// Allow and Deny are patterns over the server's own tool names, in which * is any text. No Allow is all; Deny wins.
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// AtMostOnce are patterns of tools that are never called again for a call that was interrupted.
	AtMostOnce []string `json:"at_most_once"`
	// Timeout bounds one call; 0 is sdk.DefaultToolTimeout.
	Timeout time.Duration `json:"timeout"`
	// Required says that agents are not served before the server answers; else they are, without its tools.
	Required bool `json:"required"`
	// Hosts are the hosts that remote servers may have, as in a URL, without port. LocalHosts are those that may also be
	// plain http, and on private or loopback addresses.
	Hosts      []string `json:"-"`
	LocalHosts []string `json:"-"`
}

// serverFile is a server as other MCP hosts write it. Their further keys are none of ours.
type serverFile struct {
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Cwd     string            `json:"cwd"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// ParseServers reads an mcp.json, with the key mcpServers or servers, sorted by name. ${env:NAME} in a value is what lookup
// (os.LookupEnv) says; a variable that is not set is a fault. The error is CodeConfig and lists every fault.
func ParseServers(data []byte, lookup func(string) (string, bool)) ([]ServerConfig, error) {
	var file struct {
		MCPServers map[string]serverFile `json:"mcpServers"`
		Servers    map[string]serverFile `json:"servers"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&file); err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "mcp.json: %s", err)
	}
	servers, key := file.MCPServers, "$.mcpServers."
	if servers == nil {
		servers, key = file.Servers, "$.servers."
	}
	if servers == nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "mcp.json has no mcpServers")
	}
	var list []ServerConfig
	var faults []sdk.Fault
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		x := expansion{lookup: lookup, path: key + name}
		list = append(list, x.server(name, servers[name]))
		faults = append(faults, x.faults...)
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeConfig, Message: "mcp.json cannot be used", Faults: faults}
	}
	return list, nil
}

// expansion reads one server, and collects what is wrong with it.
type expansion struct {
	lookup func(string) (string, bool)
	path   string
	faults []sdk.Fault
}

func (x *expansion) fault(field, expected, got string) {
	x.faults = append(x.faults, sdk.Fault{Path: x.path + field, Expected: expected, Got: got})
}

func (x *expansion) server(name string, f serverFile) ServerConfig {
	s := ServerConfig{
		Name: name, Command: x.text(".command", f.Command), Dir: x.text(".cwd", f.Cwd), URL: x.text(".url", f.URL),
		Env: x.values(".env", f.Env), Headers: x.values(".headers", f.Headers),
	}
	for i, arg := range f.Args {
		s.Args = append(s.Args, x.text(fmt.Sprintf(".args[%d]", i), arg))
	}
	if !wire.IsToken(name, longestServerName) {
		x.fault("", "a name of letters, digits, - and _, at most 32, for the names of its tools", fmt.Sprintf("%q", name))
	}
	switch {
	case f.Type == "sse":
		x.fault(".type", "stdio or http; the old SSE transport is not spoken", "sse")
	case s.Command == "" && s.URL == "":
		x.fault("", "a command, or a url", "neither")
	case s.Command != "" && s.URL != "":
		x.fault("", "a command, or a url", "both")
	}
	return s
}

// longestServerName leaves room for the names of tools behind it.
const longestServerName = 32

var reference = regexp.MustCompile(`\$\{env:([^}]*)\}`)

func (x *expansion) text(field, value string) string {
	return reference.ReplaceAllStringFunc(value, func(ref string) string {
		name := reference.FindStringSubmatch(ref)[1]
		value, ok := x.lookup(name)
		if !ok {
			x.fault(field, "the environment variable "+name, "none of that name")
		}
		return value
	})
}

func (x *expansion) values(field string, values map[string]string) map[string]string {
	expanded := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		expanded[key] = x.text(field+"."+key, values[key])
	}
	return expanded
}

// Check refuses a remote server that the policy does not admit.
func (s *ServerConfig) Check() error {
	for _, pattern := range slices.Concat(s.Allow, s.Deny, s.AtMostOnce) {
		if pattern == "" {
			return sdk.Errorf(sdk.CodeConfig, "MCP server %s: a pattern of tools is empty", s.Name)
		}
	}
	if s.URL == "" {
		return nil
	}
	u, err := url.Parse(s.URL)
	if err != nil { // which repeats the URL, and that may have a key
		return sdk.Errorf(sdk.CodeConfig, "MCP server %s: its url cannot be read", s.Name)
	}
	if u.Hostname() == "" {
		return sdk.Errorf(sdk.CodeConfig, "MCP server %s: its url has no host", s.Name)
	}
	if err := s.checkURL(u); err != nil {
		return sdk.Errorf(sdk.CodeConfig, "MCP server %s: %s", s.Name, err.Message)
	}
	return nil
}

func (p *Policy) checkURL(u *url.URL) *sdk.Error {
	host := u.Hostname()
	local := slices.Contains(p.LocalHosts, host)
	switch {
	case u.User != nil:
		return sdk.Errorf(sdk.CodeConfig, "credentials belong into headers, not into the URL of %s", host)
	case !local && !slices.Contains(p.Hosts, host):
		return sdk.Errorf(sdk.CodeConfig, "the host %s is not allowed; mcp.hosts lists those that are", host)
	case u.Scheme != "https" && (!local || u.Scheme != "http"):
		return sdk.Errorf(sdk.CodeConfig, "%s://%s: want https; plain http is for mcp.local_hosts", u.Scheme, u.Host)
	}
	return nil
}

// admits reports whether the tool may be used at all.
func (p *Policy) admits(tool string) bool {
	return (len(p.Allow) == 0 || matches(p.Allow, tool)) && !matches(p.Deny, tool)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(name)
	})
}
