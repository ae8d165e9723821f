package cold

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	compress "github.com/klauspost/compress/flate"

	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/sdk/wire"
)

// An archive is layout, the SHA-256 of its content, and the content deflated. The content is the run's key, the number of records, each with
// its revision, etag and data, the number of blobs, and each with its digest and data. Numbers are unsigned varints, and texts have their
// length before them.
const layout = "agentd-cold-1\n"

const (
	// maxArchive is the largest archive in bytes: the server sends it in base64 in one message, which is at most 1 MiB by default.
	maxArchive = 640 << 10
	// maxContent is the largest content in bytes. It is what one archive may take of a reader's memory.
	maxContent = 16 << 20
)

// errTooLarge says that a journal does not fit into an archive.
var errTooLarge = errors.New("the journal is too large for an archive")

// journal is all that a store has of a run, as it is stored.
type journal struct {
	run     wire.RunKey
	records []runner.Record
	// blobs are in the order of their digests.
	blobs []redisstore.Content
}

// last is the version of the last record.
func (j *journal) last() runner.Version { return j.records[len(j.records)-1].Version }

// end leaves out what comes after the record with an etag, and reports whether that is there.
func (j *journal) end(etag string) bool {
	i := slices.IndexFunc(j.records, func(r runner.Record) bool { return r.Etag == etag })
	j.records = j.records[:i+1]
	return i >= 0
}

func (j *journal) blob(digest string) ([]byte, bool) {
	i := slices.IndexFunc(j.blobs, func(b redisstore.Content) bool { return b.Digest == digest })
	if i < 0 {
		return nil, false
	}
	return j.blobs[i].Data, true
}

func (j *journal) digests() []string {
	digests := make([]string, len(j.blobs))
	for i, b := range j.blobs {
		digests[i] = b.Digest
	}
	return digests
}

// content is what an archive of the journal says: of the same journal always the same bytes.
func (j *journal) content() []byte {
	var c []byte
	number := func(n uint64) { c = binary.AppendUvarint(c, n) }
	text := func(t string) { number(uint64(len(t))); c = append(c, t...) }
	text(j.run.String())
	number(uint64(len(j.records)))
	for _, r := range j.records {
		number(r.Rev)
		text(r.Etag)
		text(string(r.Data))
	}
	number(uint64(len(j.blobs)))
	for _, b := range j.blobs {
		text(b.Digest)
		text(string(b.Data))
	}
	return c
}

// pack makes an archive of a journal's content, or returns errTooLarge.
func pack(content []byte) ([]byte, error) {
	if len(content) > maxContent {
		return nil, fmt.Errorf("%w: it has %d bytes", errTooLarge, len(content))
	}
	sum := sha256.Sum256(content)
	var archive bytes.Buffer
	archive.WriteString(layout)
	archive.Write(sum[:])
	deflater, err := compress.NewWriter(&archive, compress.BestCompression)
	if err == nil {
		_, err = deflater.Write(content)
	}
	if err == nil {
		err = deflater.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("deflate a journal: %w", err)
	}
	if archive.Len() > maxArchive {
		return nil, fmt.Errorf("%w: its archive has %d bytes", errTooLarge, archive.Len())
	}
	return archive.Bytes(), nil
}

func damaged(why string) error { return fmt.Errorf("%w: its archive %s", runner.ErrCorrupt, why) }

// unpack returns the journal of an archive, and its content. Nothing that the archive says is believed before its content is checked, and
// what is larger than any content is not read further.
func unpack(archive []byte) (*journal, []byte, error) {
	rest, known := bytes.CutPrefix(archive, []byte(layout))
	if !known || len(rest) < sha256.Size {
		return nil, nil, damaged("is not of a layout that this version reads")
	}
	inflater := flate.NewReader(bytes.NewReader(rest[sha256.Size:]))
	content, err := io.ReadAll(io.LimitReader(inflater, maxContent+1))
	switch {
	case err != nil:
		return nil, nil, damaged("cannot be inflated: " + err.Error())
	case len(content) > maxContent:
		return nil, nil, damaged(fmt.Sprintf("has more than %d bytes", maxContent))
	case sha256.Sum256(content) != [sha256.Size]byte(rest[:sha256.Size]):
		return nil, nil, damaged("was altered: its content does not have its hash")
	}
	j, err := parse(content)
	return j, content, err
}

// cursor reads a content. After the first fault it reads nothing more.
type cursor struct {
	rest  []byte
	fault bool
}

func (c *cursor) number() uint64 {
	n, size := binary.Uvarint(c.rest)
	if c.fault = c.fault || size <= 0; c.fault {
		return 0
	}
	c.rest = c.rest[size:]
	return n
}

func (c *cursor) bytes() []byte {
	n := c.number()
	if c.fault = c.fault || n > uint64(len(c.rest)); c.fault {
		return nil
	}
	taken := c.rest[:n:n]
	c.rest = c.rest[n:]
	return taken
}

func parse(content []byte) (*journal, error) {
	c := &cursor{rest: content}
	j := &journal{}
	key := string(c.bytes())
	if len(key) > len(j.run.Partition)+4 {
		j.run = wire.RunKey{Partition: key[:3], Token: key[4:]}
	}
	for n, rev := c.number(), uint64(1); rev <= n && !c.fault; rev++ {
		r := runner.Record{Version: runner.Version{Rev: c.number()}}
		r.Etag, r.Data = string(c.bytes()), c.bytes()
		r.Position = r.Rev
		c.fault = c.fault || r.Rev != rev
		j.records = append(j.records, r)
	}
	for n := c.number(); n > 0 && !c.fault; n-- {
		b := redisstore.Content{Digest: string(c.bytes()), Data: c.bytes()}
		if _, err := hex.DecodeString(b.Digest); err != nil {
			c.fault = true
		}
		j.blobs = append(j.blobs, b)
	}
	if c.fault || len(c.rest) > 0 || len(j.records) == 0 || j.run.String() != key {
		return nil, damaged("is not whole")
	}
	return j, nil
}
