package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
)

// record is what happened, as the driver learns it. Safe for concurrent use.
type record struct {
	mu         sync.Mutex
	file       *os.File
	buffer     *bufio.Writer
	notes      []note
	deaths     []death
	struck     map[string]int // by failpoint
	covered    map[string]int // by crash point
	counts     map[string]int
	faults     map[string]int
	violations []string
}

// death is the end of a worker, or the moment at which it became a zombie.
type death struct {
	worker string
	at     int64
}

func newRecord(path string) (*record, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &record{
		file: file, buffer: bufio.NewWriter(file), struck: map[string]int{}, covered: map[string]int{}, counts: map[string]int{},
		faults: map[string]int{},
	}, nil
}

// snapshot is a copy that nobody else writes to.
func (r *record) snapshot() *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &record{
		notes: slices.Clone(r.notes), deaths: slices.Clone(r.deaths), struck: maps.Clone(r.struck), covered: maps.Clone(r.covered),
		counts: maps.Clone(r.counts), faults: maps.Clone(r.faults), violations: slices.Clone(r.violations),
	}
}

func (r *record) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.buffer.Flush(); err != nil {
		return err
	}
	return r.file.Close()
}

// note keeps a worker's note.
func (r *record) note(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line, err := json.Marshal(n)
	if err == nil {
		_, err = r.buffer.Write(append(line, '\n'))
	}
	if err != nil {
		r.violations = append(r.violations, fmt.Sprintf("a note is lost: %v", err))
	}
	r.notes = append(r.notes, n)
	switch n.Kind {
	case noteStruck:
		r.struck[n.Point]++
		for _, f := range failpoints {
			if f.name == n.Point {
				r.covered[f.crash]++
			}
		}
		r.faults[string(n.Action)+" at a failpoint"]++
		switch n.Action {
		case actionStop:
			r.covered["C23"]++
			r.deaths = append(r.deaths, death{n.Worker, n.At})
		case actionKill:
			r.deaths = append(r.deaths, death{n.Worker, n.At})
		case actionLose:
		}
	case noteBurnt:
		r.faults["a run killed its worker"]++
		r.deaths = append(r.deaths, death{n.Worker, n.At})
	case noteImpatient:
		r.covered["C24"]++
		r.deaths = append(r.deaths, death{n.Worker, n.At})
	case noteIllegal:
		r.violations = append(r.violations, n.Worker+": "+n.Text)
	case noteReady, noteDelivered, noteHandled, notePublished, noteExecuted:
	}
}

func (r *record) died(worker string, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaths = append(r.deaths, death{worker, at})
}

func (r *record) violate(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// cover counts a crash point that is not a failpoint of a worker.
func (r *record) cover(crash string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.covered[crash] += n
}

func (r *record) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// fault counts what the driver did to a process or a connection.
func (r *record) fault(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[what]++
}

// strikes returns how often each failpoint struck.
func (r *record) strikes(point string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.struck[point]
}
