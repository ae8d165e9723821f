// Package eval asks a model, several times, to do what cases say, and grades what it does: which tools it calls, with which arguments, and
// what it answers.
package eval
