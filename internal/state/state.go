// Package state holds what the run stores in its folders have in common. Each of them implements runner.Store and passes
// the suite in storetest.
package state

import (
	"context"
	"regexp"
	"strings"
	"time"

	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Store is a runner.Store that can also forget runs. Purge and Remove may be repeated, and a crash in the middle of either
// leaves nothing that could be taken for a run that goes on.
type Store interface {
	runner.Store
	// Recent calls each with runs by their last records, those that were written last first, in pieces: all runs that are not in a piece, or one
	// before, were last written before since, in Unix milliseconds. It ends when each wants no more. enough is false where the store cannot
	// tell, or would be slower than Runs.
	Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error)
	// Purge puts keep, the run's tombstone, in the place of its whole journal if the last record still is base, and removes
	// its blobs. It returns the tombstone's version when that is durable. keep.Rev must be 1: the tombstone is all there is.
	// Whoever still has a version from before can append nothing. Repeated with the same keep, it finishes what is missing.
	// Errors are those of Append.
	Purge(ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record) (runner.Version, error)
	// Remove removes the run with all that is stored of it if its last record still is base. A run that is not there is
	// no error, and ErrConflict says that it is another one by now.
	Remove(ctx context.Context, run wire.RunKey, base runner.Version) error
	// Writable returns nil when the store takes writes, or why it does not: it is full, or its disk is. What it writes for that
	// takes no room that grows.
	Writable(ctx context.Context) error
	// Mark keeps a mark under a name, in place of the one before, wherever a part of the store can be lost by itself. Both pass
	// CheckMark.
	Mark(ctx context.Context, name, mark string) error
	// Marked reports whether all parts of the store have that mark under a name. Where one does not, it may have been emptied, or set back
	// to before Mark.
	Marked(ctx context.Context, name, mark string) (bool, error)
}

// Archiver is a Store, or is in one, that has archives for the journals of runs that have ended.
type Archiver interface {
	// Archive brings each run's journal one step further on its way into its archive: into the archive, or, when that has been there for long
	// enough, out of the store. Of a run that was purged it deletes an archive that is left. It takes at most most steps, in the order of the
	// runs; those beyond, and those that need none, have none. With dry it only says which it would take. It may be repeated, and several may do
	// it at once.
	Archive(ctx context.Context, runs []Ended, now time.Time, most int, dry bool) ([]Archival, error)
}

// Ended is a run that has ended, at its last version. Purged says that this is its tombstone's.
type Ended struct {
	Run wire.RunKey
	runner.Version
	Purged bool
}

// ArchiveStep is what was done with the journal of a run.
type ArchiveStep string

// The steps.
const (
	StepNone ArchiveStep = ""
	// StepArchived wrote the archive, StepThinned removed from the store what is in it, and StepDropped deleted it.
	StepArchived ArchiveStep = "archived"
	StepThinned  ArchiveStep = "thinned"
	StepDropped  ArchiveStep = "dropped"
)

// Archival is what became of a run: a step, or why it could not be taken.
type Archival struct {
	Step ArchiveStep
	Err  error
}

// ArchiverOf is the Archiver that a store is, or is wrapped around.
func ArchiverOf(store any) (Archiver, bool) {
	switch s := store.(type) {
	case Archiver:
		return s, true
	case interface{ Archiver() (Archiver, bool) }:
		return s.Archiver()
	}
	return nil, false
}

// MaxEntry is the largest journal entry in bytes.
const MaxEntry = runner.MaxEntry

// MaxRecord is the most bytes that a store keeps for an entry: the entry, and room for the envelope that it may be sealed
// in.
const MaxRecord = MaxEntry + 128

// MaxPage is the most runs that one page of a listing holds: what is in memory at once is MaxPage entries.
const MaxPage = 1000

// Etags and marks have so many characters at most.
const (
	longestEtag = 64
	longestMark = 128
)

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// CheckRecord reports whether next may follow base: its number, an etag that is safe in headers and keys, its size.
func CheckRecord(base runner.Version, next runner.Record) error {
	switch {
	case next.Rev != base.Rev+1:
		return sdk.Errorf(sdk.CodeInternal, "entry %d cannot follow entry %d", next.Rev, base.Rev)
	case !wire.IsToken(next.Etag, longestEtag):
		return sdk.Errorf(sdk.CodeInternal, "entry %d: etag %q: want 1 to %d letters, digits, _ and -", next.Rev, next.Etag, longestEtag)
	case len(next.Data) > MaxRecord:
		return sdk.Errorf(sdk.CodeTooLarge, "entry %d has %d bytes, more than %d", next.Rev, len(next.Data), MaxRecord)
	}
	return nil
}

// CheckTombstone reports whether keep may take the place of a journal that ends at base.
func CheckTombstone(base runner.Version, keep runner.Record) error {
	if base.Rev == 0 {
		return sdk.Errorf(sdk.CodeInternal, "a run without entries cannot be purged")
	}
	return CheckRecord(runner.Version{}, keep)
}

// CheckDigest reports whether digest can address a blob or a spec.
func CheckDigest(digest string) error {
	if !digestPattern.MatchString(digest) {
		return sdk.Errorf(sdk.CodeInternal, "digest %q is not a lower-case hexadecimal SHA-256", digest)
	}
	return nil
}

// CheckMark reports whether name and mark are safe in keys, subjects and scripts.
func CheckMark(name, mark string) error {
	for _, text := range []string{name, mark} {
		if !wire.IsToken(text, longestMark) {
			return sdk.Errorf(sdk.CodeInternal, "mark %q under %q: want texts of 1 to %d letters, digits, _ and -", mark, name, longestMark)
		}
	}
	return nil
}

// PageSize is limit within 1 and MaxPage.
func PageSize(limit int) int { return min(max(limit, 1), MaxPage) }

var cursorPattern = regexp.MustCompile(`^([01][0-9]{2}|2[0-4][0-9]|25[0-5])\.[a-z2-7]{26}$`)

// ParseCursor returns the run that a listing goes on after: the zero key is the beginning. All stores list runs in the
// order of RunKey.String, and their cursors are its values.
func ParseCursor(cursor string) (wire.RunKey, error) {
	if cursor == "" {
		return wire.RunKey{}, nil
	}
	if !cursorPattern.MatchString(cursor) {
		return wire.RunKey{}, sdk.Errorf(sdk.CodeInvalidEvent, "%q is not a cursor of a list of runs", cursor)
	}
	partition, token, _ := strings.Cut(cursor, ".")
	return wire.RunKey{Partition: partition, Token: token}, nil
}
