//go:build !race

package pipeline

// rebuilt is how many runs wait, and how many have ended, whose streams are rebuilt.
const rebuilt = 1000
