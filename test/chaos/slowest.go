package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// mostSlow is how many of the runs that made no progress for longest are told of.
const mostSlow = 20

// moment is something that happened, for a timeline.
type moment struct {
	at   int64
	text string
}

// writeSlowest writes what happened to the runs that made no progress for longest: which entries they got, which messages were
// given to whom, and which workers died over them.
func (r *report) writeSlowest() (err error) {
	file, err := os.Create(filepath.Join(r.dir, "slowest.txt"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file)
	slow := slices.Clone(r.recovery)
	slices.Reverse(slow)
	seen := map[wire.RunKey]bool{}
	for _, i := range slow {
		if seen[i.run] || len(seen) == mostSlow {
			continue
		}
		seen[i.run] = true
		fmt.Fprintf(out, "\nrun %s: %s without progress after %s died with %s\n",
			r.journals[i.run][0].Head.Run, i.took, i.worker, place(i.cause.Stream, i.cause.Sequence))
		for _, m := range r.timeline(i) {
			fmt.Fprintf(out, "%9.3f  %s\n", time.Duration((m.at-i.at)*int64(time.Millisecond)).Seconds(), m.text)
		}
	}
	return out.Flush()
}

func place(stream string, sequence uint64) string { return fmt.Sprintf("%s %d", stream, sequence) }

// timeline is what happened to a run from a few seconds before it lost its driver to its next progress.
func (e *evidence) timeline(i interruption) []moment {
	const before = 5 * time.Second
	from, until := i.at-before.Milliseconds(), i.at+i.took.Milliseconds()
	var all []moment
	causes := map[string]bool{}
	for n := range e.journals[i.run] {
		entry := &e.journals[i.run][n]
		causes[place(entry.Cause.Stream, entry.Cause.Sequence)] = true
		if entry.At >= from && entry.At <= until {
			all = append(all, moment{entry.At, told(entry)})
		}
	}
	hands := map[string]bool{}
	for _, n := range e.record.notes {
		p := place(n.Stream, n.Sequence)
		if causes[p] && n.At >= from && n.At <= until {
			hands[n.Worker] = true
			all = append(all, moment{n.At, fmt.Sprintf("    %s %s %s", n.Worker, n.Kind, p)})
		}
	}
	for _, d := range e.record.deaths {
		if hands[d.worker] && d.at >= from && d.at <= until {
			all = append(all, moment{d.at, "    " + d.worker + " dies"})
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return all
}

// told is an entry in one line.
func told(entry *core.Entry) string {
	text := fmt.Sprintf("%d %s by %s: %s", entry.Rev, entry.Kind, place(entry.Cause.Stream, entry.Cause.Sequence), entry.Head.Status)
	if d := entry.Head.Driver; d != nil {
		text += fmt.Sprintf(", driven by %s, %d takeovers, %d deaths", place(d.Stream, d.Sequence), d.Takeovers, d.Deaths)
		if d.Alone {
			text += ", alone"
		}
	}
	if p := entry.Head.Parked; p != nil {
		text += fmt.Sprintf(", waits for %s, try %d", p.Model, p.Tries)
		if p.Until > 0 {
			text += fmt.Sprintf(" in %s", time.Duration(p.Until-entry.At)*time.Millisecond)
		}
	}
	return text
}
