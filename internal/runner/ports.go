package runner

import (
	"context"
	"errors"
	"time"

	"agentd/sdk/wire"
)

// What a Store answers, by errors.Is.
var (
	// ErrNotFound: no such run, blob or spec.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the run's last entry is not the one that the caller built on. Nothing was written.
	ErrConflict = errors.New("conflict: the run moved on")
	// ErrAmbiguous: the entry may or may not be written, or may not be durable yet. Append the same record again to learn
	// which: a record that is already the run's last is not written twice.
	ErrAmbiguous = errors.New("ambiguous: the store did not answer")
	// ErrCorrupt: what is stored is not what was written, or does not hold together: reading it again will not help. The
	// message is dead-lettered, and the run ends, if that is still possible.
	ErrCorrupt = errors.New("journal is corrupt")
)

// Version is a point in a run's journal. The zero Version is a run that does not exist.
type Version struct {
	// Rev numbers entries from 1.
	Rev uint64
	// Etag is random and unique: numbers are issued again after a failover of the store, etags never are.
	Etag string
	// Position is the store's own address of the entry, such as a stream sequence; the store that returned it sets it.
	Position uint64
}

// Record is one journal entry as a store sees it: opaque bytes with a version.
type Record struct {
	Version
	Data []byte
}

// StoredRun is a run in a listing, with its last record. Revision 0 says that what is stored there is not an entry.
type StoredRun struct {
	Run  wire.RunKey
	Last Record
}

// MaxEntry is the largest journal entry that stores take, in bytes. It keeps an entry and its headers below the default largest message of
// a NATS server (1 MiB), even when the server sends it in base64. Larger contents are blobs.
const MaxEntry = 512 << 10

// Store keeps the journals of runs, append-only, by compare-and-set. Implementations pass the suite in
// internal/state/storetest. All methods are safe for concurrent use.
type Store interface {
	// Head returns the run's last record by a linearizable read, or ErrNotFound.
	Head(ctx context.Context, run wire.RunKey) (Record, error)
	// Entries returns the records after that version (zero: all) in order, in one batched read. It may be stale, in which
	// case a later Append fails with ErrConflict. An unknown run has none.
	Entries(ctx context.Context, run wire.RunKey, after Version) ([]Record, error)
	// Part returns the records from the revision from on (1 is the first), in order, most of them at most, without reading those before. It may
	// be stale, as Entries may. Of a purged run there is its tombstone alone, and of an unknown run nothing.
	Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]Record, error)
	// Append writes next as the run's last record if the last one still is base (zero: the run must not exist), and
	// returns its version when it is as durable as the store promises. next.Rev must be base.Rev+1. Appending the record
	// that already is the last one (by etag) returns its version without writing.
	// Errors: ErrConflict, ErrAmbiguous, *sdk.Error with CodeTooLarge, or ctx's.
	Append(ctx context.Context, run wire.RunKey, base Version, next Record) (Version, error)
	// Barrier returns when v, read by Head, is as durable as Append makes it: before a message is acked on the strength
	// of a read alone. ErrConflict if it no longer is the last record, ErrAmbiguous if that cannot be learnt.
	Barrier(ctx context.Context, run wire.RunKey, v Version) error

	// PutBlob stores a large content under its lower-case hexadecimal SHA-256; Blob reads it, or ErrNotFound. Putting the
	// same content again is harmless.
	PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error
	Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error)
	// PutSpec and Spec do the same for agent specs, which belong to no run.
	PutSpec(ctx context.Context, digest string, data []byte) error
	Spec(ctx context.Context, digest string) ([]byte, error)

	// Runs lists up to limit runs in a stable order after cursor ("" is the beginning), and the cursor for the rest, ""
	// at the end. Runs that begin meanwhile may be missing.
	Runs(ctx context.Context, cursor string, limit int) (runs []StoredRun, next string, err error)
}

