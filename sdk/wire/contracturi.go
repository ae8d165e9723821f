package wire

import "strings"

// Contracts that nobody gave an absolute URI live under this scheme, which CloudEvents' rule for dataschema asks for.
const (
	absoluteRoot = "agentd:/"
	relativeRoot = "#/"
)

// AgentURI is the URI of the contract of an agent whose author gave it none.
func AgentURI(agent string) string { return absoluteRoot + "agent/" + agent }

// AbsoluteURI is the URI of a contract, or a dataschema, in its absolute form. Those that name the same contract are equal in it:
// "#/airline/book" is short for "agentd:/airline/book".
func AbsoluteURI(uri string) string {
	if rest, relative := strings.CutPrefix(uri, relativeRoot); relative {
		return absoluteRoot + rest
	}
	return uri
}

// SameURI reports whether two URIs, or two dataschemas, name the same contract.
func SameURI(a, b string) bool { return AbsoluteURI(a) == AbsoluteURI(b) }
