package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// What a run's head says of its archive, beside rev and etag:
//
//	cold  "<etag> <sequence> <Unix milliseconds>"   the archive ends at the entry with that etag, and is the message with that sequence
//	thin  "1"                                       the journal's entries but the last, and its blobs, are in the archive alone
//
// It is there before there is an archive, with the sequence 0, until after the archive is deleted: a run whose head says nothing has none. It
// counts only while its etag is the head's. The sequence of a journal that is too large to be archived is "large".

// ErrThinned says that entries of a journal are in its archive alone. Whoever does not know of archives takes the journal for damaged.
var ErrThinned = fmt.Errorf("%w: its entries are in its archive", runner.ErrCorrupt)

// Note is what a run's head says of its archive. The zero value is that there is none.
type Note struct {
	// Etag is that of the archive's last entry.
	Etag string
	// Sequence is the archive's place in its stream; 0 is that it may be written, or not.
	Sequence uint64
	// Large says that the journal is too large for an archive.
	Large bool
	// At is when it was noted, in Unix milliseconds.
	At int64
}

const largeNote = "large"

func (n Note) String() string {
	if n == (Note{}) {
		return ""
	}
	sequence := strconv.FormatUint(n.Sequence, 10)
	if n.Large {
		sequence = largeNote
	}
	return fmt.Sprintf("%s %s %d", n.Etag, sequence, n.At)
}

func parseNote(text string) (Note, error) {
	if text == "" {
		return Note{}, nil
	}
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return Note{}, fmt.Errorf("%w: %q says nothing of an archive", runner.ErrCorrupt, text)
	}
	n := Note{Etag: parts[0], Large: parts[1] == largeNote}
	var err error
	if !n.Large {
		n.Sequence, err = strconv.ParseUint(parts[1], 10, 64)
	}
	at, atErr := strconv.ParseInt(parts[2], 10, 64)
	if n.At = at; err != nil || atErr != nil {
		return Note{}, fmt.Errorf("%w: %q says nothing of an archive", runner.ErrCorrupt, text)
	}
	return n, nil
}

// Archived is a run's head with what it says of the archive. That of an unknown run is zero.
type Archived struct {
	Rev  uint64
	Etag string
	Note Note
	// Thin says that the entries but the last are in the archive alone.
	Thin bool
}

// Counts reports whether what is noted is of the journal as it is.
func (a Archived) Counts() bool { return a.Note.Etag != "" && a.Note.Etag == a.Etag }

// Archived reads the head of a run.
func (s *Store) Archived(ctx context.Context, run wire.RunKey) (Archived, error) {
	all, err := s.ArchivedOf(ctx, []wire.RunKey{run})
	if err != nil {
		return Archived{}, err
	}
	return all[0].Archived, all[0].Err
}

// ArchivedRun is the head of one of several runs, or why it cannot be read.
type ArchivedRun struct {
	Archived
	Err error
}

// ArchivedOf reads the heads of runs, in one round trip.
func (s *Store) ArchivedOf(ctx context.Context, runs []wire.RunKey) ([]ArchivedRun, error) {
	heads := make([]*redis.SliceCmd, len(runs))
	err := s.pipeline(ctx, len(runs), func(p redis.Pipeliner, i int) {
		heads[i] = p.HMGet(ctx, s.headKey(runs[i]), "rev", "etag", "cold", "thin")
	})
	if err != nil {
		return nil, fmt.Errorf("look for archives of runs: %w", readError(ctx, err))
	}
	all := make([]ArchivedRun, len(runs))
	for i, head := range heads {
		a, err := archived(head.Val())
		if err != nil {
			err = fmt.Errorf("look for the archive of run %s: %w", runs[i], err)
		}
		all[i] = ArchivedRun{a, err}
	}
	return all, nil
}

func archived(values []any) (Archived, error) {
	text := func(i int) string {
		t, _ := values[i].(string) // absent is nil
		return t
	}
	a := Archived{Etag: text(1), Thin: text(3) != ""}
	var err error
	if rev := text(0); rev != "" {
		if a.Rev, err = strconv.ParseUint(rev, 10, 64); err != nil {
			return Archived{}, fmt.Errorf("%w: the head has the number %q", runner.ErrCorrupt, rev)
		}
	}
	a.Note, err = parseNote(text(2))
	return a, err
}

// noteScript notes something of the archive of a journal that ends as it is noted, if the same is noted as before. KEYS: head. ARGV: what was
// noted, what is to be noted, and its etag. A journal whose entries are in the archive alone keeps its note.
var noteScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'thin') then return 0 end
if redis.call('HGET', KEYS[1], 'etag') ~= ARGV[3] then return 0 end
if (redis.call('HGET', KEYS[1], 'cold') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'cold', ARGV[2])
return 1
`)

// Note notes next of a run's archive where was is noted. runner.ErrConflict is that something else is by now, or that the journal ends with
// another entry.
func (s *Store) Note(ctx context.Context, run wire.RunKey, was, next Note) error {
	err := s.commit(ctx, noteScript, []string{s.headKey(run)}, was.String(), next.String(), next.Etag)
	if err != nil {
		return fmt.Errorf("note the archive of run %s: %w", run, err)
	}
	return nil
}

// forgetScript removes what is noted of an archive that is deleted, if it is still that. KEYS: head. ARGV: what is noted.
var forgetScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'cold') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'cold')
return 1
`)