// Publisher carries out effects on the broker. Safe for concurrent use.
type Publisher interface {
	// Publish creates event on subject if nothing is there, and otherwise compares: the same bytes are success, others
	// are *sdk.Error with CodeConflict. It returns when the broker has confirmed, and may be repeated.
	Publish(ctx context.Context, subject string, event wire.Event) error
	// Restore is Publish of what may be there: it looks first, so that who listens to the subject hears nothing a second time.
	Restore(ctx context.Context, subject string, event wire.Event) error
	// Published reports whether an event is on subject, by a linearizable read.
	Published(ctx context.Context, subject string) (bool, error)
	// Purged is up to when runs had ended whose calls and voids may have been removed, in Unix milliseconds: what is not there of a run that
	// ended later was never published, or was lost. 0 is that none were removed.
	Purged(ctx context.Context) (int64, error)
	// ArmTimer makes a message arrive on the run's fire subject at due (Unix milliseconds, never early), in place of the
	// timer that was armed before.
	ArmTimer(ctx context.Context, agent string, run wire.RunKey, due int64) error
	// Live sends a live event, best effort.
	Live(event wire.Live)
	// Wake has every worker call Runner.Wake for the run, best effort.
	Wake(agent string, run wire.RunKey)
}

// Audience is who reads live events. Safe for concurrent use.
type Audience interface {
	// Watches reports whether somebody reads those of a run of an agent now. It is asked before an event is built, and does no I/O.
	Watches(agent string, run wire.RunKey) bool
}

// nobody watches.
type nobody struct{}

func (nobody) Watches(string, wire.RunKey) bool { return false }

// Outages is what workers know together of models that cannot be asked, of agents that are paused, and of the runs that wait for them. All of it is a hint: a
// parked run is tried again at its time, whatever is known. Safe for concurrent use.
type Outages interface {
	// Ask reports whether the model with the key may be asked now: one that is away is asked by one run at a time. waited says that
	// the run itself has waited for it.
	Ask(ctx context.Context, key string, waited bool) bool
	// Away says that it could not be asked, and is not to be asked again so soon; 0 is a matter of taste.
	Away(key string, after time.Duration)
	// Back says that it has answered: the runs that wait for it are unparked, not all at once. It costs nothing where no outage is
	// known and waited, of Ask, was false.
	Back(key string, waited bool)
	// Paused is for how long the runs of an agent are not to go on from now; 0 is that they may.
	Paused(ctx context.Context, agent string) time.Duration
	// Park marks the run as waiting for key, for as long as it has left at most, so that it is found. It may be repeated.
	Park(ctx context.Context, key, agent string, run wire.RunKey, left time.Duration) error
	// Unmark takes that back. It may be repeated.
	Unmark(ctx context.Context, key, agent string, run wire.RunKey) error
}

// noOutages knows nothing.
type noOutages struct{}

func (noOutages) Ask(context.Context, string, bool) bool       { return true }
func (noOutages) Away(string, time.Duration)                   {}
func (noOutages) Back(string, bool)                            {}
func (noOutages) Paused(context.Context, string) time.Duration { return 0 }

func (noOutages) Park(context.Context, string, string, wire.RunKey, time.Duration) error { return nil }

func (noOutages) Unmark(context.Context, string, string, wire.RunKey) error { return nil }

// Env is everything nondeterministic, in one place, so that a simulation owns it. The runner and the handler start no
// goroutine and read no clock of their own.
type Env interface {
	// Now is the broker's time in Unix milliseconds: workers on several machines date the entries of one journal.
	Now() int64
	// Sleep returns nil after d, or ctx's error when that ends first.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Parallel runs the functions concurrently and returns when all have returned.
	Parallel(fs ...func())
	// Beat runs f, and beat each d meanwhile until that returns false. It returns when f has returned and no beat is under way,
	// and panics with what either has panicked with.
	Beat(f func(), d time.Duration, beat func() (goOn bool))
	// Random returns 128 random bits as 26 characters of lower-case base32.
	Random() string
}
