// Package index is the index of runs: one small document per run, the language that selects runs, and what an index answers. It is pure,
// except for Memory, which is an index in this process.
//
// The index is a hint and never the truth: documents come after the entries that they tell of, some are late, and none has to be there.
// Whoever acts on a run reads its journal.
package index

import (
	"encoding/json"
	"fmt"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// DocumentVersion is the greatest V of documents that this code writes and reads.
const DocumentVersion = 1

// MaxText is how much text of a run a document has, in bytes, and MaxWaits how many of the things that the run waits for.
const (
	MaxText  = 1 << 10
	MaxWaits = 8
)

// Document is what the index knows of a run. All times are Unix milliseconds; 0 is none.
type Document struct {
	V     int    `json:"v"`
	Run   string `json:"run"`
	Agent string `json:"agent"`
	// Spec is the digest of the agent spec that the run keeps.
	Spec string `json:"spec,omitempty"`
	// Rev and Etag are those of the entry that the document was made from. Of two documents of a run, the one with the greater Rev counts.
	Rev    uint64      `json:"rev"`
	Etag   string      `json:"etag,omitempty"`
	Status wire.Status `json:"status"`
	// Reason and Code say why a run is done.
	Reason wire.Reason `json:"reason,omitempty"`
	Code   string      `json:"code,omitempty"`
	// Who is the principal that started the run, as the broker enforced it; "" is anonymous.
	Who string `json:"who,omitempty"`
	// Started is when the run's first entry was made, Changed when the one was that the document tells of.
	Started int64 `json:"started,omitempty"`
	Changed int64 `json:"changed"`
	// Due is the earliest time at which something that the run waits for runs out, and Deadline when the run does.
	Due      int64 `json:"due,omitempty"`
	Deadline int64 `json:"deadline,omitempty"`
	// Waits is what the run waits for, at most MaxWaits.
	Waits []Wait `json:"waits,omitempty"`
	// Turns counts the model calls that were accepted.
	Turns  int               `json:"interactions,omitempty"`
	Tokens Tokens            `json:"tokens,omitzero"`
	Tags   map[string]string `json:"tags,omitempty"`
	// Parent is the run whose call this one answers.
	Parent string `json:"parent,omitempty"`
	// Text is the beginning of the run's input as text, at most MaxText bytes; empty where runs are encrypted.
	Text string `json:"text,omitempty"`
	// Purged is when the run's history was removed.
	Purged int64 `json:"purged,omitempty"`
}

// Wait is one thing that a run waits for.
type Wait struct {
	// Kind is that of the call (service, turn, permission, question, context), or why the run is parked (model, rate, paused, ...).
	Kind string `json:"kind"`
	// Tool is what the call is for, and ID the id of the call; both are empty of a run that is parked.
	Tool string `json:"tool,omitempty"`
	ID   string `json:"id,omitempty"`
}

// Tokens are those that a run's model calls have used: CacheRead and CacheWrite are parts of In.
type Tokens struct {
	In         int64 `json:"in,omitempty"`
	Out        int64 `json:"out,omitempty"`
	CacheRead  int64 `json:"cr,omitempty"`
	CacheWrite int64 `json:"cw,omitempty"`
}

// Total is what the filter's tokens: and the sort by tokens count.
func (t Tokens) Total() int64 { return t.In + t.Out }

// Done reports whether the run has ended.
func (d *Document) Done() bool { return d.Status == wire.StatusDone }

// Duration is how long the run has taken until now, or did until its end.
func (d *Document) Duration(now int64) time.Duration {
	until := now
	if d.Done() {
		until = d.Changed
	}
	if d.Started == 0 || until < d.Started {
		return 0
	}
	return time.Duration(until-d.Started) * time.Millisecond
}

// unknownSpan is that of a run that goes on since nobody knows when: it comes after all others.
const unknownSpan = -1 << 52

// Span is what the sort by duration goes by, in milliseconds, and does not change with time: how long a run that is done took, and of one
// that goes on what is added to a time for how long it has taken by then.
func (d *Document) Span() int64 {
	switch {
	case d.Done():
		return d.Duration(0).Milliseconds()
	case d.Started == 0:
		return unknownSpan
	}
	return -d.Started
}

// Encode is the JSON of the document.
func (d *Document) Encode() ([]byte, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the index document of run %s: %w", d.Run, err)
	}
	return data, nil
}

// Decode reads what Encode wrote. A document of a later version is refused.
func Decode(data []byte) (Document, error) {
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return Document{}, fmt.Errorf("decode an index document: %w", err)
	}
	if d.V < 1 || d.V > DocumentVersion || d.Run == "" || d.Rev == 0 {
		return Document{}, sdk.Errorf(sdk.CodeInvalidEvent, "the index document has version %d, run %q and revision %d; this version of agentd reads version %d", d.V, d.Run, d.Rev, DocumentVersion)
	}
	return d, nil
}
