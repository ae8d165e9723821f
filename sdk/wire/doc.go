// Package wire is what travels between agentd, services and clients (docs/wire.md): subjects, identifiers, the CloudEvents
// envelope, canonical JSON and live events.
//
// Everything here is a value or a pure function; the package knows no broker. All functions may be called concurrently;
// values are not safe for concurrent change.
package wire
