package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentd/internal/core"
)

// stats count what happened in many histories.
type stats struct {
	histories, steps int64
	crashes          map[string]int64
}

func newStats() *stats { return &stats{crashes: map[string]int64{}} }

func (st *stats) crash(at string) { st.crashes[at]++ }

func (st *stats) add(o *stats) {
	st.histories += o.histories
	st.steps += o.steps
	for at, n := range o.crashes {
		st.crashes[at] += n
	}
}

// String lists how often a worker died at each point.
func (st *stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %d steps; fibers killed at:", st.histories, st.steps)
	for _, at := range slices.Sorted(maps.Keys(st.crashes)) {
		fmt.Fprintf(&b, " %s %d,", at, st.crashes[at])
	}
	return strings.TrimSuffix(b.String(), ",")
}

// describe is an entry in one line of a trace.
func describe(e *core.Entry) string {
	var b strings.Builder
	h := &e.Head
	fmt.Fprintf(&b, "%s rev %d %s by %s %d: %s", h.Run, e.Rev, e.Kind, e.Cause.Stream, e.Cause.Sequence, h.Status)
	if h.Reason != "" {
		b.WriteString(" " + string(h.Reason))
	}
	fmt.Fprintf(&b, ", fence %d, step %d, timer %d", h.Fence, h.Step, h.Timer)
	for _, c := range h.Calls {
		fmt.Fprintf(&b, ", %s %s %s", c.ID[:min(7, len(c.ID))], c.Tool, c.Status)
	}
	for _, f := range e.Effects {
		fmt.Fprintf(&b, "; %s %s", f.Kind, f.Call[:min(7, len(f.Call))])
	}
	return b.String()
}
