// Package sdk holds the words of whoever writes an agent: agents and their limits, contracts, tools, messages, models, hooks,
// permissions and errors. What travels between programs is in package sdk/wire.
//
// Everything here is a value or a pure function. The package knows no broker, no store and no model vendor. All
// functions may be called concurrently; values are not safe for concurrent change.
package sdk
