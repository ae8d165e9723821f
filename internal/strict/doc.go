// Package strict reads YAML and JSON files without guessing: a repeated key, a value that JSON does not have, and more than
// one document are faults, and each fault has its file, line and column. What a file may say is the business of a JSON
// Schema, whose faults Check puts at their places. A Reader goes on after a fault, so that one reading lists all of them.
package strict
