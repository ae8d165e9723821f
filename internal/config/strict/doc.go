// Package strict reads YAML and JSON files into Go values without guessing: an unknown or repeated key, a value of
// another kind, more than one document are faults, and each fault has its file, line and column. A Reader goes on after a
// fault, so that one reading lists all of them.
package strict
