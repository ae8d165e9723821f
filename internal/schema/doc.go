// Package schema validates by JSON Schema, in five dialects, with faults that a model can act on, and with a budget for
// schemas and documents that strangers wrote. It fills in defaults, compares schemas, finds what is unwise in them, and
// writes them as models are shown them.
//
// A Schema is compiled once per process and content. Nothing is ever loaded: a $ref that leaves its document is refused
// when the schema is compiled. Everything may be used concurrently.
package schema
