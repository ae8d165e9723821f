package sim

import (
	"fmt"
	"strings"
)

// toll is what is counted at each point.
type toll int

// What befalls fibers at a point.
const (
	killedThere toll = iota
	frozenThere
	failedOverThere
	restartedThere
	tolls // their number
)

// stats count what happened in many histories.
type stats struct {
	histories, steps int64
	tolls            [points][tolls]int64
	faults           [faults]int64
}

// at counts a fiber that something befalls.
func (st *stats) at(fb *fiber, k toll) {
	if fb.children == 0 {
		st.tolls[fb.at][k]++
	}
}

func (st *stats) add(o *stats) {
	st.histories += o.histories
	st.steps += o.steps
	for p := range o.tolls {
		for k, n := range o.tolls[p] {
			st.tolls[p][k] += n
		}
	}
	for f, n := range o.faults {
		st.faults[f] += n
	}
}

// String is two tables: what befell activations at each crash point, and how often each fault happened.
func (st *stats) String() string {
	var b strings.Builder
	const row = "%-4s  %-50s %9s %9s %9s %9s\n"
	fmt.Fprintf(&b, row, "", "activations, where", "killed", "frozen", "failover", "restart")
	for p, place := range places {
		if !point(p).counted() {
			continue
		}
		n := st.tolls[p]
		fmt.Fprintf(&b, row, place.code, place.what, fmt.Sprint(n[0]), fmt.Sprint(n[1]), fmt.Sprint(n[2]), fmt.Sprint(n[3]))
	}
	fmt.Fprintf(&b, "\n%-16s %9s\n", "fault", "happened")
	for f, k := range kinds {
		fmt.Fprintf(&b, "%-16s %9d  %s\n", k.name, st.faults[f], k.what)
	}
	return b.String()
}
