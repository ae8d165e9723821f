package bench

import (
	"os"
	"strconv"
	"strings"
)

// machine is what the processors of this machine have done since it started, in ticks; the zero value is unknown.
type machine struct{ busy, all float64 }

// readMachine reads what Linux tells of all processors; other systems tell nothing.
func readMachine() machine {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machine{}
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var m machine
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // "cpu", and guests, which are in user time
			continue
		}
		m.all += ticks
		if idle := i == 4 || i == 5; !idle { // idle, and waiting for a disk
			m.busy += ticks
		}
	}
	return m
}

// busySince is what part of all processors was busy meanwhile; 0 where nobody knows.
func (m machine) busySince(before machine) float64 {
	if m.all <= before.all {
		return 0
	}
	return (m.busy - before.busy) / (m.all - before.all)
}
