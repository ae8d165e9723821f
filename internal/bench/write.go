package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"agentd/internal/show"
)

// Write shows a report to people.
func (r *Report) Write(w io.Writer) error {
	s := &r.Setting
	server := s.Server
	if s.Embedded != "" {
		server += " in this process, in " + s.Embedded
	}
	streams := show.Count(s.Replicas, "replica")
	if s.Partitions > 1 {
		streams += fmt.Sprintf(", %d partitions", s.Partitions)
	}
	fmt.Fprintf(w, "NATS   %s, %s; %s\n", server, streams, syncText(s.NATSSync))
	if s.Store == "redis" {
		fmt.Fprintf(w, "store  Redis, appendfsync %s\n", cmp.Or(s.RedisSync, "unknown: it does not show its settings"))
	} else {
		fmt.Fprintln(w, "store  JetStream")
	}
	latency := "without latency"
	if s.ModelLatencyMS > 0 {
		latency = fmt.Sprintf("that takes %.0f ms", s.ModelLatencyMS)
	}
	fmt.Fprintf(w, "load   %s in %.1f s, of %s and a model %s; %s at a time; %s with %s each\n\n", show.Count(r.Runs, "run"), r.Seconds,
		show.Count(s.Turns, "turn"), latency, show.Count(s.Clients, "client"), show.Count(s.Workers, "worker"), show.Count(s.Slots, "slot"))
	times := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(times, "%.1f runs/s\tp50 ms\tp99 ms\t\n", r.RunsPerSecond)
	for _, row := range []struct {
		what string
		of   Spread
	}{{"a run under load", r.Run}, {"a run alone", r.Alone}, {"from an answer to the next step, under load", r.NextStep}} {
		fmt.Fprintf(times, "%s\t%.1f\t%.1f\t\n", row.what, row.of.P50, row.of.P99)
	}
	if err := times.Flush(); err != nil {
		return err
	}
	if err := r.writeCosts(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nwhat limits")
	for _, l := range r.Limits {
		fmt.Fprintf(w, "  %s (%.0f %%)\n    → %s\n", l.What, 100*l.Used, l.Advice)
	}
	return nil
}

func syncText(sync string) string {
	switch sync {
	case SyncAlways:
		return "each write is on disk before it is confirmed"
	case SyncLater:
		return "writes are confirmed before they are on disk: a loss of power loses what was confirmed before"
	}
	return "whether each write is on disk before it is confirmed is not known: say --monitor URL"
}

// What Setting.NATSSync may be.
const (
	SyncAlways  = "always"
	SyncLater   = "later"
	SyncUnknown = "unknown"
)

// writeCosts shows what each run cost.
func (r *Report) writeCosts(w io.Writer) error {
	fmt.Fprintln(w, "\nof each run")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, value, with string) { fmt.Fprintf(t, "  %s\t%s\t%s\n", what, value, with) }
	m := &r.Messages
	row("messages published to NATS", fmt.Sprintf("%.1f", m.All),
		fmt.Sprintf("worker %.1f, service %.1f, client %.1f; %s in all", m.Worker, m.Service, m.Client, show.Size(r.MessageBytes)))
	var streams []string
	for _, zone := range slices.Sorted(maps.Keys(r.Streams)) {
		of := r.Streams[zone]
		streams = append(streams, fmt.Sprintf("%s %.1f (%s)", zone, of.Stored, show.Size(of.Bytes)))
	}
	row("messages stored by NATS", fmt.Sprintf("%.1f", r.Stored), fmt.Sprintf("%s, of which %s are kept; %.1f are written before they are confirmed", strings.Join(streams, ", "), show.Size(r.StoredBytes), r.Awaited))
	if r.Redis != nil {
		var commands []string
		for _, name := range slices.Sorted(maps.Keys(r.Redis.Commands)) {
			commands = append(commands, fmt.Sprintf("%s %.1f", name, r.Redis.Commands[name]))
		}
		row("commands sent to Redis", fmt.Sprintf("%.1f", r.Redis.All), strings.Join(commands, ", "))
		row("memory of Redis", show.Size(r.Redis.MemoryBytes), "its keys")
	}
	row("journal", fmt.Sprintf("%.1f entries", r.Journal.Entries), show.Size(r.Journal.Bytes)+" before they are packed")
	with := "workers, service and clients"
	if r.Setting.Embedded != "" {
		with += ", and the embedded server"
	}
	row("processor of this process", fmt.Sprintf("%.2f ms", r.ProcessorMS), fmt.Sprintf("%s; %.0f %% of %s", with, 100*r.Busy, show.Count(r.Setting.Processors, "processor")))
	row("allocations of this process", fmt.Sprintf("%.0f", r.Allocations), "objects, by all of these")
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nalone   a round trip to NATS %.2f ms, a stored message %.2f ms, %.0f stored messages/s with %s at once\n",
		r.Probe.RoundTripMS, r.Probe.WriteMS, r.Probe.WritesPerSecond, show.Count(r.Setting.Clients, "writer"))
	if s := &r.Setting; s.NATSCores > 0 {
		fmt.Fprintf(w, "        the NATS server kept %.1f of %s busy at the end of the load\n", s.NATSProcessors, show.Count(s.NATSCores, "processor"))
	}
	if r.Redis != nil {
		fmt.Fprintf(w, "        a round trip to Redis %.2f ms\n", r.Probe.RedisRoundTripMS)
	}
	return nil
}
