package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// noteKind says what a worker notes.
type noteKind string

// The kinds of notes.
const (
	noteReady     noteKind = "ready"     // the worker serves
	noteDelivered noteKind = "delivered" // a delivery is given to the handler
	noteHandled   noteKind = "handled"   // the handler returned
	notePublished noteKind = "published" // an event was published, or found to be there
	noteExecuted  noteKind = "executed"  // a tool takes effect
	noteStruck    noteKind = "struck"    // a failpoint strikes
	noteBurnt     noteKind = "burnt"     // a run ends the process
	noteImpatient noteKind = "impatient" // a stopping worker left activations behind
	noteIllegal   noteKind = "illegal"   // the core took an input for a bug
)

// note is one line that a worker writes to its standard output before, not after, what it tells: whatever happens to the
// process then, the line is in the pipe.
type note struct {
	At       int64    `json:"at"` // Unix milliseconds
	Kind     noteKind `json:"kind"`
	Stream   string   `json:"stream,omitempty"`
	Sequence uint64   `json:"seq,omitempty"`
	Subject  string   `json:"subject,omitempty"`
	Run      string   `json:"run,omitempty"`
	Call     string   `json:"call,omitempty"`
	Once     bool     `json:"once,omitempty"`
	Point    string   `json:"point,omitempty"`
	Action   action   `json:"action,omitempty"`
	Text     string   `json:"text,omitempty"`
	// Worker is the incarnation, which the driver fills in.
	Worker string `json:"worker,omitempty"`
}

// notebook writes notes. Safe for concurrent use.
type notebook struct {
	mu sync.Mutex
	w  io.Writer
}

func (b *notebook) write(n note) {
	n.At = time.Now().UnixMilli()
	line, err := json.Marshal(n)
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, err = b.w.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("write note: %v", err)) // the driver is gone
	}
}
