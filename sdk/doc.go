// Package sdk holds the public types of agentd: events, contracts, agents, messages, tools, models and errors, and the
// wire they travel on (docs/wire.md): subjects, identifiers, the CloudEvents envelope and canonical JSON.
//
// Everything here is a value or a pure function. The package knows no broker, no store and no model vendor. All
// functions may be called concurrently; values are not safe for concurrent change.
package sdk
