// Package contracts is where agents and services meet: contract files and their versions, JSON Schema validation with
// faults that a model can act on, and the tool definitions and tool names that models are shown.
//
// A Schema is compiled once per process and content. Nothing here connects to anything: a $ref that leaves its document
// is refused when the schema is compiled. Everything may be used concurrently.
package contracts
