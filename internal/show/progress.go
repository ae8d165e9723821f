package show

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"agentd/sdk/wire"
)

// Labels of lines that are printed in several places.
const (
	labelAnswer = "answer"
	labelAsks   = "asks"
	LabelError  = "error"
	LabelWaits  = "waits"
)

// labelled is how many columns a line's label takes.
const labelled = 10

// Progress prints the milestones of runs, one line each and each once. Safe for concurrent use.
type Progress struct {
	W io.Writer
	// Columns is how wide the terminal is that W writes to, which can also show what goes on between milestones; nil when W
	// is not a terminal.
	Columns func() int
	// JSON prints each live event as it is.
	JSON bool
	// Many says that several runs are shown, so that each line names its own.
	Many bool
	// Full does not shorten.
	Full bool
	// Command is the command line of a command; nil is that of one without any settings.
	Command func(args ...string) string
	// Quiet are the tools whose calls are shown otherwise.
	Quiet map[string]bool

	mu     sync.Mutex
	status status
	runs   map[string]*watched
}

// watched is what must be known of a run to show its next milestone.
type watched struct {
	rev   uint64
	index int
	// tools are the names of the calls without a result; those from before the first shown milestone are missing.
	tools   map[string]string
	partial bool
	// held: it was just said why the run does not go on, and nothing has happened since.
	held    bool
	command func(args ...string) string
	// done is closed when the run's end was shown.
	done chan struct{}
}

// Describer says in words what the milestones of one run tell, in their order.
type Describer struct{ run watched }

// Describe is a milestone as a label and a text, as they are: escape them. Both are empty for one that says nothing to people.
func (d *Describer) Describe(l wire.Live) (label, text string) {
	if d.run.tools == nil {
		d.run.tools = map[string]string{}
	}
	return d.run.describe(l, nil)
}

func (p *Progress) run(name string) *watched {
	if p.runs == nil {
		p.runs = map[string]*watched{}
	}
	if p.runs[name] == nil {
		p.runs[name] = &watched{index: -1, tools: map[string]string{}, done: make(chan struct{}), command: p.Command}
	}
	return p.runs[name]
}

// Ended is closed when the end of that run was shown.
func (p *Progress) Ended(run string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run(run).done
}

// Mark is the last milestone of that run that was shown.
func (p *Progress) Mark(run string) (revision uint64, index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run(run)
	return r.rev, r.index
}

// Seen reports whether anything of that run was shown.
func (p *Progress) Seen(run string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run(run).rev > 0
}

// Show prints a live event, unless it was shown before.
func (p *Progress) Show(l wire.Live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Ephemeral {
		if p.Columns != nil && !p.JSON && !p.Many {
			p.status.show(p, l)
		}
		return
	}
	p.status.clear(p)
	r := p.run(l.Run)
	if l.Revision < r.rev || (l.Revision == r.rev && l.Index <= r.index) {
		return
	}
	r.partial = r.partial || (r.rev == 0 && l.Revision > 1)
	r.rev, r.index = l.Revision, l.Index
	if l.Type == wire.MilestoneRetried || l.Type == wire.MilestoneUndoing {
		r.done = make(chan struct{}) // the end that was shown was that of the generation before
	}
	label, text := r.describe(l, p.Quiet)
	switch {
	case p.JSON:
		data, _ := json.Marshal(l) // what was decoded from JSON always encodes
		fmt.Fprintf(p.W, "%s\n", EscapeJSON(data))
	case l.Type == wire.MilestonePlanned:
		for text := range strings.SplitSeq(text, "\n") {
			p.line(l, label, text)
			label = ""
		}
	case l.Type == wire.MilestoneRequested:
		p.whole(l, label, text) // it ends with a command to be copied
	case label != "":
		p.line(l, label, text)
	}
	if l.Type != wire.MilestoneFinished {
		return
	}
	close(r.done)
	if p.Many {
		delete(p.runs, l.Run) // else a program that watches for months remembers all
	}
}

// Note prints a line of the command itself, whole: it may have a command to be copied.
func (p *Progress) Note(label, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.JSON {
		p.status.clear(p)
		fmt.Fprintf(p.W, "%-9s %s\n", label, Line(text, math.MaxInt))
	}
}

// Ask prints a question whole: nobody can answer a part of one.
func (p *Progress) Ask(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.clear(p)
	label, columns := labelAsks, p.columns()
	if columns > 0 {
		columns = max(columns-labelled, leastRoom)
	}
	for _, line := range Wrap(VisibleLines(strings.TrimSpace(text)), columns) {
		fmt.Fprintf(p.W, "%-9s %s\n", label, line)
		label = ""
	}
}

// prefix says of which run a line is, where several are shown.
func (p *Progress) prefix(l wire.Live) string {
	if !p.Many {
		return ""
	}
	return clockMillis(l.Time) + "  " + NameColumn(l.Agent, 14, p.columns()) + " " + NameColumn(l.Run, 18, p.columns()) + " "
}

// whole prints a line, however narrow the terminal is.
func (p *Progress) whole(l wire.Live, label, text string) {
	fmt.Fprintf(p.W, "%s%-9s %s\n", p.prefix(l), label, Line(text, math.MaxInt))
}

func (p *Progress) line(l wire.Live, label, text string) {
	prefix := p.prefix(l)
	fmt.Fprintf(p.W, "%s%-9s %s\n", prefix, label, line(text, room(p.columns(), Width(prefix)+labelled), p.Full))
}

func (p *Progress) columns() int {
	if p.Columns == nil {
		return 0
	}
	return p.Columns()
}