// ForgetNote removes what is noted of a run's archive, when that is deleted. What was noted otherwise since stays, which is not an error.
func (s *Store) ForgetNote(ctx context.Context, run wire.RunKey, was Note) error {
	err := s.commit(ctx, forgetScript, []string{s.headKey(run)}, was.String())
	if err != nil && !errors.Is(err, runner.ErrConflict) {
		return fmt.Errorf("forget the archive of run %s: %w", run, err)
	}
	return nil
}

// thinScript leaves a journal its last entry. KEYS: head, list, set of digests, blobs. ARGV: what is noted of the archive, its etag, how many
// entries that has, and a digest for each blob. Blobs that are not in the archive stay.
var thinScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'etag') ~= ARGV[2] then return 0 end
if redis.call('HGET', KEYS[1], 'cold') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'thin') then return 2 end
if redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[3]) then
  return redis.error_reply('AGENTDJOURNAL the archive has another number of entries')
end
redis.call('HSET', KEYS[1], 'thin', '1')
redis.call('LTRIM', KEYS[2], -1, -1)
for i = 4, #KEYS do
  redis.call('UNLINK', KEYS[i])
  redis.call('SREM', KEYS[3], ARGV[i])
end
return 1
`)

// Thin leaves a journal of so many entries its last one, and removes the blobs with the digests, all of which the noted archive has. It may be
// repeated. runner.ErrConflict is that the journal goes on, or that something else is noted.
func (s *Store) Thin(ctx context.Context, run wire.RunKey, noted Note, entries int, digests []string) error {
	keys := []string{s.headKey(run), s.listKey(run), s.digestsKey(run)}
	args := []any{noted.String(), noted.Etag, entries}
	for _, digest := range digests {
		keys, args = append(keys, s.blobKey(run, digest)), append(args, digest)
	}
	if err := s.commit(ctx, thinScript, keys, args...); err != nil {
		return fmt.Errorf("remove archived entries of run %s: %w", run, err)
	}
	return nil
}

// thawScript puts the entries before the last, and blobs, back. KEYS: head, list, set of digests, blobs. ARGV: the archive's etag, how many
// entries there are to put back, these, and digest and bytes of each blob.
var thawScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], 'etag') ~= ARGV[1] then return 0 end
if not redis.call('HGET', KEYS[1], 'thin') then return 2 end
local entries = tonumber(ARGV[2])
for i = entries, 1, -1 do redis.call('LPUSH', KEYS[2], ARGV[2 + i]) end
for i = 4, #KEYS do
  local at = 3 + entries + 2 * (i - 4)
  redis.call('SADD', KEYS[3], ARGV[at])
  redis.call('SET', KEYS[i], ARGV[at + 1], 'NX')
end
redis.call('HDEL', KEYS[1], 'thin')
return 1
`)

// Content is a blob with its digest.
type Content struct {
	Digest string
	Data   []byte
}

// Thaw puts back what Thin removed: records are all of the journal, the last of which is there. It may be repeated. runner.ErrConflict is that
// the journal ends with another entry.
func (s *Store) Thaw(ctx context.Context, run wire.RunKey, records []runner.Record, blobs []Content) error {
	last := len(records) - 1
	keys := []string{s.headKey(run), s.listKey(run), s.digestsKey(run)}
	args := []any{records[last].Etag, last}
	for _, r := range records[:last] {
		args = append(args, encode(r))
	}
	for _, b := range blobs {
		keys, args = append(keys, s.blobKey(run, b.Digest)), append(args, b.Digest, b.Data)
	}
	if err := s.commit(ctx, thawScript, keys, args...); err != nil {
		return fmt.Errorf("bring back the entries of run %s: %w", run, err)
	}
	return nil
}

// Contents are the blobs of a run, in the order of their digests. One that was noted and not written is left out.
func (s *Store) Contents(ctx context.Context, run wire.RunKey) ([]Content, error) {
	digests, err := s.client.SMembers(ctx, s.digestsKey(run)).Result()
	if err != nil {
		return nil, fmt.Errorf("list the blobs of run %s: %w", run, readError(ctx, err))
	}
	slices.Sort(digests)
	blobs := make([]*redis.StringCmd, len(digests))
	err = s.pipeline(ctx, len(digests), func(p redis.Pipeliner, i int) { blobs[i] = p.Get(ctx, s.blobKey(run, digests[i])) })
	if err != nil {
		return nil, fmt.Errorf("read the blobs of run %s: %w", run, readError(ctx, err))
	}
	var all []Content
	for i, b := range blobs {
		if b.Err() == nil {
			all = append(all, Content{digests[i], []byte(b.Val())})
		}
	}
	return all, nil
}
