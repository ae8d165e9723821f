package cold

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	compress "github.com/klauspost/compress/flate"

	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

var sample = journal{
	run: wire.NewRunKey("trip"),
	records: []runner.Record{
		{Version: runner.Version{Rev: 1, Etag: "a", Position: 1}, Data: []byte(`{"v":8}`)},
		{Version: runner.Version{Rev: 2, Etag: "b", Position: 2}, Data: []byte{}},
		{Version: runner.Version{Rev: 3, Etag: "c", Position: 3}, Data: []byte("\x00\xff\n")},
	},
	blobs: []redisstore.Content{{Digest: storetest.Digest([]byte("x")), Data: []byte("x")}},
}

func TestArchive_HoldsTheJournal(t *testing.T) {
	t.Parallel()
	archive, err := pack(sample.content())
	if err != nil {
		t.Fatal(err)
	}
	got, content, err := unpack(archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample, *got, cmp.AllowUnexported(journal{})); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	if !bytes.Equal(content, sample.content()) {
		t.Error("the content is another one")
	}
}

// TestArchive_AlteredIsRefused changes, cuts off and appends at every place of an archive.
func TestArchive_AlteredIsRefused(t *testing.T) {
	t.Parallel()
	archive, err := pack(sample.content())
	if err != nil {
		t.Fatal(err)
	}
	for i := range archive {
		changed := slices.Clone(archive)
		changed[i] ^= 0x10
		j, _, err := unpack(changed)
		if err == nil && !bytes.Equal(j.content(), sample.content()) {
			t.Errorf("changed at byte %d: another journal", i)
		}
		if err != nil && !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("changed at byte %d: %v", i, err)
		}
		if _, _, err := unpack(archive[:i]); !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("cut off at byte %d: %v", i, err)
		}
	}
}

// sealedAs makes an archive that says of itself that it is sound.
func sealedAs(t *testing.T, content []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(content)
	var archive bytes.Buffer
	archive.WriteString(layout)
	archive.Write(sum[:])
	deflater, err := compress.NewWriter(&archive, compress.BestSpeed)
	if err == nil {
		_, err = deflater.Write(content)
	}
	if err == nil {
		err = deflater.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// TestArchive_MaliceIsRefused reads what has the right hash and does not hold a journal, or one that would take all memory.
func TestArchive_MaliceIsRefused(t *testing.T) {
	t.Parallel()
	run := sample.run.String()
	text := func(s string) string { return string(rune(len(s))) + s }
	for name, content := range map[string]string{
		"bomb":                   strings.Repeat("\x00", maxContent+1),
		"nothing":                "",
		"no record":              text(run) + "\x00\x00",
		"records without end":    text(run) + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"a text without end":     text(run) + "\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"number above 64 bits":   text(run) + strings.Repeat("\xff", 11),
		"a record is missing":    text(run) + "\x01\x02\x01a\x00\x00",
		"something behind it":    string(sample.content()) + "x",
		"cut off":                string(sample.content()[:len(sample.content())-1]),
		"another key":            text("0") + string(sample.content()[1+len(run):]),
		"a digest that is none":  text(run) + "\x01\x01\x01a\x00\x01" + text("../x") + "\x00",
		"blobs without contents": text(run) + "\x01\x01\x01a\x00\x05",
	} {
		if _, _, err := unpack(sealedAs(t, []byte(content))); !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestArchive_BombIsNotInflated further than any archive: it is not parallel, so that what is allocated is for it.
func TestArchive_BombIsNotInflated(t *testing.T) { // it counts what the process allocates
	bomb := sealedAs(t, make([]byte, 4*maxContent))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := unpack(bomb)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, runner.ErrCorrupt) {
		t.Errorf("unpack: %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*maxContent {
		t.Errorf("%d bytes were allocated for an archive of %d", took, len(bomb))
	}
}

func TestArchive_TooLargeIsNotMade(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{"deflated": []byte(noise(maxArchive, 0)), "inflated": make([]byte, maxContent+1)} {
		if _, err := pack(content); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pack(make([]byte, maxContent)); err != nil {
		t.Errorf("the largest: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	archive, err := pack(sample.content())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(archive)
	f.Add([]byte(layout))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, content, err := unpack(data)
		if err == nil && !bytes.Equal(j.content(), content) {
			t.Error("what was read is not what is there")
		}
		if j, err = parse(data); err == nil && len(j.records) == 0 {
			t.Error("a journal without records")
		}
	})
}

// noise is a text that cannot be deflated.
func noise(n int, seed byte) string {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(text) // never fails
	return string(text)
}
