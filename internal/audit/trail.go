package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"agentd/internal/core"
	"agentd/sdk"
)

// TrailFormat names the format of an exported trail and its version (docs/security.md, "Audit trails").
const TrailFormat = "agentd.audit/1"

// TrailKind says what a line of a trail is.
type TrailKind string

// The lines: one header, then every entry of the journal with the records that are taken from it, then one end.
const (
	TrailHeader TrailKind = "trail"
	TrailEntry  TrailKind = "entry"
	TrailRecord TrailKind = "record"
	TrailEnd    TrailKind = "end"
)

// trailLine is one line. Prev is the SHA-256 of the line before without its line feed, so that no byte before the last line
// can be changed without being found; what may stand in the last line follows from the others.
type trailLine struct {
	Line   uint64          `json:"line"`
	Kind   TrailKind       `json:"kind"`
	Prev   string          `json:"prev"`
	Format string          `json:"format,omitempty"`
	Run    string          `json:"run,omitempty"`
	Rev    uint64          `json:"rev,omitempty"`
	SHA256 string          `json:"sha256,omitempty"`
	Before string          `json:"before,omitempty"`
	At     int64           `json:"at,omitempty"`
	Cause  string          `json:"cause,omitempty"`
	Record json.RawMessage `json:"record,omitempty"`
}

// Trail writes the trail of one run.
type Trail struct {
	w    io.Writer
	line uint64
	prev string
	run  string
}

// NewTrail begins the trail of a run.
func NewTrail(w io.Writer, run string) (*Trail, error) {
	t := &Trail{w: w, run: run}
	return t, t.write(trailLine{Kind: TrailHeader, Format: TrailFormat, Run: run})
}

func (t *Trail) write(l trailLine) error {
	t.line++
	l.Line, l.Prev = t.line, t.prev
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode line %d of the trail of run %s: %w", t.line, t.run, err)
	}
	t.prev = core.Digest(data)
	_, err = t.w.Write(append(data, '\n'))
	return err
}

// Entry writes an entry of the journal, with the digest of its bytes.
func (t *Trail) Entry(e *core.Entry, digest string) error {
	return t.write(trailLine{Kind: TrailEntry, Rev: e.Rev, SHA256: digest, Before: e.Prev, At: e.At, Cause: e.Kind})
}

// Record writes what the entry before it says.
func (t *Trail) Record(record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode a record of run %s: %w", t.run, err)
	}
	return t.write(trailLine{Kind: TrailRecord, Record: data})
}

// End writes the end and returns the digest of the last line. Whoever keeps it knows later that the whole trail is the one
// that was exported: a trail by itself shows changes, but not that all of it was made anew.
func (t *Trail) End() (digest string, err error) {
	err = t.write(trailLine{Kind: TrailEnd, Run: t.run})
	return t.prev, err
}

// TrailSummary is what a verified trail is of.
type TrailSummary struct {
	Run     string `json:"run"`
	Entries int    `json:"entries"`
	Records int    `json:"records"`
	// SHA256 is the digest of the last line.
	SHA256 string `json:"sha256"`
}

// VerifyTrail reads a trail and reports the first line that is not what was exported. The error is *sdk.Error with
// CodeConflict.
func VerifyTrail(r io.Reader) (TrailSummary, error) {
	v := trailVerifier{}
	lines := bufio.NewReader(r)
	for {
		data, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(data) == 0:
			if !v.ended {
				return v.TrailSummary, v.broken("the end is missing")
			}
			return v.TrailSummary, nil
		case errors.Is(err, io.EOF):
			return v.TrailSummary, v.broken("it has no line feed at its end")
		case err != nil:
			return v.TrailSummary, fmt.Errorf("read trail: %w", err)
		}
		if err := v.next(bytes.TrimSuffix(data, []byte("\n"))); err != nil {
			return v.TrailSummary, err
		}
	}
}

type trailVerifier struct {
	TrailSummary
	line  uint64
	entry string
	ended bool
}

func (v *trailVerifier) broken(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeConflict, "line %d: %s", v.line, fmt.Sprintf(format, args...))
}

func (v *trailVerifier) next(data []byte) error {
	v.line++
	var l trailLine
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return v.broken("it is not a line of a trail")
	}
	// Only the very bytes that would be written are accepted: JSON has many spellings.
	again, err := json.Marshal(l)
	switch {
	case err != nil || !bytes.Equal(again, data):
		return v.broken("its bytes are not those that were exported")
	case l.Line != v.line || l.Prev != v.SHA256:
		return v.broken("it does not follow the line before, which was changed, or lines are missing")
	case v.ended:
		return v.broken("it comes after the end")
	case (l.Kind == TrailHeader) != (v.line == 1):
		return v.broken("a trail has one header, which comes first")
	}
	v.SHA256 = core.Digest(data)
	return v.kind(l)
}

// kind checks what a line of its kind must have.
func (v *trailVerifier) kind(l trailLine) error {
	switch l.Kind {
	case TrailHeader:
		if l.Format != TrailFormat {
			return v.broken("the format is %q; want %s", l.Format, TrailFormat)
		}
		v.Run = l.Run
	case TrailEntry:
		v.Entries++
		if l.Before != v.entry || l.Rev != uint64(v.Entries) {
			return v.broken("entry %d of the journal does not follow the one before", l.Rev)
		}
		v.entry = l.SHA256
	case TrailRecord:
		v.Records++
		var r struct {
			Entry string `json:"entry"`
		}
		if err := json.Unmarshal(l.Record, &r); err != nil || r.Entry != v.entry {
			return v.broken("the record is not of the entry before it")
		}
	case TrailEnd:
		want := trailLine{Line: l.Line, Kind: TrailEnd, Prev: l.Prev, Run: v.Run}
		if !reflect.DeepEqual(l, want) {
			return v.broken("the end is not that of run %s", v.Run)
		}
		v.ended = true
	default:
		return v.broken("a line of kind %q is not known", l.Kind)
	}
	return nil
}
