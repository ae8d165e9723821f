// Package toolcall finds out what is meant by calls that models write almost right: the tool by a name that it does not have, and
// arguments that are not quite JSON. It is pure, and its work is bounded by the size of what it is given.
package toolcall
