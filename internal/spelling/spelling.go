// Package spelling compares names that people and models write with those that there are.
package spelling

import (
	"fmt"
	"strings"

	edlib "github.com/hbollon/go-edlib"
)

// Distance is how many characters have to be inserted, left out, replaced, or swapped with their neighbour to make b of a.
func Distance(a, b string) int { return edlib.OSADamerauLevenshteinDistance(a, b) }

// Closest is the known name that looks most like name, where that may be a slip of the pen; empty where none is like it.
func Closest(name string, known []string) string {
	best, distance := "", (len(name)+2)/3+1
	for _, k := range known {
		if d := Distance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// Suggest ends a message that a name is not known: with the closest known name, else with all of them.
func Suggest(name string, known []string) string {
	switch best := Closest(name, known); {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) == 0:
		return "; there is none"
	default:
		return "; there is " + strings.Join(known, ", ")
	}
}
