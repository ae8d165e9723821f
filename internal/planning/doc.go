// Package planning is what the models of an agent that plans are told, and how their plans are read. It is pure, and its work is bounded
// by the size of what it is given.
package planning
