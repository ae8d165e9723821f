package cli

import (
	"os"
	"runtime/debug"
)

const (
	// StartGrowth is by how many percent the heap may grow while a program starts: to read and compile what it needs keeps nearly all that
	// is allocated.
	StartGrowth = 1000
	// UsualGrowth is Go's own.
	UsualGrowth = 100
)

// GrowHeap has the heap grow by so many percent before garbage is collected, unless GOGC says by how many.
func GrowHeap(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
