//go:build race

package pipeline

// rebuilt is how many runs wait, and how many have ended, whose streams are rebuilt: the detector makes each of them ten times as dear.
const rebuilt = 100
