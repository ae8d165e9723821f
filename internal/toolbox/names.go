package toolbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// MaxName is the longest tool name, in bytes, that every provider takes.
const MaxName = 64

var (
	notToolName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
	nameHash    = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// Name is the name under which a model is shown what is called name: dots become underscores. What is too long then,
// or has other characters, is cut and gets a part of its hash, so that different names stay different.
func Name(name string) string {
	plain := strings.ReplaceAll(name, ".", "_")
	if wire.IsToken(plain, MaxName) {
		return plain
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "_" + nameHash.EncodeToString(sum[:])[:8]
	plain = notToolName.ReplaceAllString(plain, "_")
	if limit := MaxName - len(suffix); len(plain) > limit {
		plain = plain[:limit]
	}
	return plain + suffix
}

// ToolsetPrefix begins the names of a toolset's tools, so that tools of different toolsets stay apart.
func ToolsetPrefix(toolset string) string { return toolset + "_" }

// ReferredName is the name that the tool of a reference will have; empty where that depends on what the registry has.
func ReferredName(s sdk.ServiceTool) string {
	if name := cmp.Or(s.As, s.Contract.Type); name != "" {
		return Name(name)
	}
	return ""
}
