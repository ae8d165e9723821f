package sim

import (
	"fmt"
	"strings"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// trace adds a line to the log, if there is one. What happens often asks for the log before: arguments cost memory.
func (s *simulation) trace(format string, args ...any) {
	if s.log != nil {
		s.log(fmt.Sprintf("%9.3f  ", seconds(s.now)) + fmt.Sprintf(format, args...))
	}
}

// seconds is a time of the simulation as traces show it.
func seconds(at int64) float64 { return float64(at-epoch) / 1000 }

// name is what a run is called, if its journal says it.
func (s *simulation) name(run wire.RunKey) string {
	if j := s.store.journals[run]; j.last().Rev > 0 {
		if e, _, err := s.entries.Decode(j.last().Data); err == nil {
			return e.Head.Run
		}
	}
	return run.String()
}

// tell is a message in a few words.
func (b *fakeBroker) tell(a wire.Address, ev *wire.Event) string {
	switch {
	case a.Kind == wire.KindFire:
		return "timer of " + b.name(a.Run)
	case ev == nil:
		return string(a.Kind) + " that cannot be read"
	case a.Kind == wire.KindStart:
		return fmt.Sprintf("init %s of %s for %s", ev.ID, ev.Subject, a.Agent)
	case a.Call.Call != "":
		return fmt.Sprintf("%s %s %s of %s on %s %s", a.Kind, ev.Type, short(a.Call.Call), b.name(a.Run), a.Call.Domain, ev.Data)
	}
	return fmt.Sprintf("%s %s of %s", a.Kind, ev.Type, b.name(a.Run))
}

// short is a call id as traces show it.
func short(call string) string {
	if ref, ok := wire.ParseCallRef(call); ok {
		return strings.Replace(call, ref.ID, ref.ID[:min(9, len(ref.ID))], 1)
	}
	return call
}

// describe is an entry in one line of a trace.
func (s *simulation) describe(rec *runner.Record) string {
	if s.log == nil {
		return ""
	}
	e, _, err := s.entries.Decode(rec.Data)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	h := &e.Head
	fmt.Fprintf(&b, "%s entry %d, %s by %s %d: %s", h.Run, e.Rev, e.Kind, e.Cause.Stream, e.Cause.Sequence, h.Status)
	if h.Reason != "" {
		b.WriteString(" " + string(h.Reason))
	}
	fmt.Fprintf(&b, ", fence %d", h.Fence)
	if h.Cancel != nil {
		fmt.Fprintf(&b, ", to end: %s", h.Cancel.Reason)
	}
	for _, c := range h.Calls {
		fmt.Fprintf(&b, ", %s %s %s", short(c.ID), c.Tool, c.Status)
	}
	for _, f := range e.Effects {
		fmt.Fprintf(&b, "; %s", f.Kind)
		if f.Call != "" {
			b.WriteString(" " + short(wire.CallRef{ID: f.Call, Attempt: max(f.Attempt, 1)}.EventID()))
		}
		if f.Due > 0 {
			fmt.Fprintf(&b, " at %.3f", seconds(f.Due))
		}
	}
	return b.String()
}
